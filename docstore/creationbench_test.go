package docstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// BenchmarkCreationOrder reads 200,000 documents of 1 KB in the order of their creation: as created, after replaces
// of a tenth of them, and after replaces of all of them. It reads all of them at once (creation), the first 10,000 of
// them in pages of 100 (pages), and, for comparison, all of them in the order of their last writes (writes).
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
			for _, r := range []struct {
				what              string
				page, documents   int
				inOrderOfCreation bool
			}{
				{"creation", n, n, true},
				{"pages", 100, 10_000, true},
				{"writes", n, n, false},
			} {
				b.Run(r.what, func(b *testing.B) {
					for b.Loop() {
						for read, after := 0, int64(0); read < r.documents; read += r.page {
							after = readDocuments(b, c, after, r.page, r.inOrderOfCreation)
						}
					}
					b.ReportMetric(float64(b.N*r.documents)/b.Elapsed().Seconds(), "documents/s")
				})
			}
		})
	}
}

// readDocuments reads so many documents of a snapshot, and returns the number of the last.
func readDocuments(b *testing.B, c *docstore.Container, after int64, most int, ordered bool) (last int64) {
	b.Helper()
	s, err := c.Snapshot(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	all := s.Unordered(b.Context(), feed.FullRange())
	if ordered {
		all = s.Documents(b.Context(), feed.FullRange(), after)
	}
	n := 0
	for item, err := range all {
		if err != nil {
			b.Fatal(err)
		}
		last = item.Number
		if n++; n == most {
			break
		}
	}
	if n != most {
		b.Fatalf("%d documents of %d", n, most)
	}
	return last
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
