package cosmosrest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// load fills a container with so many items of 1 KB, a hundred of each key.
func load(b *testing.B, cont *docstore.Container, n int) {
	b.Helper()
	for from := 0; from < n; from += 100 {
		key := "k" + strconv.Itoa(from/100)
		var writes []feed.Write
		for i := range min(100, n-from) {
			body := fmt.Appendf(nil, `{"id":"i%d","pk":%q,"n":%d,"v":"%0920d"}`, from+i, key, from+i, 0)
			writes = append(writes, feed.Write{Op: feed.WriteUpsert, Body: body})
		}
		if _, err := cont.Commit(b.Context(), feed.Key(key), writes); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFeed(b *testing.B) {
	const items, page = 50_000, 1000
	w, cont := newContainer(b, Options{})
	load(b, cont, items)
	var pages []*shot
	for from := range items / page { // a hundred items have one LSN
		etag := strconv.Itoa(from * page / 100)
		pages = append(pages, newShot(b, "GET", docs, feedOf("x-ms-max-item-count", strconv.Itoa(page), "if-none-match",
			etag), ""))
	}
	b.SetBytes(page << 10)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		pages[i%len(pages)].at(b, w, 200)
		i++
	}
	b.ReportMetric(page*float64(b.N)/b.Elapsed().Seconds(), "items/s")
}

func BenchmarkQuery(b *testing.B) {
	const items = 200_000
	w, cont := newContainer(b, Options{})
	load(b, cont, items)
	for _, bench := range []struct{ name, query string }{
		{"IDAndKey", "SELECT * FROM c WHERE c.id = @id AND c.pk = @pk"},
		{"Key", "SELECT * FROM c WHERE c.pk = @pk"},
		{"ID", "SELECT * FROM c WHERE c.id = @id"},
		{"Scan", "SELECT * FROM c WHERE c.n = 199999"},
	} {
		var shots []*shot
		for range 1000 {
			n := rand.IntN(items)
			params := fmt.Sprintf(`{"name":"@id","value":"i%d"},{"name":"@pk","value":"k%d"}`, n, n/100)
			shots = append(shots, newShot(b, "POST", docs, across(), fmt.Sprintf(`{"query":%q,"parameters":[%s]}`,
				bench.query, params)))
		}
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				shots[i%len(shots)].at(b, w, 200)
				i++
			}
		})
	}
}
