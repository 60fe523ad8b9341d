package docstore_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// body is a document of about 1 KB.
func body(i, v int) []byte {
	pad := bytes.Repeat([]byte("abcdefgh"), 115)
	return fmt.Appendf(nil, `{"id":"doc-%07d","pk":"key-%05d","v":%d,"pad":"%s"}`, i, i%10000, v, pad)
}

func load(b *testing.B, db *docstore.DB, n int) *docstore.Container {
	b.Helper()
	c := container(b, db, docstore.ContainerSpec{ID: "bench"})
	write(b, 64, n, func(i int) error {
		_, err := c.Upsert(b.Context(), body(i, 0))
		return err
	})
	return c
}

// write calls f n times from some goroutines.
func write(b *testing.B, writers, n int, f func(i int) error) {
	b.Helper()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < n; i += writers {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkOverwrite is durable overwrites of 1 KB documents by 1, 16 and 64 writers.
func BenchmarkOverwrite(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			db, err := docstore.Open(b.TempDir(), docstore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			const n = 100_000
			c := load(b, db, n)
			b.ResetTimer()
			write(b, writers, b.N, func(i int) error {
				_, err := c.Upsert(b.Context(), body(rand.IntN(n), i))
				return err
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}

// BenchmarkRawFile is the limit: the same bytes appended to a file, one flush for all
// writers that wait.
func BenchmarkRawFile(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			type record struct {
				data []byte
				done chan error
			}
			queue := make(chan record, 1024)
			var wg sync.WaitGroup
			wg.Go(func() {
				for r := range queue {
					group := []record{r}
					buf := append([]byte{}, r.data...)
					for more := true; more; {
						select {
						case r, ok := <-queue:
							if !ok {
								more = false
								break
							}
							group = append(group, r)
							buf = append(buf, r.data...)
						default:
							more = false
						}
					}
					_, err := f.Write(buf)
					if err == nil {
						err = f.Sync()
					}
					for _, r := range group {
						r.done <- err
					}
				}
			})
			b.ResetTimer()
			write(b, writers, b.N, func(i int) error {
				r := record{binary.BigEndian.AppendUint64(body(i%100_000, i), uint64(i)), make(chan error, 1)}
				queue <- r
				return <-r.done
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
			close(queue)
			wg.Wait()
		})
	}
}

// BenchmarkFeed reads 200,000 documents of 1 KB from the beginning.
func BenchmarkFeed(b *testing.B) {
	db, err := docstore.Open(b.TempDir(), docstore.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	const n = 200_000
	c := load(b, db, n)
	b.ReportAllocs()
	b.ResetTimer()
	total := 0
	for b.Loop() {
		from := feed.Position{Start: feed.FromBeginning()}
		for {
			page, err := c.Read(b.Context(), feed.FullRange(), from, feed.ReadOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if len(page.Changes) == 0 {
				break
			}
			total += len(page.Changes)
			from = page.Next
		}
	}
	if total != b.N*n {
		b.Fatal(total)
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "docs/s")
}

// BenchmarkPending counts 200,000 documents of 1 KB, as an estimate of the lag does.
func BenchmarkPending(b *testing.B) {
	db, err := docstore.Open(b.TempDir(), docstore.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	const n = 200_000
	c := load(b, db, n)
	half := feed.FullRange().Cut(2)[0]
	for name, r := range map[string]feed.Range{"partition": feed.FullRange(), "half": half} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				got, err := c.Pending(b.Context(), r, feed.Position{Start: feed.FromBeginning()}, feed.ReadOptions{})
				if err != nil || got.Items == 0 {
					b.Fatal(got, err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "docs/s")
		})
	}
}

// BenchmarkRetention is what keeping superseded versions costs: durable overwrites of
// 20,000 documents of 1 KB by 16 writers, the bytes on disk for each of them, and a feed of
// the latest versions over what they leave.
func BenchmarkRetention(b *testing.B) {
	for _, retention := range []time.Duration{0, time.Hour} {
		b.Run(fmt.Sprint("retention=", retention), func(b *testing.B) {
			db, err := docstore.Open(b.TempDir(), docstore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			const n = 20_000
			c := container(b, db, docstore.ContainerSpec{ID: "bench", Retention: retention})
			put := func(i int) error {
				_, err := c.Upsert(b.Context(), body(i%n, i))
				return err
			}
			write(b, 16, n, put)
			before := db.Stats().DiskBytes
			b.ResetTimer()
			write(b, 16, b.N, put)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
			b.ReportMetric(float64(db.Stats().DiskBytes-before)/float64(b.N), "disk-B/write")
			begun, read := time.Now(), 0
			for from := (feed.Position{Start: feed.FromBeginning()}); ; {
				page, err := c.Read(b.Context(), feed.FullRange(), from, feed.ReadOptions{})
				if err != nil {
					b.Fatal(err)
				}
				if from = page.Next; len(page.Changes) == 0 {
					break
				}
				read += len(page.Changes)
			}
			b.ReportMetric(float64(read)/time.Since(begun).Seconds(), "feed-docs/s")
		})
	}
}

// BenchmarkLogScan is the limit of that: the engine's cursor over the same entries.
func BenchmarkLogScan(b *testing.B) {
	db, err := docstore.Open(b.TempDir(), docstore.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	load(b, db, 200_000)
	total := 0
	for b.Loop() {
		n, _, err := db.LogScan()
		if err != nil {
			b.Fatal(err)
		}
		total += n
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "docs/s")
}

// BenchmarkItem is point reads.
func BenchmarkItem(b *testing.B) {
	db, err := docstore.Open(b.TempDir(), docstore.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	const n = 100_000
	c := load(b, db, n)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		i := rand.IntN(n)
		if _, err := c.Item(b.Context(), feed.Key(fmt.Sprintf("key-%05d", i%10000)),
			fmt.Sprintf("doc-%07d", i)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen opens a store of 200,000 documents.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	db, err := docstore.Open(dir, docstore.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	load(b, db, 200_000)
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		db, err := docstore.Open(dir, docstore.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
