package cosmos

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/feed"
)

// BenchmarkPage reads pages of 1,000 items of 1 KB.
func BenchmarkPage(b *testing.B) {
	var page bytes.Buffer
	page.WriteString(`{"_rid":"r","Documents":[`)
	for i := range 1000 {
		if i > 0 {
			page.WriteByte(',')
		}
		fmt.Fprintf(&page,
			`{"id":"item-%d","pk":"key-%d","n":%d,"text":"%s","_rid":"AAAAAAAAAAAAAAAAAAAAAA==","_self":"dbs/a/colls/b/docs/c/","_etag":"\"00000000-0000-0000-0000-000000000000\"","_attachments":"attachments/","_ts":1767323045,"_lsn":%d}`,
			i, i%50, i, strings.Repeat("lorem ", 133), i)
	}
	page.WriteString(`],"_count":1000}`)
	c := container("/pk")
	b.SetBytes(int64(page.Len()))
	for b.Loop() {
		changes, err := c.readChanges(slices.Clone(page.Bytes()), feed.LatestVersion)
		if err != nil || len(changes) != 1000 {
			b.Fatal(len(changes), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/item")
}
