package changefeed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// The page is there, without an error, but it comes when the processor has been told to
// stop.
func TestAPageThatComesAfterTheStopIsNotHandedOut(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var late atomic.Bool
		reading := make(chan struct{}, 1)
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			if late.Load() {
				reading <- struct{}{}
				<-ctx.Done()
			}
			return w.orders.Read(context.WithoutCancel(ctx), r, from, o)
		}}
		y := &tally{}
		p := w.runWith(source, w.leases, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(5 * time.Second)
		late.Store(true)
		w.put("oslo", "1", 1)
		<-reading
		p.stop(t)
		if items, _ := y.items(); items != 0 || w.pending() != 1 {
			t.Errorf("%d items handed out after the stop, %d pending", items, w.pending())
		}
	})
}

// mergesBack is a source whose first partition is merged again as soon as somebody has
// seen, once it is on, that it was split.
type mergesBack struct {
	*hookedSource
	w    *world
	seen atomic.Int64
	on   atomic.Bool
}

func (s *mergesBack) Partitions(ctx context.Context) ([]feed.Partition, error) {
	partitions, err := s.hookedSource.Partitions(ctx)
	if s.on.Load() && s.seen.Add(1) == 1 {
		s.w.merge(0)
	}
	return partitions, err
}

// A split is seen, and before the lease says that it is splitting its partitions are one
// again: the lease goes on.
func TestALeaseWhoseSplitIsUndoneGoesOn(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		source := &mergesBack{hookedSource: &hookedSource{Container: w.orders}, w: w}
		p := w.runWith(source, w.leases, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(20)
		time.Sleep(30 * time.Second)
		source.on.Store(true)
		w.split(0)
		w.fill(20)
		time.Sleep(2 * time.Minute)
		if source.seen.Load() < 2 {
			t.Fatalf("asked for its partitions %d times: the test shows nothing", source.seen.Load())
		}
		if items, again := y.items(); items != 20 || again != 20 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want both versions of 20", items, again, w.pending())
		}
		if l := w.records(feed.KindLease); len(l) != 1 || l[0].State != feed.StateLive {
			t.Errorf("leases %+v, want the one that there was", l)
		}
		p.stop(t)
	})
}

// A source that says that a range is gone, and does not know of a split, is asked again by
// the same owner: nothing is closed, and nothing moves.
func TestALeaseIsKeptWhileItsSourceDoesNotKnowItsPartitions(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var reads, released atomic.Int64
		var gone atomic.Bool
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			if gone.Load() && reads.Add(1) < busyLoop {
				return feed.Page{}, feed.ErrGone
			}
			return w.orders.Read(ctx, r, from, o)
		}}
		y := &tally{}
		p, err := changefeed.New(source, w.leases, y, changefeed.Options{
			Instance: "a", Start: feed.FromBeginning(), Hooks: changefeed.Hooks{
				Released: func(context.Context, feed.Lease, feed.Reason) { released.Add(1) },
				Error:    func(context.Context, *feed.Error) {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(10 * time.Second)
		gone.Store(true)
		w.put("oslo", "1", 1)
		time.Sleep(5 * time.Minute)
		gone.Store(false)
		time.Sleep(time.Minute)
		if items, _ := y.items(); items != 1 || released.Load() != 0 || reads.Load() < 10 {
			t.Errorf("%d items, the lease given up %d times in %d reads", items, released.Load(), reads.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A source that says that a range is gone, and cannot list its partitions, says nothing of a split: the lease is kept.
func TestALeaseIsKeptWhileItsPartitionsCannotBeListed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var released atomic.Int64
		var gone atomic.Bool
		source := &strayed{hookedSource: &hookedSource{Container: w.orders}, partitions: func(context.Context) error {
			if gone.Load() {
				return errCutOff
			}
			return nil
		}}
		source.read = func(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page,
			error,
		) {
			if gone.Load() {
				return feed.Page{}, feed.ErrGone
			}
			return w.orders.Read(ctx, r, from, o)
		}
		y := &tally{}
		p := w.runWith(source, w.leases, "a", y, changefeed.Options{
			Start: feed.FromBeginning(), Hooks: changefeed.Hooks{Released: func(context.Context, feed.Lease,
				feed.Reason,
			) {
				released.Add(1)
			}},
		})
		time.Sleep(10 * time.Second)
		gone.Store(true)
		w.put("oslo", "1", 1)
		time.Sleep(5 * time.Minute)
		gone.Store(false)
		time.Sleep(time.Minute)
		if items, _ := y.items(); items != 1 || released.Load() != 0 || p.errs.find(feed.ErrGone) == nil {
			t.Errorf("%d items, the lease given up %d times; reported %v", items, released.Load(),
				p.errs.find(feed.ErrGone))
		}
		p.stop(t)
	})
}

// A lease that is free again, because its split was undone, does not wait for the next round.
func TestALeaseWhoseSplitIsUndoneIsTakenAtOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var rounds, released, acquired atomic.Int64 // the times in milliseconds
		source := &mergesBack{hookedSource: &hookedSource{Container: w.orders}, w: w}
		p := w.runWith(source, w.leases, "a", &tally{}, changefeed.Options{
			Acquire: 5 * time.Minute,
			Hooks: changefeed.Hooks{
				Round: func(context.Context, feed.Round) { rounds.Add(1) },
				Released: func(context.Context, feed.Lease, feed.Reason) {
					released.CompareAndSwap(0, time.Now().UnixMilli())
				},
				Acquired: func(context.Context, feed.Lease) { acquired.Store(time.Now().UnixMilli()) },
			},
		})
		time.Sleep(time.Minute)
		last := rounds.Load()
		w.until(10*time.Minute, "a round", func() bool { return rounds.Load() > last }) // the next one is a while away
		time.Sleep(10 * time.Second)
		source.on.Store(true)
		w.split(0)
		w.fill(20)
		w.until(time.Minute, "released", func() bool { return released.Load() > 0 })
		time.Sleep(10 * time.Second)
		if took := time.Duration(acquired.Load()-released.Load()) * time.Millisecond; took < 0 || took > time.Second {
			t.Errorf("taken %v after it was released, want at once", took)
		}
		p.stop(t)
	})
}
