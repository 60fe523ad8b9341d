package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/pause"
)

// Memory: what a lease keeps in it while its handler is slow.

const (
	bulkyDocs   = 200
	bulkyBytes  = 1000 << 10
	bulkyTime   = 200 * time.Millisecond
	bulkyAt     = 8
	bulkyBuffer = 64 << 20
	bulkyPage   = 4 << 20 // of the store: one more may be read than the buffer has room for
	bulkySlack  = 12 << 20 // for the spare room of buffers and all else that a processor and its store have in memory
)

// memoryBound measures the heap of a processor that has read as much as it may.
func memoryBound(ctx context.Context, s *Site) (f Figure, err error) {
	a, err := s.openAisle(ctx, "memory", docstore.Options{CacheBytes: 16 << 20})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, a.db.Close()) }()
	for i := range bulkyDocs {
		if err := a.put(ctx, fmt.Sprint("key-", i), i, bulkyBytes); err != nil {
			return f, err
		}
	}
	c := newCounter(bulkyDocs)
	drain := newCounter(bulkyDocs) // reads all once, so that the store's caches are full before
	if _, err := a.work(ctx, func(_ context.Context, b *changefeed.Batch) error {
		drain.begin()
		drain.add(len(b.Changes))
		return nil
	}, changefeed.Options{}, drain.over); err != nil {
		return f, err
	}
	before := live()
	var most atomic.Int64
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for c.handled.Load() < bulkyDocs && pause.For(ctx, bulkyTime/4) == nil {
			most.Store(max(most.Load(), live()))
		}
	}()
	_, err = a.work(ctx, func(ctx context.Context, b *changefeed.Batch) error { return c.wait(ctx, b, bulkyTime) },
		changefeed.Options{Concurrency: bulkyAt, BufferBytes: bulkyBuffer}, c.over)
	if err != nil {
		return f, err
	}
	<-watching
	f.Unit, f.Value = "MB", float64(most.Load()-before)/bytesPerMB
	f.AtMost(float64(bulkyBuffer+bulkyPage+bulkySlack) / bytesPerMB)
	f.Detail = fmt.Sprintf("live heap that a backlog of %d documents of 1 MB adds, with a handler of %v, Concurrency %d and BufferBytes of %d MB: the buffer, a page of %d MB, %d MB for the rest",
		bulkyDocs, bulkyTime, bulkyAt, bulkyBuffer>>20, bulkyPage>>20, bulkySlack>>20)
	return f, nil
}
