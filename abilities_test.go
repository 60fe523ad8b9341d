package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// without is a container that has abilities with other servers only.
type without struct{ *docstore.Container }

func (s without) Wait(context.Context, feed.Range, feed.Position) error {
	return fmt.Errorf("wait: %w", errors.ErrUnsupported)
}

func (s without) Pending(context.Context, feed.Range, feed.Position, feed.ReadOptions) (feed.Backlog, error) {
	return feed.Backlog{}, fmt.Errorf("count: %w", errors.ErrUnsupported)
}

// A source whose server cannot hold reads is polled, as one that is no Waiter, and nothing is reported.
func TestASourceThatCannotWaitIsPolled(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		var reads, waits atomic.Int64
		o := changefeed.Options{Start: feed.FromBeginning(), Poll: 10 * time.Second}
		o.Hooks.ReadDone = func(context.Context, feed.ReadDone) { reads.Add(1) }
		o.Hooks.WaitDone = func(context.Context, feed.WaitDone) { waits.Add(1) }
		p := w.runWith(without{w.orders}, w.leases, "a", y, o)
		time.Sleep(time.Minute)
		reads.Store(0)
		time.Sleep(10 * time.Minute)
		if n := reads.Load(); n < 100 || n > 140 || waits.Load() != 0 {
			t.Errorf("%d reads of two leases in ten minutes, want one each 10 s; %d waits", n, waits.Load())
		}
		w.fill(10)
		time.Sleep(15 * time.Second)
		if items, _ := y.items(); items != 10 || p.errs.find(errors.ErrUnsupported) != nil {
			t.Errorf("%d of 10 items after 15 s; reported: %v", items, p.errs.find(errors.ErrUnsupported))
		}
		p.stop(t)
	})
}

// Whoever reads without leases polls it, too.
func TestAPullFromASourceThatCannotWaitGoesOn(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(20*time.Second, func() { w.fill(10) })
		items := 0
		o := changefeed.PullOptions{Follow: true, Poll: 5 * time.Second}
		for page, err := range changefeed.Pull(ctx, without{w.orders}, feed.FullRange(),
			feed.Position{Start: feed.FromBeginning()}, o) {
			if err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
			items += len(page.Changes)
		}
		if items != 10 {
			t.Errorf("%d of 10 items", items)
		}
	})
}

// A lag is a distance where the source cannot count, and a new unit does not know what it passes over.
func TestLagsOfASourceThatCannotCountAreDistances(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(7)
		said, _ := w.begins(without{w.orders}, "new", changefeed.Options{})
		if len(said) != 1 || said[0].Passed != nil {
			t.Errorf("a new unit says %+v, want that what it passes over is not known", said)
		}
		p := w.runWith(without{w.orders}, w.leases, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.stop(t)
		w.fill(30)
		lags, err := changefeed.Estimate(t.Context(), without{w.orders}, w.leases)
		if err != nil || len(lags) != 2 {
			t.Fatalf("%d lags, %v", len(lags), err)
		}
		for _, l := range lags {
			if l.Err != nil || l.Pending == 0 {
				t.Errorf("the lag of %s is %+v, want a distance", l.Lease.Token, l)
			}
		}
	})
}
