package docstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// BenchmarkCreationOrder reads 200,000 documents of 1 KB in the order of their creation: as created, after replaces
// of a tenth of them, and after replaces of all of them.
func BenchmarkCreationOrder(b *testing.B) {
	for _, replaced := range []int{0, 20_000, 200_000} {
		b.Run(fmt.Sprint("replaced=", replaced), func(b *testing.B) {
			db, err := docstore.Open(b.TempDir(), docstore.Options{NoSync: true})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			const n = 200_000
			c := load(b, db, n)
			order := rand.New(rand.NewPCG(1, 2)).Perm(n)
			write(b, 64, replaced, func(i int) error {
				_, err := c.Upsert(b.Context(), body(order[i], 1))
				return err
			})
			b.ResetTimer()
			for b.Loop() {
				s, err := c.Snapshot(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				read := 0
				for _, err := range s.Documents(b.Context(), feed.FullRange(), 0) {
					if err != nil {
						b.Fatal(err)
					}
					read++
				}
				if err := s.Close(); err != nil || read != n {
					b.Fatalf("%d documents, %v", read, err)
				}
			}
			b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "documents/s")
		})
	}
}

// BenchmarkFirstReplace creates documents of 1 KB and then replaces each of them once.
func BenchmarkFirstReplace(b *testing.B) {
	db, err := docstore.Open(b.TempDir(), docstore.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	c := container(b, db, docstore.ContainerSpec{ID: "bench"})
	for _, step := range []string{"creates/s", "replaces/s"} {
		b.ResetTimer()
		write(b, 16, b.N, func(i int) error {
			_, err := c.Upsert(b.Context(), body(i, len(step)))
			return err
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), step)
	}
}
