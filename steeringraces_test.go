package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/records"
)

// afterFirst is a lease store that calls then after the first write of a lease.
type afterFirst struct {
	feed.LeaseStore
	once sync.Once
	then func()
}

// Update implements [feed.LeaseStore].
func (s *afterFirst) Update(ctx context.Context, r feed.Record) (feed.Record, error) {
	got, err := s.LeaseStore.Update(ctx, r)
	if err == nil && r.Kind == feed.KindLease {
		s.once.Do(s.then)
	}
	return got, err
}

// A pause that has succeeded is not undone by a resume that began before.
func TestAnEarlierResumeDoesNotUndoAPause(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		unit := w.admin(admin.Options{})
		pause := func() {
			operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		}
		pause()
		late := admin.Open(w.orders, &afterFirst{LeaseStore: w.leases, then: pause}, admin.Options{})
		_, err := late.Resume(t.Context(), admin.All())
		for _, lease := range w.records(feed.KindLease) {
			if !records.IsMarkedPaused(lease) {
				t.Errorf("lease %s has no mark, though the pause has succeeded; the resume: %v", lease.Token, err)
			}
		}
	})
}

// A position that is ahead of the feed changes nothing.
func TestAResetAheadOfTheFeedIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		before := w.records(feed.KindLease)[0]
		steps, err := w.admin(admin.Options{}).ResetTo(t.Context(), admin.All(), feed.At(`"99999999"`))
		if after := w.records(feed.KindLease)[0]; err == nil || after.ETag != before.ETag {
			t.Errorf("a reset ahead of the feed: %v, error %v; the lease is at %v", steps, err, after.Position)
		}
	})
}

// A start in the future would skip changes without a sign, so it is refused, also in a snapshot whose time was edited.
// A second ahead may be a difference of clocks.
func TestAResetToTheFutureIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		unit := w.admin(admin.Options{})
		late := feed.FromTime(time.Now().Add(time.Minute))
		_, err := unit.Reset(t.Context(), admin.All(), late)
		if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), "in the future") {
			t.Errorf("a reset to the next minute: %v", err)
		}
		if _, err := unit.Reset(t.Context(), admin.All(), feed.FromTime(time.Now())); err != nil {
			t.Errorf("a reset to this moment: %v", err)
		}
		s := w.snapshot(w.leases)
		s.Taken = time.Now().AddDate(10, 0, 0)
		if _, err := unit.Restore(t.Context(), s); !errors.Is(err, feed.ErrBadRequest) ||
			!strings.Contains(err.Error(), "the snapshot says that it was taken at 2010-") {
			t.Errorf("a snapshot of the future: %v", err)
		}
	})
}

// A position that is no token of the source is refused, also if the source reads it: over HTTP a blank is no header, so
// the feed begins anew.
func TestAPositionThatIsNoTokenIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		source := &hookedSource{Container: w.orders}
		source.read = func(ctx context.Context, r feed.Range, at feed.Position, o feed.ReadOptions) (feed.Page, error) {
			if at.Token == " " {
				at = feed.Position{Start: feed.FromBeginning()}
			}
			return w.orders.Read(ctx, r, at, o)
		}
		for _, token := range []string{" ", "x", "42x"} {
			_, err := admin.Open(source, w.leases, admin.Options{}).ResetTo(t.Context(), admin.All(), feed.At(token))
			if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), ": want a ") {
				t.Errorf("position %q: %v", token, err)
			}
		}
	})
}

// The leases of a unit that works are reset side by side, because each owner ends a batch first.
func TestManyLeasesAreResetAtOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning(), MinLeases: 64})
		w.fill(40)
		time.Sleep(time.Minute)
		begun := time.Now()
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("64 leases were reset in %v", took)
		}
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 40 || again != 40 {
			t.Errorf("%d items, %d again, want 40 and 40", items, again)
		}
		p.stop(t)
	})
}

// All leases share one listing. A lease that somebody writes after the listing is listed again, and reset all the same.
func TestALeaseThatIsWrittenMeanwhileIsReset(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning(), MinLeases: 8})
		w.fill(20)
		time.Sleep(time.Minute)
		p.stop(t)
		store := &hookedStore{Leases: w.leases}
		lists, written := 0, false
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			lists++
			return w.leases.List(ctx)
		}
		var mu sync.Mutex
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			mu.Lock()
			defer mu.Unlock()
			if l.Kind == feed.KindLease && !written {
				written = true
				for _, other := range w.records(feed.KindLease) {
					if other.ID == l.ID {
						if _, err := w.leases.Update(ctx, other); err != nil {
							t.Error(err)
						}
					}
				}
			}
			return w.leases.Update(ctx, l)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		steps, err := admin.Open(w.orders, store, admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		if err != nil || len(steps) != 8 || !written {
			t.Fatalf("%d steps, %v, written: %v", len(steps), err, written)
		}
		for _, step := range steps {
			if l, ok := w.record(step.Lease.ID); !ok || l.Position != step.To || !step.Done {
				t.Errorf("lease %s is at %s, want %s", step.Lease.Token, l.Position, step.To)
			}
		}
		if lists > 3 { // the first, that of the written lease, and that of the history
			t.Errorf("the leases were listed %d times", lists)
		}
	})
}

// A call that ends before all leases are reset says how many are left.
func TestAResetThatEndsEarlySaysHowManyAreLeft(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning(), MinLeases: 20})
		time.Sleep(time.Minute)
		p.wire.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		steps, err := w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		const want = "20 of 20 leases are not reset, lease "
		if !errors.Is(err, admin.ErrNotServed) || !strings.Contains(err.Error(), want) || len(steps) != 20 {
			t.Errorf("%d steps, %v", len(steps), err)
		}
		p.cancel()
		<-p.done
	})
}

// The container of a unit is known by its leases, whatever the name of the unit is.
func TestASnapshotKnowsItsContainerByAnyName(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		want := w.snapshot(w.leases)
		for _, name := range []string{"x_y_q..z", "fr..é 2", "..", "a..b_c_d"} {
			leases, err := docstore.NewLeases(t.Context(), w.container, name, w.orders)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := admin.Open(w.orders, leases, admin.Options{}).Restore(t.Context(), want); err != nil {
				t.Errorf("unit %q: %v", name, err)
			}
			if got := w.snapshot(leases).Container; got != want.Container {
				t.Errorf("unit %q reads container %q, want %q", name, got, want.Container)
			}
		}
	})
}

// A file with more than one snapshot is refused: nobody knows which is meant.
func TestTextAfterASnapshotIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		var file strings.Builder
		for range 2 {
			if _, err := w.snapshot(w.leases).WriteTo(&file); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := admin.ReadSnapshot(strings.NewReader(file.String())); !errors.Is(err, feed.ErrBadRequest) ||
			!strings.Contains(err.Error(), "text after the snapshot") {
			t.Errorf("got %v", err)
		}
	})
}

// A document that stands where the request of a pause belongs, and is none, is named with what to do.
func TestADamagedRequestIsNamed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		id := w.prefix() + ".request.pause.-FF"
		w.raw(fmt.Sprintf(`{"id":%q,"properties":[1]}`, id))
		_, err := w.admin(admin.Options{}).Pause(t.Context(), admin.All())
		if err == nil || !strings.Contains(err.Error(), "document "+id) || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("got %v, want the document, and that it is to be deleted", err)
		}
	})
}

// A handler that ignores the end of its context is reported, and its lease is paused when it has expired.
func TestAPauseOutlastsAHandlerThatIgnoresItsEnd(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		release := make(chan struct{})
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error { <-release; return nil })
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(1)
		time.Sleep(time.Minute)
		begun := time.Now()
		if _, err := w.admin(admin.Options{}).Pause(w.within(5*time.Minute), admin.All()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took < time.Minute || p.errs.find(feed.ErrHandlerStuck) == nil {
			t.Errorf("paused after %v, before the lease has expired, or nobody said %v", took, feed.ErrHandlerStuck)
		}
		close(release)
		p.stop(t)
	})
}

// A pause that its caller interrupts says what a pause whose time is over says: which leases are paused, and that the
// request stays.
func TestAnInterruptedPauseSaysWhatIsPaused(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		a, b := w.run("a", &tally{}, changefeed.Options{}), w.run("b", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		a.wire.Cut()
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, interrupt)
		u := w.admin(admin.Options{})
		steps, err := u.Pause(ctx, admin.All())
		if !errors.Is(err, admin.ErrNotServed) || !errors.Is(err, context.Canceled) ||
			!strings.Contains(err.Error(), "1 of 2 leases are paused, and the request stays") {
			t.Errorf("the pause ends with %v", err)
		}
		for _, s := range steps {
			if s.Done != (s.Lease.Owner == "b") {
				t.Errorf("the pause of the lease of %s is done: %v", s.Lease.Owner, s.Done)
			}
		}
		a.cancel()
		<-a.done
		b.stop(t)
	})
}

// A lease has a mark of an earlier pause, and an earlier owner may still work on it: it is not paused yet.
func TestALeaseIsNotPausedWhileAnEarlierOwnerMayWork(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		w.edit(func(l *feed.Record) {
			l.Fence = time.Now().Add(time.Minute)
			records.MarkPaused(l, time.Now())
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		steps, err := w.admin(admin.Options{}).Pause(ctx, admin.All())
		if !errors.Is(err, admin.ErrNotServed) || !strings.Contains(err.Error(), "0 of 1 leases are paused") ||
			len(steps) != 1 || steps[0].Done {
			t.Errorf("got %v, %+v, want that no lease is paused", err, steps)
		}
	})
}

// A pause of two leases, of which one is joined meanwhile with a lease outside of the range, is refused and ended.
func TestAPauseOfLeasesThatAreJoinedWithOthersIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(3)
		leases := w.records(feed.KindLease)
		slices.SortFunc(leases, func(a, b feed.Record) int { return strings.Compare(a.Range.Min, b.Range.Min) })
		store := &hookedStore{Leases: w.leases}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Create(ctx, l)
			if l.Kind != feed.KindRequest {
				return got, err
			}
			_, joined := w.leases.Create(ctx, records.Joint(leases[1], leases[2]))
			return got, errors.Join(err, joined, w.leases.Delete(ctx, leases[1]), w.leases.Delete(ctx, leases[2]))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		of := feed.Range{Min: leases[0].Range.Min, Max: leases[1].Range.Max}
		_, err := admin.Open(w.orders, store, admin.Options{}).Pause(ctx, admin.Of(of))
		if !errors.Is(err, feed.ErrConflict) {
			t.Errorf("the pause ends with %v, want a conflict", err)
		}
		for _, l := range w.records(feed.KindLease) {
			if records.IsMarkedPaused(l) {
				t.Errorf("lease %s is paused", l.Token)
			}
		}
	})
}
