package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// A key whose handler hangs, with more pending changes than fit into memory. The other keys must go on, and this key
// must go on when its handler does.

const (
	stuckName    = "stuck" // the key whose handler hangs
	stuckDocs    = 1_000_000
	stuckRounds  = 3
	healthyKeys  = 10_000
	healthyDocs  = 100_000
	healthyFirst = 5000 // the first changes are not timed: the buffer fills, and after a second the key is set aside
	healthyTime  = 3 * time.Millisecond
	healthyAt    = 32 // batches at the same time
	healthyLoss  = 0.1
	stuckCache   = 16 << 20            // of each store
	stuckHeap    = stuckCache + 16<<20 // for the full cache, the buffer, pages and the store's own memory
	heapWatch    = 250 * time.Millisecond
	recoveryTime = 5 * time.Minute
)

// stuckKey measures how much a hanging handler of a single key slows down the other keys, and checks that the key
// later receives all of its changes.
func stuckKey(ctx context.Context, s *Site) (f Figure, err error) {
	with, err := s.openAisle(ctx, "stuck", docstore.Options{CacheBytes: stuckCache})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, with.db.Close()) }()
	without, err := s.openAisle(ctx, "healthy", docstore.Options{CacheBytes: stuckCache})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, without.db.Close()) }()
	s.reportProgress("writing %d changes of one key among %d of others", stuckDocs, healthyDocs)
	if err := with.fillFast(func() error { return with.fillStuck(ctx, stuckDocs) }); err != nil {
		return f, err
	}
	if err := without.fillFast(func() error { return without.fillStuck(ctx, 0) }); err != nil {
		return f, err
	}
	rate := func(a *aisle) (float64, error) {
		c := newCounter(healthyDocs)
		c.first = healthyFirst
		_, err := a.runUnit(ctx, c.besideStuckKey(hang), changefeed.Options{Concurrency: healthyAt}, c.over)
		return c.perSecond(), err
	}
	f.Unit = "changes/s"
	value, healthy, err := s.inTurns(ctx, stuckRounds, f.Unit,
		func() (float64, error) { return rate(with) },
		func() (float64, error) { return rate(without) })
	if err != nil {
		return f, err
	}
	f.Value = value
	f.Against(healthy)
	f.ratioOf(1 - healthyLoss)
	r, err := with.recoverStuckKey(ctx)
	if err != nil {
		return f, err
	}
	heap := float64(r.heap) / bytesPerMB
	f.Target += fmt.Sprintf(", ≤ %d MB", stuckHeap>>20)
	f.OK = f.OK && r.heap <= stuckHeap
	f.Detail = fmt.Sprintf("%d changes of %d keys with a handler of %v, Concurrency %d, among %d of one key whose "+
		"handler hangs; baseline: without that key. The backlog adds %.1f MB of live heap at most. When the handler "+
		"goes on, all changes of the key come once and in order, in %.0f s",
		healthyDocs, healthyKeys, healthyTime, healthyAt, stuckDocs, heap, r.took.Seconds())
	return f, nil
}

// fillStuck writes the changes of the healthy keys and, evenly distributed among them, n changes of the key that
// hangs. The first of all changes belongs to that key.
func (a *aisle) fillStuck(ctx context.Context, n int) error {
	if n > 0 {
		if err := a.writeDocument(ctx, stuckName, 0, smallBytes); err != nil {
			return err
		}
	}
	each := n / healthyDocs
	var next atomic.Int64
	return together(ctx, writers, func(ctx context.Context) error {
		for i := int(next.Add(1)) - 1; i < healthyDocs; i = int(next.Add(1)) - 1 {
			for j := max(1, i*each); j < (i+1)*each; j++ {
				if err := a.writeDocument(ctx, stuckName, j, smallBytes); err != nil {
					return err
				}
			}
			if err := a.writeDocument(ctx, "key-"+strconv.Itoa(i%healthyKeys), stuckDocs+i, smallBytes); err != nil {
				return err
			}
		}
		return nil
	})
}

// besideStuckKey returns a handler that takes some time for each change. beside passes the changes of the stuck key to
// another handler.
func (c *counter) besideStuckKey(stuck feed.HandlerFunc) feed.HandlerFunc {
	return func(ctx context.Context, b *feed.Batch) error {
		if b.Changes[0].PartitionKey == feed.Key(stuckName) {
			return stuck(ctx, b)
		}
		return c.waitForEach(ctx, b, healthyTime)
	}
}

// hang is a handler that does not return before its context ends.
func hang(ctx context.Context, _ *feed.Batch) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// recovery records how the key continues when its handler goes on.
type recovery struct {
	released chan struct{} // the handler hangs until this is closed
	over     chan struct{} // closed some time after the key's last change was handled
	heap     int64         // largest increase, before and after the release
	took     time.Duration

	seen  []bool // by number
	count int
	last  int64 // LSN
}

// recoverStuckKey handles the feed with a handler that hangs until all healthy changes are handled, and then goes on.
func (a *aisle) recoverStuckKey(ctx context.Context) (*recovery, error) {
	r := &recovery{released: make(chan struct{}), over: make(chan struct{}), seen: make([]bool, stuckDocs)}
	c := newCounter(healthyDocs)
	done := make(chan struct{})
	stuck := func(ctx context.Context, b *feed.Batch) error {
		select {
		case <-r.released:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := r.takeChanges(b.Changes); err != nil {
			return err
		}
		if r.count == stuckDocs {
			close(done)
		}
		return nil
	}
	before := live()
	watched, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for pause.For(watched, heapWatch) == nil {
			r.heap = max(r.heap, live()-before)
		}
	})
	watching.Go(func() { r.releaseStuckKey(ctx, c.over, done) })
	said, err := a.runUnit(ctx, c.besideStuckKey(stuck), changefeed.Options{Concurrency: healthyAt}, r.over)
	unwatch()
	watching.Wait()
	if err == nil && (r.count != stuckDocs || len(said.Leases) != 1 || said.Leases[0].SetAside != 0) {
		err = fmt.Errorf("%d changes of the key have come, want %d, and the status is %+v", r.count, stuckDocs, said)
	}
	return r, err
}

// releaseStuckKey lets the handler go on when the healthy changes are handled. The work ends some time after the key's
// last change, so a change that comes twice would be noticed.
func (r *recovery) releaseStuckKey(ctx context.Context, healthy, done <-chan struct{}) {
	defer close(r.over)
	select {
	case <-healthy:
	case <-ctx.Done():
		return
	}
	begun := time.Now()
	close(r.released)
	limit := time.NewTimer(recoveryTime)
	defer limit.Stop()
	select {
	case <-done:
		r.took = time.Since(begun)
		_ = pause.For(ctx, time.Second) // or until ctx ends, which work notices too
	case <-limit.C:
	case <-ctx.Done():
	}
}

// takeChanges records changes of the key. Only a single call runs at a time.
func (r *recovery) takeChanges(changes []feed.Change) error {
	for i := range changes {
		c := &changes[i]
		n, err := strconv.Atoi(strings.TrimPrefix(c.ID, docID(0)[:4]))
		switch {
		case err != nil:
			return err
		case c.LSN <= r.last || r.seen[n]:
			return fmt.Errorf("change %s with LSN %d comes after LSN %d, or twice", c.ID, c.LSN, r.last)
		}
		r.seen[n], r.last = true, c.LSN
		r.count++
	}
	return nil
}
