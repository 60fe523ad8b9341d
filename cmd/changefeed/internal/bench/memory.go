package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// Memory: how much a lease holds while its handler is slow.

const (
	bulkyDocs   = 200
	bulkyBytes  = 1000 << 10
	bulkyTime   = 200 * time.Millisecond
	bulkyAt     = 8
	bulkyBuffer = 64 << 20
	bulkyPage   = 4 << 20 // of the store: a lease may read a page beyond its buffer
	bulkyInHand = bulkyAt * bulkyBytes
	bulkySlack  = 12 << 20 // for spare capacity of buffers, and other memory of a processor and its store
)

// memoryBound measures the heap of a processor that has read as much as allowed.
func memoryBound(ctx context.Context, s *Site) (f Figure, err error) {
	a, err := s.openAisle(ctx, "memory", docstore.Options{CacheBytes: 16 << 20})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, a.db.Close()) }()
	for i := range bulkyDocs {
		if err := a.writeDocument(ctx, fmt.Sprint("key-", i), i, bulkyBytes); err != nil {
			return f, err
		}
	}
	work := func(each time.Duration, o changefeed.Options) error {
		c := newCounter(bulkyDocs)
		_, err := a.runUnit(ctx, func(ctx context.Context, b *feed.Batch) error {
			return c.waitForEach(ctx, b, each)
		}, o, c.over)
		return err
	}
	if err := work(0, changefeed.Options{}); err != nil { // to fill the store's caches
		return f, err
	}
	before := live()
	var most int64
	watched, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for pause.For(watched, bulkyTime/4) == nil {
			most = max(most, live())
		}
	})
	err = work(bulkyTime, changefeed.Options{Concurrency: bulkyAt, BufferBytes: bulkyBuffer})
	unwatch()
	watching.Wait()
	if err != nil {
		return f, err
	}
	f.Unit, f.Value = "MB", float64(most-before)/bytesPerMB
	f.AtMost(math.Round(float64(bulkyBuffer+bulkyPage+bulkyInHand+bulkySlack) / bytesPerMB))
	f.Detail = fmt.Sprintf("live heap that a backlog of %d documents of 1 MB adds, with a handler of %v, Concurrency "+
		"%d and BufferBytes of %d MB: the buffer, a page of %d MB, %d MB in hand, %d MB for the rest",
		bulkyDocs, bulkyTime, bulkyAt, bulkyBuffer>>20, bulkyPage>>20, bulkyInHand>>20, bulkySlack>>20)
	return f, nil
}
