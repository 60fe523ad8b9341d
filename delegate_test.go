package changefeed_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// 6: hung delegate: reported within the deadline; its lease is not renewed for ever.
func TestAcceptance6AHungHandlerIsReportedAndItsLeaseMovesOn(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		release := make(chan struct{})
		hung := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			<-release
			return nil
		})
		o := changefeed.Options{HandlerTimeout: 30 * time.Second, Drain: 5 * time.Second}
		a := w.run("a", hung, o)
		time.Sleep(time.Second)
		w.put("oslo", "1", 1)
		time.Sleep(31 * time.Second)
		if a.errs.find(feed.ErrHandlerTimeout) == nil {
			t.Error("not reported within the deadline")
		}
		y := &tally{}
		b := w.run("b", y, changefeed.Options{})
		time.Sleep(2 * time.Minute)
		if items, _ := y.items(); items != 1 {
			t.Errorf("the other instance got %d items, want the 1 that hangs", items)
		}
		if a.errs.find(feed.ErrHandlerStuck) == nil {
			t.Error("the stuck handler was not reported")
		}
		close(release)
		a.stop(t)
		b.stop(t)
	})
}

func TestAHandlerThatHeedsItsDeadlineIsRetriedInPlace(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		calls := 0
		y := &tally{before: func(ctx context.Context, _ *feed.Batch) error {
			if calls++; calls == 1 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}}
		var failed error
		o := changefeed.Options{HandlerTimeout: 10 * time.Second, Start: feed.FromBeginning()}
		o.Hooks.BatchDone = func(_ context.Context, d feed.BatchDone) { failed = errors.Join(failed, d.Err) }
		p := w.run("a", y, o)
		w.put("oslo", "1", 1)
		time.Sleep(20 * time.Second)
		if items, again := y.items(); items != 1 || again != 0 || len(y.attempts) != 2 || y.attempts[1] != 2 {
			t.Errorf("got %d items, %d again, attempts %v", items, again, y.attempts)
		}
		if p.errs.find(feed.ErrHandlerTimeout) == nil {
			t.Error("the deadline was not reported")
		}
		p.stop(t)
		if text := feed.ErrHandlerTimeout.Error(); failed == nil || strings.Count(failed.Error(), text) != 1 {
			t.Errorf("the call has failed with %q, want that it says %q once", failed, text)
		}
	})
}

func TestAHandlerThatPanicsIsReportedAndRetried(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		calls := 0
		y := &tally{before: func(context.Context, *feed.Batch) error {
			if calls++; calls == 1 {
				panic("unexpected")
			}
			return nil
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "1", 1)
		time.Sleep(5 * time.Second)
		p.errs.mu.Lock()
		var panicked *feed.PanicError
		if len(p.errs.errs) != 1 || !errors.As(p.errs.errs[0], &panicked) {
			t.Fatalf("reported %v, want one panic", p.errs.errs)
		}
		if panicked.Value != "unexpected" || !strings.Contains(string(panicked.Stack), "delegate_test.go") {
			t.Errorf("panic %v with stack %s", panicked.Value, panicked.Stack)
		}
		p.errs.mu.Unlock()
		if items, _ := y.items(); items != 1 {
			t.Errorf("got %d items, want the 1 that was retried", items)
		}
		p.stop(t)
	})
}

func TestAHandlerThatIgnoresItsContextAtShutdownIsBounded(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		release := make(chan struct{})
		p := w.run("a", feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			<-release
			return nil
		}), changefeed.Options{Drain: 5 * time.Second, Start: feed.FromBeginning()})
		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		start := time.Now()
		p.stop(t)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("Run returned after %v, want twice the drain of 5 s", took)
		}
		if p.errs.find(feed.ErrHandlerStuck) == nil {
			t.Error("not reported")
		}
		close(release)
		synctest.Wait()
	})
}

func TestABatchInHandIsFinishedAndCheckpointedWhenStopping(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{before: func(ctx context.Context, _ *feed.Batch) error {
			select {
			case <-time.After(3 * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		p.stop(t)
		if items, _ := y.items(); items != 1 || w.pending() != 0 {
			t.Errorf("%d items, %d pending after a graceful stop", items, w.pending())
		}
	})
}

func TestRetriesBackOffAndCountInTheLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var times []time.Time
		y := &tally{before: func(context.Context, *feed.Batch) error {
			times = append(times, time.Now())
			return errDownstream
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "1", 1)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(times); n < 8 || n > 20 {
			t.Errorf("%d attempts in 2 minutes", n)
		}
		for i, n := range y.attempts {
			if n != i+1 {
				t.Fatalf("attempts %v", y.attempts)
			}
		}
		if got := w.records(feed.KindLease)[0].Attempts; got != len(times) {
			t.Errorf("the lease counts %d failures, want %d", got, len(times))
		}
		if last := times[len(times)-1].Sub(times[len(times)-2]); last < 15*time.Second {
			t.Errorf("last pause %v", last)
		}
		p.stop(t)
	})
}

// A batch that fails holds up what comes after it in its lease, and no other lease.
func TestABatchThatFailsHoldsUpItsLeaseAlone(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(50)
		var failing atomic.Value // whichever is first
		y := &tally{before: func(_ context.Context, b *feed.Batch) error {
			failing.CompareAndSwap(nil, b.LeaseToken)
			if b.LeaseToken == failing.Load() {
				return errDownstream
			}
			return nil
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning(), MaxItems: 5})
		time.Sleep(10 * time.Minute)
		items, _ := y.items()
		if pending := w.pending(); items == 0 || pending == 0 || int64(items)+pending != 50 {
			t.Errorf("%d items, %d pending, want those of one lease of two", items, pending)
		}
		p.stop(t)
	})
}

func TestManualCheckpointsDecideWhatComesAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		first := true
		y := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			if first {
				first = false
				return b.Checkpoint(ctx)
			}
			return nil
		}}
		o := changefeed.Options{Start: feed.FromBeginning(), Manual: true, MaxItems: 1}
		w.fill(5)
		p := w.run("a", y, o)
		time.Sleep(time.Minute)
		p.stop(t)
		if n := w.pending(); n != 4 {
			t.Errorf("%d pending, want the 4 that were not checkpointed", n)
		}
		again := &tally{}
		p = w.run("b", again, o)
		time.Sleep(time.Minute)
		if items, _ := again.items(); items != 4 {
			t.Errorf("%d items came again, want 4", items)
		}
		p.stop(t)
	})
}

func TestACheckpointOfALostLeaseIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var kept *feed.Batch
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error { kept = b; return nil })
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), Manual: true})
		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		p.stop(t)
		if err := kept.Checkpoint(t.Context()); !errors.Is(err, feed.ErrLeaseLost) {
			t.Errorf("checkpoint after the end: %v", err)
		}
		p = w.run("b", feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if err := b.Checkpoint(ctx); !errors.Is(err, feed.ErrNotManual) {
				t.Errorf("checkpoint of an automatic processor: %v", err)
			}
			return nil
		}), changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.stop(t)
	})
}

// opened is a handler with a life cycle.
type opened struct {
	tally
	events []string
	fails  int
}

func (o *opened) Open(context.Context, feed.Lease) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, "open")
	if o.fails--; o.fails >= 0 {
		return errDownstream
	}
	return nil
}

func (o *opened) Close(_ context.Context, _ feed.Lease, why feed.Reason) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, "close "+string(why))
	return nil
}

func TestHandlersAreOpenedAndClosedOncePerLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := &opened{fails: 2}
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "1", 1)
		time.Sleep(10 * time.Second)
		p.stop(t)
		want := "open open open close stopped"
		if got := strings.Join(h.events, " "); got != want {
			t.Errorf("events %q, want %q", got, want)
		}
		if items, _ := h.items(); items != 1 {
			t.Errorf("got %d items", items)
		}
	})
}

func TestCheckpointsCanBeRarer(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var writes atomic.Int64
		p, err := changefeed.New(w.orders, counted{w.leases, &writes}, &tally{}, changefeed.Options{
			Instance: "a", Start: feed.FromBeginning(), MaxItems: 1, CheckpointItems: 10,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = p.Run(ctx) })
		time.Sleep(time.Second)
		before := writes.Load()
		w.fill(40)
		time.Sleep(5 * time.Second)
		if n := writes.Load() - before; n < 4 || n > 4+5 { // four checkpoints, and what following costs
			t.Errorf("%d requests for 40 batches with a checkpoint every 10 changes", n)
		}
		cancel()
		running.Wait()
		if n := w.pending(); n != 0 {
			t.Errorf("%d pending after a graceful stop", n)
		}
	})
}
