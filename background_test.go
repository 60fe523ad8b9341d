package changefeed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// leaseWriter is a lease store whose writes of leases take a second while it is slow.
func (w *world) leaseWriter(slow *atomic.Bool, written func(feed.Record)) *hookedStore {
	return &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
		if slow.Load() && l.Kind == feed.KindLease {
			time.Sleep(time.Second) // of the bubble: how slow the store is
			defer written(l)
		}
		return w.leases.Update(ctx, l)
	}}
}

// The write that a call asks for at its end comes before the lease is given up, and none comes after that: the next
// owner may have the lease by then.
func TestNothingIsWrittenAfterTheRelease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var slow, released atomic.Bool
		var late atomic.Int64
		store := w.leaseWriter(&slow, func(l feed.Record) {
			if released.Load() {
				late.Add(1)
			}
			released.Store(l.Owner == "")
		})
		w.fill(4)
		var calls atomic.Int64
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			// The calls end one after another, during writes of a second.
			time.Sleep(time.Second + time.Duration(calls.Add(1))*300*time.Millisecond)
			return nil
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), MaxItems: 1, Concurrency: 4,
			Hooks: changefeed.Hooks{Released: func(context.Context, feed.Lease, feed.Reason) {
				time.Sleep(5 * time.Second) // the lease is free, and this owner still has its goroutines
			}},
		})
		time.Sleep(900 * time.Millisecond) // all calls have begun, and none has ended
		slow.Store(true)
		p.stop(t)
		if !released.Load() || late.Load() > 0 || calls.Load() != 4 || w.pending() != 0 {
			t.Errorf("released: %t, then written %d times; %d calls, %d changes are pending", released.Load(),
				late.Load(), calls.Load(), w.pending())
		}
	})
}

// What is done after a change that fails is stored as often as CheckpointEvery says, and not each second.
func TestCheckpointEveryHoldsBehindAChangeThatFails(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var writes atomic.Int64
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			if b.Changes[0].ID == "bad" {
				return errDownstream
			}
			return nil
		})
		w.put("oslo", "bad", 1)
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), MaxItems: 1, Concurrency: 4, CheckpointEvery: 10 * time.Second,
			RetryMin: time.Hour, RetryMax: time.Hour,
			Hooks: changefeed.Hooks{StoreDone: func(_ context.Context, d feed.StoreDone) {
				if !d.Renewal {
					writes.Add(1)
				}
			}},
		})
		time.Sleep(5 * time.Second) // the failure is stored, which does not count
		writes.Store(0)
		for i := range 120 {
			w.put("bergen", "good", i)
			time.Sleep(500 * time.Millisecond) // so that something is done all the time for a minute
		}
		if n := writes.Load(); n < 3 || n > 8 {
			t.Errorf("the lease was written %d times in a minute, want about 6 times", n)
		}
		p.stop(t)
	})
}

// A write does not contain the checkpoint that was asked for during it: who asks a second time waits too.
func TestACheckpointThatIsAskedForTwiceIsStoredBeforeItsAnswer(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var slow atomic.Bool
		var stored atomic.Int64
		store := w.leaseWriter(&slow, func(feed.Record) { stored.Add(1) })
		w.fill(2)
		kept := make(chan *feed.Batch, 2)
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error { kept <- b; return nil })
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), Manual: true, MaxItems: 1, Concurrency: 2,
		})
		first, second := <-kept, <-kept
		time.Sleep(time.Second) // no write is due any more
		slow.Store(true)
		answers := make(chan error, 2)
		for _, b := range []*feed.Batch{first, second} {
			go func() { answers <- b.Checkpoint(t.Context()) }()
			time.Sleep(600 * time.Millisecond) // the second one comes during the write for the first
		}
		if err := second.Checkpoint(t.Context()); err != nil || stored.Load() < 2 {
			t.Errorf("the second checkpoint is answered with %v after %d writes, want 2", err, stored.Load())
		}
		if err := errors.Join(<-answers, <-answers); err != nil {
			t.Error(err)
		}
		slow.Store(false)
		p.stop(t)
	})
}

// The count of failures is stored soon, whatever CheckpointItems says of what is done.
func TestAFailureAmongLanesIsStoredSoon(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return errDownstream })
		w.fill(1)
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 2, CheckpointItems: 1000,
			RetryMin: time.Hour, RetryMax: time.Hour,
		})
		time.Sleep(2 * time.Second) // soon is a second
		if n := w.inLease(); n != 1 {
			t.Errorf("the lease counts %d failures, want 1", n)
		}
		p.stop(t)
	})
}

// After the last changes of a busy time, the position is stored when CheckpointEvery has passed, although nothing more
// comes.
func TestTheLastChangesAreStoredWhenTheyAreDue(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning(), CheckpointEvery: 5 * time.Second})
		time.Sleep(10 * time.Second)
		for i := range 5 {
			w.put("oslo", "first", i) // may be stored at once
			time.Sleep(100 * time.Millisecond)
			w.put("oslo", "last", i)
			time.Sleep(6 * time.Second)
			if n := w.pending(); n != 0 {
				t.Errorf("%d changes are not stored after 6 s, want that all are after 5 s", n)
			}
		}
		p.stop(t)
	})
}
