package changefeed_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inquiry"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// What an operator meets rarely: owners behind a fence, ranges that cross, partitions that were split unnoticed, and
// clocks that were set back.

// An owner that waits for the owner before obeys a pause at once. The owner before may still deliver.
func TestAPauseWaitsForTheOwnerBeforeTheLast(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		until := time.Now().Add(30 * time.Second)
		w.edit(func(l *feed.Record) { l.Owner, l.Epoch, l.Fence = "b", "epoch", until })
		time.AfterFunc(5*time.Second, func() {
			w.edit(func(l *feed.Record) {
				l.Owner, l.Epoch = "", ""
				records.MarkPaused(l, time.Now())
			})
		})
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Pause(ctx, admin.All())
		})
		if left := time.Until(until); left > 0 || left < -5*time.Second {
			t.Errorf("the pause returned %v before the end of the fence, want a moment after it", left)
		}
	})
}

// Of a pause, a range ends only the whole.
func TestARangeThatCrossesAPauseIsNotResumed(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		leases := w.records(feed.KindLease)
		paused := feed.Range{Min: leases[0].Range.Min, Max: leases[1].Range.Max}
		crossing := feed.Range{Min: leases[1].Range.Min, Max: leases[2].Range.Max}
		unit := w.admin(admin.Options{})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.Of(paused)) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := unit.Resume(ctx, admin.Of(crossing)); !errors.Is(err, feed.ErrBadRequest) ||
			!strings.Contains(err.Error(), "a part of "+paused.String()) {
			t.Errorf("a resume of %s: %v, want an error that names %s", crossing, err, paused)
		}
		for i, want := range []bool{true, true, false} {
			if l := w.records(feed.KindLease)[i]; records.IsMarkedPaused(l) != want {
				t.Errorf("lease %s is paused: %v, want %v", l.Token, !want, want)
			}
		}
	})
}

// Now is a position of a partition. The leases of the parts would begin when an instance makes them, and the changes
// until then would be skipped.
func TestALeaseOfASplitPartitionIsNotResetToNow(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		w.split(0)
		before := w.records(feed.KindLease)[0]
		_, err := w.admin(admin.Options{}).Reset(t.Context(), admin.All(), feed.FromNow())
		if !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), "its partition has been split") {
			t.Errorf("got %v", err)
		}
		if after := w.records(feed.KindLease)[0]; after.ETag != before.ETag {
			t.Errorf("the lease was written, and is at %v", after.Position)
		}
	})
}

// The number of a reset is a time of the store, whose clock may be set back. The later reset has the higher number all
// the same, and all leases of one call have the same.
func TestALaterResetHasAHigherNumber(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		lease := w.records(feed.KindLease)[1]
		before := time.Now().Add(time.Hour).UnixMilli()
		records.ResetTo(&lease, lease.Position, notes.LastReset{On: before})
		if _, err := w.leases.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		for _, l := range w.records(feed.KindLease) {
			if on := records.LastReset(l).On; on != before+1 {
				t.Errorf("the reset of lease %s has the number %d, want %d", l.Token, on, before+1)
			}
		}
	})
}

// An owner that cannot reset its lease says why, and so does the call.
func TestAResetThatTheOwnerRefusesIsNotDone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		w.edit(func(l *feed.Record) { l.Owner, l.Epoch = "b", "epoch" })
		time.AfterFunc(5*time.Second, func() {
			for _, q := range w.records(feed.KindRequest) {
				q.State, q.TTL = feed.StateRetired, notes.OutcomeTTL
				q.Properties = notes.Outcome{Result: notes.Failed, Cause: "it is not the day"}.Properties(q.Properties)
				if _, err := w.leases.Update(t.Context(), q); err != nil {
					t.Error(err)
				}
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		steps, err := w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		if err == nil || !strings.Contains(err.Error(), "it is not the day") || len(steps) != 1 || steps[0].Done {
			t.Errorf("got %+v, %v, want what the owner says", steps, err)
		}
	})
}

// serve answers all requests, as an instance does.
func (w *world) serve(o notes.Outcome) {
	w.t.Helper()
	for _, q := range w.records(feed.KindRequest) {
		q.State, q.TTL, q.Properties = feed.StateRetired, notes.OutcomeTTL, o.Properties(q.Properties)
		if _, err := w.leases.Update(w.t.Context(), q); err != nil {
			w.t.Error(err)
		}
	}
}

// Two callers ask for the same. The second looks first, and leaves the outcome to the first.
func TestAnOutcomeIsLeftToTheCallerWhoHasAsked(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := notes.Control{Action: notes.Reset, Max: "FF", To: notes.Target{Token: `"1"`}}
		var callers sync.WaitGroup
		for _, name := range []string{"first", "second"} {
			callers.Go(func() {
				if o, err := inquiry.AskAs(ctx, w.leases, c, name); err != nil || o.Result != notes.Handled {
					t.Errorf("the %s caller has %+v, %v", name, o, err)
				}
			})
			time.Sleep(time.Second) // they look at different times
		}
		// The first looks at 9.15 s and 11.15 s, the second at 10.15 s.
		time.Sleep(7500 * time.Millisecond)
		w.serve(notes.Outcome{Result: notes.Handled})
		callers.Wait()
	})
}

// Positions of a source that is no feed.Sequencer have no order, and a wrong guess would skip changes.
func TestPlacesWithoutAnOrderAreNotRestored(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(20)
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		before := w.records(feed.KindLease)[0]
		s := w.snapshot(w.leases)
		s.Leases = nil
		for i, half := range feed.FullRange().Cut(2) {
			s.Leases = append(s.Leases, admin.Place{Range: half.String(), Token: []string{`"9"`, `"3"`}[i]})
		}
		unit := admin.Open(struct{ feed.Source }{w.orders}, w.leases, admin.Options{})
		if _, err := unit.Restore(t.Context(), s); !errors.Is(err, feed.ErrBadRequest) ||
			!strings.Contains(err.Error(), "which of two positions") {
			t.Errorf("got %v", err)
		}
		if after := w.records(feed.KindLease)[0]; after.ETag != before.ETag {
			t.Errorf("the lease was written, and is at %v", after.Position)
		}
	})
}

// After a crash an operator waits for as long as the lease says, and not for a default that is longer.
func TestALeaseWithAShortExpirationIsResetSoon(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{
			Expiration: 15 * time.Second, Renew: 5 * time.Second, Acquire: 3 * time.Second,
		})
		time.Sleep(time.Minute)
		p.kill(t)
		begun := time.Now()
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		if spent := time.Since(begun); spent > 20*time.Second {
			t.Errorf("the lease was reset after %v, want soon after its 15 s", spent)
		}
	})
}

// An owner that ends its batch for a request does not serve it any more when another one has replaced it.
func TestAReplacedResetIsNotCarriedOut(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		entered := make(chan struct{}, 10)
		y := &tally{before: func(context.Context, *feed.Batch) error {
			entered <- struct{}{}
			time.Sleep(5 * time.Second)
			return nil
		}}
		var resets []string
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Update(ctx, l)
			if by := records.LastReset(l).Caller; l.Kind == feed.KindLease && l.Free() && by != "" && err == nil {
				resets = append(resets, by+" at "+l.Position.Token)
			}
			return got, err
		}
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "one", 1)
		<-entered
		q := w.asks(feed.At(`"0"`))
		time.Sleep(2 * time.Second)
		c := notes.Control{Action: notes.Reset, Max: "FF", To: notes.Target{Token: `"1"`}}
		q.Properties = notes.Set(c.Anew(q.Properties), notes.CallerProperty, "another")
		if _, err := w.leases.Update(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.stop(t)
		if items, again := y.items(); items != 1 || again != 0 || strings.Join(resets[:1], "") != `another at "1"` {
			t.Errorf("%d items, %d again, resets %v, want the one, and the second request only", items, again, resets)
		}
	})
}
