package binaryjson

import (
	"fmt"
	"strings"
	"testing"
)

// document is an item of about a kilobyte, with the mix of values that items have.
func document() []byte {
	var lines strings.Builder
	for i := range 8 {
		fmt.Fprintf(&lines, `,{"sku":"sku-%d","count":%d,"price":%d.%02d,"gift":%v,"note":null}`, i*7919, i+1, i*13, i*11,
			i%2 == 0)
	}
	return []byte(`{"id":"5f0c1f8e-3a55-4a7e-9a0c-0d7a5b1f4c11","customer":"customer-4711","city":"London","placed":` +
		`"2026-01-31T15:04:05.678Z","total":1234.56,"lines":[{"sku":"sku-0","count":1}` + lines.String() + `],"address":` +
		`{"street":"10 Downing Street","postcode":"SW1A 2AA","country":"GB"},"_rid":"AQIDBAUGBwg=","_self":"dbs/AQ==/",` +
		`"_etag":"\"00004812-0000-0200-0000-6a7fa98a0000\"","_attachments":"attachments/","_ts":1790000000}`)
}

func BenchmarkWrite(b *testing.B) {
	text := document()
	var out []byte
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		out = Append(out[:0], text)
	}
	b.ReportMetric(float64(len(out))/float64(len(text)), "binary/text")
}

func BenchmarkRead(b *testing.B) {
	body := Append(nil, document())
	var out []byte
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if out, err = AppendText(out[:0], body, limit); err != nil {
			b.Fatal(err)
		}
	}
}
