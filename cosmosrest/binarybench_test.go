//go:build unix

package cosmosrest

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// order is an item of a kilobyte, with the mix of values that items have.
func order(id int) string {
	var lines strings.Builder
	for i := range 12 {
		fmt.Fprintf(&lines, `{"sku":"sku-%d","count":%d,"price":%d.%02d,"gift":%v,"note":null},`, i*7919, i+1, i*13, i*11%100,
			i%2 == 0)
	}
	return fmt.Sprintf(`{"id":"%d","pk":"p","customer":"customer-4711","placed":"2026-01-31T15:04:05.678Z","total":1234.56,`+
		`"lines":[%s{"sku":"sku-0","count":1}],"address":{"street":"10 Downing Street","postcode":"SW1A 2AA"}}`, id,
		lines.String())
}

// computed is the processor time of this process, which other processes of the machine do not prolong.
func computed(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// The same requests in text and in binary, bodies and answers.
func BenchmarkFormats(b *testing.B) {
	w, _ := newContainer(b, Options{})
	for i := range 1000 {
		newShot(b, "POST", docs, under("p"), order(i)).at(b, w, 201)
	}
	upsert := under("p", "x-ms-documentdb-is-upsert", "True")
	query := under("p", "content-type", wire.QueryType)
	for _, bench := range []struct {
		name, method, path string
		headers            map[string]string
		body               string
		encoded            bool // in binary, the body is binary too
	}{
		{"Read", "GET", docs + "/7", under("p"), "", false},
		{"Upsert", "POST", docs, upsert, order(7), true},
		{"Query", "POST", docs, query, `{"query":"SELECT TOP 100 * FROM c"}`, false},
		{"Feed", "GET", docs, map[string]string{"a-im": wire.LatestFeed, "x-ms-max-item-count": "100"}, "", false},
	} {
		for _, format := range []string{"Text", "Binary"} {
			headers, body := maps.Clone(bench.headers), bench.body
			if format == "Binary" {
				headers["x-ms-cosmos-supported-serialization-formats"] = "CosmosBinary"
				if bench.encoded {
					body = binaryOf(body)
				}
			}
			b.Run(bench.name+"/"+format, func(b *testing.B) {
				s := newShot(b, bench.method, bench.path, headers, body)
				b.ReportAllocs()
				before := computed(b)
				for b.Loop() {
					s.at(b, w, 200)
				}
				b.ReportMetric(float64((computed(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
			})
		}
	}
}
