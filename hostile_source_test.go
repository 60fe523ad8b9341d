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

// The sources in this file say that ranges are gone which are not, return early, fail to
// wait, or throttle for no time.

// goneUntil is a source whose ranges are gone, though its partitions do not tell: they
// come from a cache.
func (w *world) goneUntil(when time.Time, reads *atomic.Int64) *hookedSource {
	return &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
		o feed.ReadOptions,
	) (feed.Page, error) {
		if reads.Add(1) < busyLoop && time.Now().Before(when) && !from.Start.IsNow() {
			return feed.Page{}, feed.ErrGone
		}
		return w.orders.Read(ctx, r, from, o)
	}}
}

// A range that is gone, says Read, and is whole, says Partitions, is tried with pauses.
func TestAGoneRangeThatIsWholeIsReportedAndTriedAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var reads, writes, lists atomic.Int64
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			writes.Add(1)
			return w.leases.Update(ctx, l)
		}
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			lists.Add(1)
			return w.leases.List(ctx)
		}
		y := &tally{}
		source := w.goneUntil(time.Now().Add(10*time.Minute), &reads)
		p := w.runWith(source, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "1", 1)
		time.Sleep(10 * time.Minute)
		if reads.Load() < 10 || writes.Load() > 200 || lists.Load() > 200 {
			t.Errorf("%d reads, %d lease writes and %d listings in 10 minutes", reads.Load(), writes.Load(),
				lists.Load())
		}
		if p.errs.find(feed.ErrGone) == nil {
			t.Error("a lease made no progress for 10 minutes, and that was not reported")
		}
		time.Sleep(2 * time.Minute)
		if items, again := y.items(); items != 1 || again != 0 {
			t.Errorf("%d items, %d again, when the source had come to itself", items, again)
		}
		p.stop(t)
	})
}

// Only a lease that is woken all the time gathers before it waits again: what comes after a quiet time is read at once.
func TestALeaseThatIsWokenSeldomWaitsAgainAtOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var waits, longest atomic.Int64
		var ended time.Time // of the last wait
		source := &hookedSource{Container: w.orders, wait: func(ctx context.Context, _ feed.Range,
			_ feed.Position,
		) error {
			if waits.Add(1) > 10 {
				longest.Store(max(longest.Load(), int64(time.Since(ended))))
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			ended = time.Now()
			return nil
		}}
		p := w.runWith(source, w.leases, "a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		if pause := time.Duration(longest.Load()); waits.Load() < 50 || pause > time.Millisecond {
			t.Errorf("%d waits in a minute, with %v between two of them", waits.Load(), pause)
		}
		p.stop(t)
	})
}

// Wait may return early, even always.
func TestAWaitThatReturnsEarlyMakesNoBusyLoop(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var reads atomic.Int64
		source := &hookedSource{Container: w.orders}
		source.wait = func(context.Context, feed.Range, feed.Position) error { return nil }
		source.read = func(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page,
			error,
		) {
			if reads.Add(1) > busyLoop {
				time.Sleep(time.Second)
			}
			return w.orders.Read(ctx, r, from, o)
		}
		y := &tally{}
		p := w.runWith(source, w.leases, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		if n := reads.Load(); n > 600 {
			t.Errorf("%d reads of an idle lease in a minute", n)
		}
		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		if items, _ := y.items(); items != 1 {
			t.Errorf("%d items a second after the write", items)
		}
		p.stop(t)
	})
}

// Pull waits for a source that does not know its own partitions yet.
func TestPullOfAGoneRangeThatIsWholeTriesAgainWithPauses(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(3)
		var reads atomic.Int64
		source := w.goneUntil(time.Now().Add(10*time.Second), &reads)
		n := 0
		for page, err := range changefeed.Pull(t.Context(), source, feed.FullRange(),
			feed.Position{Start: feed.FromBeginning()}, changefeed.PullOptions{}) {
			if err != nil {
				t.Error(err)
			}
			n += len(page.Changes)
		}
		if n != 3 || reads.Load() > 1000 {
			t.Errorf("%d changes after %d reads, want 3 after a few", n, reads.Load())
		}
	})
}

// An error is yielded once, as the last pair: that of Wait too.
func TestPullEndsWithTheErrorOfAWaitThatFails(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(3)
		var waits atomic.Int64
		refused := errors.New("long poll: connection refused")
		source := &hookedSource{Container: w.orders, wait: func(ctx context.Context, _ feed.Range,
			_ feed.Position,
		) error {
			if waits.Add(1) > busyLoop {
				<-ctx.Done()
			}
			return refused
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		var failed []error
		for page, err := range changefeed.Pull(ctx, source, feed.FullRange(),
			feed.Position{Start: feed.FromBeginning()}, changefeed.PullOptions{Follow: true}) {
			n += len(page.Changes)
			if err != nil {
				failed = append(failed, err)
			}
		}
		if n != 3 || len(failed) != 1 || !errors.Is(failed[0], refused) {
			t.Errorf("%d changes, then %v; want 3 and the error of Wait", n, failed)
		}
		if waits.Load() != 1 {
			t.Errorf("%d waits", waits.Load())
		}
	})
}

// A store may throttle without telling for how long.
func TestPullThatIsThrottledForNoTimePausesAllTheSame(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var reads atomic.Int64
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			if reads.Add(1) < busyLoop {
				return feed.Page{}, &feed.ThrottledError{}
			}
			return w.orders.Read(ctx, r, from, o)
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for _, err := range changefeed.Pull(ctx, source, feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
			changefeed.PullOptions{}) {
			if err != nil {
				t.Error(err)
			}
		}
		if n := reads.Load(); n < 5 || n > 1000 {
			t.Errorf("%d reads in 10 s", n)
		}
	})
}

// A source that fails is asked less and less, and one that asks for a pause gets it, from a
// processor as from a puller. So is one that cannot be waited for.
func TestASourceThatFailsIsAskedLessAndLess(t *testing.T) {
	const asked = 10 * time.Minute
	away := errors.New("away")
	for _, c := range []struct {
		name       string
		read, wait error
		most, pull int64 // reads and waits in that time
	}{
		{"Read fails", away, nil, 60, 1},
		{"Read asks for a pause", &feed.ThrottledError{After: 2 * time.Minute}, nil, 6, 10},
		{"Wait fails", nil, away, 300, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var on atomic.Bool
				var calls atomic.Int64
				source := &hookedSource{Container: w.orders}
				source.read = func(ctx context.Context, r feed.Range, from feed.Position,
					o feed.ReadOptions,
				) (feed.Page, error) {
					if tick(&calls); on.Load() && c.read != nil {
						return feed.Page{}, c.read
					}
					return w.orders.Read(ctx, r, from, o)
				}
				source.wait = func(ctx context.Context, r feed.Range, from feed.Position) error {
					if tick(&calls); on.Load() && c.wait != nil {
						return c.wait
					}
					return w.orders.Wait(ctx, r, from)
				}
				p := w.runWith(source, w.leases, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
				time.Sleep(time.Minute)
				on.Store(true)
				w.put("oslo", "a", 1) // so that the wait ends
				calls.Store(0)
				time.Sleep(asked)
				if n := calls.Load(); n == 0 || n > c.most {
					t.Errorf("a processor made %d calls in %v, want 1 to %d", n, asked, c.most)
				}
				p.stop(t)
				calls.Store(0)
				ctx, cancel := context.WithTimeout(t.Context(), asked)
				defer cancel()
				o := changefeed.PullOptions{Follow: true}
				for _, err := range changefeed.Pull(ctx, source, feed.FullRange(), feed.Position{}, o) {
					if ctx.Err() != nil || !errors.Is(err, away) {
						t.Errorf("a puller: %v", err)
					}
				}
				if n := calls.Load(); n == 0 || n > c.pull {
					t.Errorf("a puller made %d calls in %v, want 1 to %d", n, asked, c.pull)
				}
			})
		})
	}
}
