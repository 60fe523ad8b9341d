package sql

import (
	"fmt"
	"strings"
	"testing"
)

const (
	usualQuery    = "SELECT * FROM c WHERE c.pk = @pk AND c.id = @id"
	readManyQuery = "SELECT * FROM c WHERE (c.id = @id AND c.pk = @pk) OR (c.id = @id AND IS_NULL(c.pk))"
	leaseQuery    = "SELECT TOP @n * FROM c WHERE STARTSWITH(c.id, @id) AND c.ContinuationToken <> null"
)

var benchParams = []Parameter{{"@pk", []byte(`"tenant-7"`)}, {"@id", []byte(`"item-7"`)}, {"@n", []byte("1")}}

func BenchmarkParse(b *testing.B) {
	for _, q := range []string{usualQuery, readManyQuery, leaseQuery} {
		b.Run("cold/"+q[:12]+fmt.Sprint(len(q)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parse(q, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("list of 100,000", func(b *testing.B) {
		q := "SELECT * FROM c WHERE c.n IN (" + strings.Repeat("1,", 99_999) + "1)"
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parse(q, false); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			if _, err := Parse(usualQuery); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkBind(b *testing.B) {
	q, err := Parse(usualQuery)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := q.Bind(benchParams); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFilter runs a query over one document of 1 KB.
func BenchmarkFilter(b *testing.B) {
	doc := []byte(`{"id":"item-8","pk":"tenant-7","n":12.5,"tags":["a","b","c"],"body":"` +
		strings.Repeat("lorem ipsum ", 75) +
		`","_rid":"x","_self":"y","_etag":"\"00000\"","_ts":1700000000}`)
	for _, q := range []string{
		usualQuery,
		"SELECT * FROM c",
		"SELECT * FROM c WHERE STARTSWITH(c.id, @id)",
		"SELECT c.id, c.n, c._ts FROM c",
		"SELECT * FROM c WHERE c._ts > 1700000001",
		"SELECT VALUE t FROM c JOIN t IN c.tags WHERE t != 'b'",
	} {
		b.Run(q, func(b *testing.B) {
			query := bound(b, q, benchParams...)
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if err := query.Rows(doc, func([]byte) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
