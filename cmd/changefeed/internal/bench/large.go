package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A store that is larger than its cache: 3 million documents of 1 KB, filled once and used by two benchmarks. During
// the filling, no write waits for the disk; before the measurements the store is opened again.

const (
	largeDocs     = 3_000_000
	largeSlice    = 4 * time.Second
	largeReads    = 100_000
	pendingRounds = 9
)

// large is a store with a large container. Each document was written separately, because a batch would give all of
// its documents the same LSN.
type large struct {
	dir       string
	db        *docstore.DB
	documents *docstore.Container
	opened    time.Duration // duration of the last open
}

// largeStore returns the site's large store. The first call fills the store.
func (s *Site) largeStore(ctx context.Context) (*large, error) {
	if s.large != nil {
		return s.large, nil
	}
	l := &large{dir: filepath.Join(s.dir, "large")}
	if err := l.open(docstore.Options{NoSync: true}); err != nil {
		return nil, err
	}
	s.large = l
	var err error
	if l.documents, err = l.db.CreateContainer(ctx,
		docstore.ContainerSpec{ID: "documents", Paths: []string{"/city"}}); err != nil {
		return nil, err
	}
	s.reportProgress("filling a store with %d documents, one by one", largeDocs)
	var next atomic.Int64
	begun := time.Now()
	err = together(ctx, writers, func(ctx context.Context) error {
		for n := int(next.Add(1)) - 1; n < largeDocs; n = int(next.Add(1)) - 1 {
			key, body := docOf(n)
			if _, err := l.documents.Commit(ctx, key, []feed.Write{{Body: body}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.reportProgress("filled in %.0f s", time.Since(begun).Seconds())
	return l, l.reopen()
}

// reopen opens the store again so that writes wait for the disk, which they do not while the store is filled.
func (l *large) reopen() error {
	if err := l.db.Close(); err != nil {
		return err
	}
	return l.open(docstore.Options{})
}

// open opens the store, and measures the duration.
func (l *large) open(o docstore.Options) (err error) {
	begun := time.Now()
	if l.db, err = docstore.Open(l.dir, o); err != nil {
		return err
	}
	l.opened = time.Since(begun)
	for _, c := range l.db.Containers() {
		l.documents = c
	}
	return nil
}

// pending3M measures the exact count of all changes of the large store.
func pending3M(ctx context.Context, s *Site) (f Figure, err error) {
	l, err := s.largeStore(ctx)
	if err != nil {
		return f, err
	}
	count := func(r feed.Range, from feed.Position, want int64) (float64, error) {
		var times []float64
		for range pendingRounds {
			begun := time.Now()
			got, err := l.documents.Pending(ctx, r, from, feed.ReadOptions{})
			if err != nil {
				return 0, err
			}
			if want >= 0 && got.Items != want {
				return 0, fmt.Errorf("%d changes are pending, want %d", got.Items, want)
			}
			times = append(times, float64(time.Since(begun).Microseconds())/1000)
		}
		return median(times), nil
	}
	full := feed.FullRange()
	if f.Value, err = count(full, feed.Position{Start: feed.FromBeginning()}, largeDocs); err != nil {
		return f, err
	}
	const left = largeDocs/2 + 17 // within a cell
	middle, err := count(full, feed.At(strconv.Itoa(largeDocs-left)), left)
	if err != nil {
		return f, err
	}
	// The number of keys in half of the range is unknown, so the count is not checked. Counts are kept for whole
	// partitions; a part of a partition has to be read.
	half, err := count(full.Cut(2)[0], feed.At(strconv.Itoa(largeDocs-100_000)), -1)
	if err != nil {
		return f, err
	}
	f.Unit = "ms"
	f.AtMost(50)
	f.Detail = fmt.Sprintf("Container.Pending of %d changes from the beginning; %.1f ms from the middle; %.0f ms for "+
		"half of the partition, which reads the last 100,000 changes",
		largeDocs, middle, half)
	return f, nil
}

// overwrite3M compares random overwrites in the large store with those in a store of the size of durable_overwrite.
func overwrite3M(ctx context.Context, s *Site) (f Figure, err error) {
	l, err := s.largeStore(ctx)
	if err != nil {
		return f, err
	}
	if err := l.reopen(); err != nil { // to remove data of pending_3m from memory
		return f, err
	}
	opened := l.opened
	small, err := docstore.Open(filepath.Join(s.dir, "small"), docstore.Options{})
	if err != nil {
		return f, err
	}
	defer func() { err = cmp.Or(err, small.Close()) }()
	few, err := small.CreateContainer(ctx, docstore.ContainerSpec{ID: "documents", Paths: []string{"/city"}})
	if err != nil {
		return f, err
	}
	if err := fillWith(ctx, few, overwriteDocs); err != nil {
		return f, err
	}
	overwrite := func(c *docstore.Container, docs int) func() (float64, error) {
		return func() (float64, error) {
			return crowd(ctx, writers, largeSlice, func(ctx context.Context, _ int) error {
				key, body := docOf(rand.IntN(docs))
				_, err := c.Commit(ctx, key, []feed.Write{{Op: feed.WriteReplace, Body: body}})
				return err
			})
		}
	}
	f.Unit = "writes/s"
	value, baseline, err := s.inTurns(ctx, writeRounds, f.Unit, overwrite(l.documents, largeDocs),
		overwrite(few, overwriteDocs))
	if err != nil {
		return f, err
	}
	f.Value = value
	f.Against(baseline)
	f.ratioOf(0.6)
	reads, err := l.readRandomly(ctx)
	if err != nil {
		return f, err
	}
	stats := l.db.Stats()
	f.Detail = fmt.Sprintf("%d writers, %d documents of %d bytes in a store of %.1f GB, each write acknowledged "+
		"after fsync; baseline: the same with %d documents, in turns; beside it %.0f point reads/s, %.0f ms to open, "+
		"%.0f MB of cache and buffers",
		writers, largeDocs, docBytes, float64(stats.DiskBytes)/1e9, overwriteDocs, reads, opened.Seconds()*1000,
		float64(stats.CacheBytes+stats.BufferSize)/1e6)
	return f, nil
}

// readRandomly returns the rate of point reads of random documents.
func (l *large) readRandomly(ctx context.Context) (perSecond float64, err error) {
	begun := time.Now()
	var left atomic.Int64
	left.Store(largeReads)
	err = together(ctx, writers, func(ctx context.Context) error {
		for left.Add(-1) >= 0 {
			n := rand.IntN(largeDocs)
			key, _ := docOf(n)
			if _, err := l.documents.Item(ctx, key, docID(n)); err != nil {
				return err
			}
		}
		return nil
	})
	return largeReads / time.Since(begun).Seconds(), err
}
