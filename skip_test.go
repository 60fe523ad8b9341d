package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inquiry"
	"github.com/millrace/changefeed/internal/notes"
)

// bad is a handler that fails on each batch with an item of the name bad, until it is repaired.
type bad struct {
	tally
	repaired atomic.Bool
	slow     atomic.Bool   // each call takes 10 s, after it has sent to entered
	entered  chan struct{} // with room for 100 calls
}

func newBad() *bad {
	h := &bad{entered: make(chan struct{}, 100)}
	h.before = func(_ context.Context, b *feed.Batch) error {
		if h.slow.Load() {
			h.entered <- struct{}{}
			time.Sleep(10 * time.Second)
		}
		if !h.repaired.Load() && slices.ContainsFunc(b.Changes, func(c feed.Change) bool { return c.ID == "bad" }) {
			return errors.New("the handler does not like it")
		}
		return nil
	}
	return h
}

// failing returns what fails of the only lease.
func (w *world) failing() []admin.Failing {
	w.t.Helper()
	all, err := w.admin(admin.Options{}).Failing(w.t.Context(), admin.All())
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// onlyBad returns the failing changes with the name bad, which must be one.
func (w *world) onlyBad() admin.Failing {
	w.t.Helper()
	var found []admin.Failing
	for _, f := range w.failing() {
		for _, c := range f.Changes {
			if c.ID == "bad" {
				f.Changes = []admin.FailedChange{c}
				found = append(found, f)
			}
		}
	}
	if len(found) != 1 {
		w.t.Fatalf("failing: %+v, want one change with the name bad", found)
	}
	return found[0]
}

// failAndStop has an instance fail at the change with the name bad, and stops the instance.
func (w *world) failAndStop() (h *bad, failing admin.Failing) {
	w.t.Helper()
	h = newBad()
	w.put("oslo", "bad", 1)
	p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
	time.Sleep(time.Minute)
	failing = w.onlyBad()
	p.stop(w.t)
	return h, failing
}

// skip has changes skipped by an operator who waits for a minute.
func (w *world) skip(f admin.Failing) (admin.Failing, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	return w.admin(admin.Options{By: "ada", Reason: "INC-1"}).Skip(ctx, f)
}

// failureOptions are options under which a change fails in different places of the engine.
func failureOptions() map[string]changefeed.Options {
	return map[string]changefeed.Options{
		"whole batches": {},
		"many at once":  {Concurrency: 4},
		"attempts":      {OnFailure: changefeed.FailurePolicy{MaxAttempts: 3}},
		"a small buffer": {
			Concurrency: 2, MaxItems: 2, BufferItems: 4, OnFailure: changefeed.FailurePolicy{MaxAttempts: 3},
		},
		"dead letters that fail": {OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: &letterBox{
			refuse: func(feed.DeadLetter) error { return errors.New("full") },
		}}},
	}
}

// With default options a lease says which changes fail, for operators alone: the next owner goes on without the note,
// and the note goes when the changes are done.
func TestALeaseNamesWhatFailsOnlyWhileItFails(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(3)
		w.put("oslo", "bad", 1)
		h, o := newBad(), changefeed.Options{Start: feed.FromBeginning(), Expiration: time.Minute}
		lease := func() feed.Record { return w.records(feed.KindLease)[0] }
		p := w.run("a", h, o)
		time.Sleep(30 * time.Second)
		failing := lease().Properties[notes.FailingProperty]
		if want := `"tried":[{"from":1,"to":4,`; !strings.Contains(failing, want) {
			t.Errorf("the lease fails at %q, want %s", failing, want)
		}
		p.stop(t)

		h.repaired.Store(true)
		began := make(chan struct{})
		h.before = func(ctx context.Context, _ *feed.Batch) error {
			close(began)
			<-ctx.Done()
			return ctx.Err()
		}
		p = w.run("b", h, o)
		<-began
		time.Sleep(o.Expiration) // the lease is renewed while the batch is in the handler
		if l := lease(); l.Owner != "b" || l.Properties[notes.FailingProperty] != failing {
			t.Errorf("the lease of %s fails at %q, want b and the note of the last owner", l.Owner, failing)
		}
		p.stop(t)

		h.before = nil
		p = w.run("c", h, o)
		time.Sleep(10 * time.Second)
		p.stop(t)
		if l := lease(); w.pending() != 0 || l.Properties[notes.FailingProperty] != "" {
			t.Errorf("%d changes pending, the lease fails at %q, want nothing", w.pending(), l.Properties)
		}
		for _, name := range []string{notes.DoneProperty, notes.SkipsProperty} {
			if text := lease().Properties[name]; text != "" {
				t.Errorf("%s is %q, want no note", name, text)
			}
		}
	})
}

// The other changes of a batch have failed as often after a skip as before.
func TestWhatIsNotSkippedKeepsItsFailures(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(3)
		w.put("oslo", "bad", 1)
		h, o := newBad(), changefeed.Options{Start: feed.FromBeginning()}
		p := w.run("a", h, o)
		time.Sleep(30 * time.Second)
		p.stop(t)
		before := w.failing()[0]
		bad := w.onlyBad()
		if len(before.Changes) != 4 || before.Attempts < 2 {
			t.Fatalf("failing %+v: the test shows nothing", before)
		}
		if _, err := w.skip(bad); err != nil {
			t.Fatal(err)
		}
		after := w.failing()
		if len(after) != 1 || len(after[0].Changes) != 3 || after[0].Attempts != before.Attempts ||
			!after[0].Since.Equal(before.Since) {
			t.Errorf("failing %+v after the skip, want the others as before, in %+v", after, before)
		}
		p = w.run("b", h, o)
		time.Sleep(10 * time.Second)
		p.stop(t)
		if items, again := h.items(); items != 3 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want the three others", items, again, w.pending())
		}
	})
}

// A skipped change does not fail any more, so a second skip is refused, also before an instance has read the lease.
func TestASkippedChangeIsNotSkippedAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "bad", 1)
		p := w.run("a", newBad(), changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.stop(t)
		f := w.onlyBad()
		if _, err := w.skip(f); err != nil {
			t.Fatal(err)
		}
		unit := w.admin(admin.Options{})
		if all, err := unit.Failing(t.Context(), admin.All()); err != nil || len(all) > 0 {
			t.Errorf("failing after the skip: %+v, %v", all, err)
		}
		if _, err := w.skip(f); !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), "skipped already") {
			t.Errorf("a second skip: %v, want a conflict that says why", err)
		}
	})
}

// The change that is named is skipped, and no other: neither the others of its batch nor the later ones of its key.
func TestASkipSkipsWhatItNamesAndNothingElse(t *testing.T) {
	for name, o := range failureOptions() {
		for _, running := range []bool{true, false} {
			inWorld(t, 1, func(t *testing.T, w *world) {
				h := newBad()
				o.Start = feed.FromBeginning()
				w.fill(5)
				w.put("oslo", "before", 1)
				lsn := w.put("oslo", "bad", 1)
				w.put("oslo", "after", 1)
				w.put("rome", "other", 1)
				p := w.run("a", h, o)
				time.Sleep(2 * time.Minute)
				w.put("oslo", "later", 1)
				time.Sleep(time.Minute)
				if !running {
					p.stop(t)
				}
				f := w.onlyBad()
				if c := f.Changes[0]; c.LSN != lsn || c.Key != feed.Key("oslo") || f.Since.IsZero() || f.Attempts == 0 {
					t.Errorf("%s: failing %+v, want LSN %d of oslo", name, f, lsn)
				}
				begun := time.Now()
				done, err := w.skip(f)
				if spent := time.Since(begun); err != nil || !done.Done || spent > 15*time.Second {
					t.Fatalf("%s, running %v: %+v, %v after %v", name, running, done, err, spent)
				}
				if !running {
					p = w.run("b", h, o)
				}
				time.Sleep(2 * time.Minute)
				if items, again := h.items(); items != 9 || again != 0 || w.pending() != 0 {
					t.Errorf("%s, running %v: %d items, %d again, %d pending, want 9, 0 and 0", name, running, items, again,
						w.pending())
				}
				if n := h.times(`["oslo"]bad`); n != 0 || !slices.IsSorted(h.lsns("oslo")) {
					t.Errorf("%s: the skipped change came %d times; oslo: %v", name, n, h.lsns("oslo"))
				}
				if lease := w.records(feed.KindLease)[0]; lease.Properties[notes.SkipsProperty] != "" {
					t.Errorf("%s: the lease still says %s", name, lease.Properties[notes.SkipsProperty])
				}
				p.stop(t)
				// The name is for one version of the item.
				h.repaired.Store(true)
				w.put("oslo", "bad", 2)
				p = w.run("c", h, o)
				time.Sleep(time.Minute)
				if n := h.times(`["oslo"]bad`); n != 1 {
					t.Errorf("%s: the next version came %d times, want once", name, n)
				}
				p.stop(t)
			})
		}
	}
}

// lsns are the LSNs of the changes of a key, as they came.
func (y *tally) lsns(city string) (lsns []int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, c := range y.changes {
		if c.PartitionKey == feed.Key(city) {
			lsns = append(lsns, c.LSN)
		}
	}
	return lsns
}

// A batch that fails as a whole is skipped as a whole, and what comes after it is not.
func TestABatchIsSkippedAsAWhole(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := newBad()
		o := changefeed.Options{Start: feed.FromBeginning(), MaxItems: 4}
		w.fill(3)
		w.put("oslo", "bad", 1)
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		w.fill(2) // newer versions of two items of the batch
		all := w.failing()
		if len(all) != 1 || len(all[0].Changes) != 2 { // the others were replaced
			t.Fatalf("failing %+v, want one batch with two changes that are left", all)
		}
		if _, err := w.skip(all[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if items, again := h.items(); items != 2 || again != 0 || len(w.failing()) != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, failing %v", items, again, w.pending(), w.failing())
		}
		p.stop(t)
		entries, err := w.admin(admin.Options{}).History(t.Context())
		if err != nil || len(entries) != 1 {
			t.Fatalf("history %+v, %v, want one line", entries, err)
		}
		if e := entries[0]; e.Action != admin.ActionSkip || e.By != "ada" || e.Reason != "INC-1" || e.Count != 2 ||
			e.Done != 2 || !slices.Equal(e.Changes, all[0].Changes) {
			t.Errorf("the line is %+v, want the changes %+v", e, all[0].Changes)
		}
	})
}

// A change that the handler has handled meanwhile is not skipped, and the caller hears that.
func TestAChangeThatIsHandledMeanwhileIsNotSkipped(t *testing.T) {
	for _, running := range []bool{true, false} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			h := newBad()
			o := changefeed.Options{Start: feed.FromBeginning()}
			w.put("oslo", "bad", 1)
			p := w.run("a", h, o)
			time.Sleep(time.Minute)
			f := w.onlyBad()
			h.repaired.Store(true)
			time.Sleep(2 * time.Minute)
			if !running {
				p.stop(t)
			}
			_, err := w.skip(f)
			if !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), "nothing was skipped") ||
				!strings.Contains(err.Error(), "has passed it") {
				t.Errorf("running %v: got %v", running, err)
			}
			never := f
			never.Changes = []admin.FailedChange{{ID: "bad", Key: feed.Key("oslo"), LSN: f.Changes[0].LSN + 10}}
			_, err = w.skip(never)
			if !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), "does not fail") {
				t.Errorf("a change that was never tried: %v", err)
			}
			if _, err := w.skip(admin.Failing{Lease: f.Lease}); !errors.Is(err, feed.ErrBadRequest) {
				t.Errorf("no change: %v", err)
			}
			if entries, err := w.admin(admin.Options{}).History(t.Context()); err != nil || len(entries) != 0 {
				t.Errorf("history %+v, %v, want no line", entries, err)
			}
			if running {
				p.stop(t)
			}
		})
	}
}

// The handler has the batch when the owner is asked, and handles it: the request is refused, and the change counts as
// handled.
func TestABatchInTheHandlerIsFinishedBeforeASkip(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var calls atomic.Int32
		y := &tally{before: func(context.Context, *feed.Batch) error {
			if calls.Add(1) == 1 {
				return errors.New("no")
			}
			time.Sleep(8 * time.Second)
			return nil
		}}
		w.put("oslo", "bad", 1)
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(4 * time.Second)
		f := w.onlyBad()
		if calls.Load() != 2 {
			t.Fatalf("%d calls, want the second to be under way", calls.Load())
		}
		_, err := w.skip(f)
		if !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), "nothing was skipped") {
			t.Errorf("got %v", err)
		}
		if items, again := y.items(); items != 1 || again != 0 {
			t.Errorf("%d items, %d again, want the change handled once", items, again)
		}
		entries, err := w.admin(admin.Options{}).History(t.Context())
		if err != nil || len(entries) != 1 || entries[0].Done != 0 || entries[0].Failed == "" {
			t.Errorf("history %+v, %v, want one line with the refusal", entries, err)
		}
		p.stop(t)
	})
}

// The owner dies while it is asked. The next one skips the change, once.
func TestASkipOutlivesTheOwner(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := newBad()
		o := changefeed.Options{Start: feed.FromBeginning()}
		w.put("oslo", "bad", 1)
		w.put("oslo", "next", 1)
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		f := w.onlyBad()
		p.wire.Cut()
		done := make(chan error, 1)
		go func() {
			_, err := w.admin(admin.Options{}).Skip(t.Context(), f)
			done <- err
		}()
		time.Sleep(time.Second)
		q := w.run("b", h, o)
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if items, again := h.items(); items != 1 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want next alone", items, again, w.pending())
		}
		p.cancel()
		<-p.done
		q.stop(t)
	})
}

// unfreed is a lease store that refuses the first write that frees a lease, though nobody has written the lease.
type unfreed struct {
	*docstore.Leases
	refused atomic.Bool
}

// Update implements [feed.LeaseStore].
func (s *unfreed) Update(ctx context.Context, r feed.Record) (feed.Record, error) {
	if r.Kind == feed.KindLease && r.Owner == "" && s.refused.CompareAndSwap(false, true) {
		return feed.Record{}, feed.ErrConflict
	}
	return s.Leases.Update(ctx, r)
}

// owned is a lease store of an operator to whom the owners of all leases seem to be at work, until a write is refused.
type owned struct {
	*docstore.Leases
	refused *atomic.Bool
}

// List implements [feed.LeaseStore].
func (s owned) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	all, now, err := s.Leases.List(ctx)
	for i := range all {
		if all[i].Kind == feed.KindLease && !s.refused.Load() {
			all[i].Updated = now
		}
	}
	return all, now, err
}

// An owner that takes a lease and skips a change at the same moment is told of a conflict. It does not take the write
// that has taken the lease for the one that skips the change.
func TestASkipThatIsNotWrittenIsNotConfirmed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := newBad()
		o := changefeed.Options{Start: feed.FromBeginning()}
		w.put("oslo", "bad", 1)
		w.put("oslo", "next", 1)
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		f := w.onlyBad()
		p.wire.Cut()
		done, store := make(chan error, 1), &unfreed{Leases: w.leases}
		go func() { // the operator leaves the lease to b
			_, err := admin.Open(w.orders, owned{w.leases, &store.refused}, admin.Options{}).Skip(t.Context(), f)
			done <- err
		}()
		time.Sleep(time.Second)
		o.Instance = "b"
		b, err := changefeed.New(w.orders, store, h, o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		if err := <-done; err != nil || !store.refused.Load() {
			t.Errorf("the skip: %v, a write was refused: %v", err, store.refused.Load())
		}
		time.Sleep(5 * time.Minute)
		if items, again := h.items(); items != 1 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want next alone", items, again, w.pending())
		}
		cancel()
		p.cancel()
		if err := errors.Join(<-ended, <-p.done); err != nil {
			t.Error(err)
		}
	})
}

// The outcome of a skip cannot be written. The next owner writes it, and skips nothing again: not even if the change
// fails again, because the lease was reset meanwhile.
func TestASkipWhoseOutcomeIsLostIsDoneOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := newBad()
		store := &hookedStore{Leases: w.leases}
		var refusing atomic.Bool
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if refusing.Load() && l.Kind == feed.KindRequest && l.State == feed.StateRetired {
				return l, feed.ErrForbidden
			}
			return w.leases.Update(ctx, l)
		}
		w.put("oslo", "bad", 1)
		w.put("oslo", "next", 1)
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		f := w.onlyBad()
		c := notes.Control{Action: notes.SkipChanges, Max: "FF", Changes: []notes.Skip{{
			Key: `["oslo"]`, LSN: f.Changes[0].LSN, ID: "bad",
		}}}
		refusing.Store(true)
		answered := make(chan notes.Outcome, 1)
		go func() {
			o, err := inquiry.Ask(t.Context(), w.leases, c, "")
			if err != nil {
				t.Error(err)
			}
			answered <- o
		}()
		time.Sleep(time.Minute)
		if items, _ := h.items(); items != 1 {
			t.Errorf("%d items, want next", items)
		}
		at := w.records(feed.KindLease)[0].Position
		lsn := f.Changes[0].LSN
		w.edit(func(l *feed.Record) { // a reset, whose caller has written the lease
			l.Position, l.Owner, l.Epoch = feed.At(strings.Replace(at.Token, at.Token, `"0"`, 1)), "", ""
			l.Properties = notes.Set(notes.Set(l.Properties, notes.DoneProperty, ""), notes.SkipsProperty, "")
		})
		time.Sleep(time.Minute)
		refusing.Store(false)
		if o := <-answered; o.Result != notes.Handled {
			t.Errorf("the outcome is %+v", o)
		}
		time.Sleep(time.Minute)
		if again := w.failing(); len(again) != 1 || again[0].Changes[0].LSN != lsn {
			t.Errorf("failing %+v, want LSN %d again, because it was skipped once", again, lsn)
		}
		p.stop(t)
	})
}

// A skipped change stays skipped if its lease is split before the position has passed it, and if the lease is paused.
func TestASkipSurvivesASplitAndAPause(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := newBad()
		o := changefeed.Options{Start: feed.FromBeginning()}
		w.fill(10)
		w.put("oslo", "bad", 1)
		w.fill(10)
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		p.stop(t)
		unit := w.admin(admin.Options{})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		if _, err := w.skip(w.onlyBad()); err != nil {
			t.Fatal(err)
		}
		if w.owners()[""] != 1 || len(w.failing()) == 0 {
			t.Errorf("owners %v, want a lease that is still paused, and the others of the batch failing", w.owners())
		}
		w.split(0)
		if _, err := unit.Failing(t.Context(), admin.All()); !errors.Is(err, feed.ErrGone) {
			t.Errorf("what fails of a lease whose partition was split: %v", err)
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		p = w.run("b", h, o)
		time.Sleep(2 * time.Minute)
		if items, again := h.items(); items != 10 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want 10, 0 and 0", items, again, w.pending())
		}
		p.stop(t)
	})
}

// After a split only the lease that has the key of a skipped change names the change, until it has passed the change.
func TestALeaseNamesNoSkippedChangeOfAnotherLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := newBad()
		o := changefeed.Options{Start: feed.FromBeginning()}
		w.fill(10)
		w.put("oslo", "bad", 1)
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		p.stop(t)
		if _, err := w.skip(w.onlyBad()); err != nil {
			t.Fatal(err)
		}
		w.split(0)
		p = w.run("b", h, o)
		time.Sleep(2 * time.Minute)
		p.stop(t)
		for _, l := range w.records(feed.KindLease) {
			if skips := l.Properties[notes.SkipsProperty]; skips != "" {
				t.Errorf("lease %s still names %s", l.Token, skips)
			}
		}
	})
}

// A dry run says what would be skipped, and a reset brings a skipped change back.
func TestADrySkipChangesNothingAndAResetBringsBack(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h, f := w.failAndStop()
		before := w.records(feed.KindLease)[0].ETag
		got, err := w.admin(admin.Options{DryRun: true}).Skip(t.Context(), f)
		if err != nil || got.Done || len(got.Changes) != 1 || w.records(feed.KindLease)[0].ETag != before {
			t.Errorf("a dry run: %+v, %v", got, err)
		}
		if _, err := w.skip(f); err != nil {
			t.Fatal(err)
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		h.repaired.Store(true)
		p := w.run("b", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		if items, _ := h.items(); items != 1 {
			t.Errorf("%d items after a reset, want the skipped one", items)
		}
		p.stop(t)
	})
}

// A skip at the position of a lease is undone by a replay of its key from there, and only if something of the key is
// skipped.
func TestAReplayFromThePositionBringsSkippedChangesBack(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h, f := w.failAndStop()
		replay := func(city string) error {
			_, err := w.admin(admin.Options{}).ResetKey(t.Context(), feed.Key(city), feed.FromBeginning())
			return err
		}
		if err := replay("oslo"); !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("replay of what is not skipped: %v, want %v", err, feed.ErrBadRequest)
		}
		if _, err := w.skip(f); err != nil {
			t.Fatal(err)
		}
		if err := replay("bergen"); !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("replay of another key: %v, want %v", err, feed.ErrBadRequest)
		}
		if err := replay("oslo"); err != nil {
			t.Fatal(err)
		}
		h.repaired.Store(true)
		p := w.run("b", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		if items, _ := h.items(); items != 1 || w.pending() != 0 {
			t.Errorf("%d items after a replay, %d pending, want the skipped one", items, w.pending())
		}
		p.stop(t)
	})
}

// One change of a transaction is skipped, and the handler is told that it does not have the whole.
func TestAChangeOfATransactionIsSkipped(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var cut atomic.Bool
		h := newBad()
		before := h.before
		h.before = func(ctx context.Context, b *feed.Batch) error {
			cut.Store(b.Cut)
			return before(ctx, b)
		}
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"), []feed.Write{
			upsert("oslo", "one", 1), upsert("oslo", "bad", 1), upsert("oslo", "two", 1),
		}); err != nil {
			t.Fatal(err)
		}
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		if _, err := w.skip(w.onlyBad()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if items, again := h.items(); items != 2 || again != 0 || !cut.Load() {
			t.Errorf("%d items, %d again, cut %v, want two, once, cut", items, again, cut.Load())
		}
		p.stop(t)
	})
}

// With all versions, each version is a change of its own.
func TestAVersionIsSkippedAlone(t *testing.T) {
	inWorldOf(t, docstore.ContainerSpec{Ranges: 1, Retention: time.Hour}, func(t *testing.T, w *world) {
		h := newBad()
		o := changefeed.Options{Mode: feed.AllVersionsAndDeletes}
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		first := w.put("oslo", "bad", 1)
		second := w.put("oslo", "bad", 2)
		time.Sleep(time.Minute)
		f := w.failing()[0]
		f.Changes = f.Changes[:1]
		if f.Changes[0].LSN != first {
			t.Fatalf("failing %+v, want LSN %d first", f, first)
		}
		if _, err := w.skip(f); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		h.repaired.Store(true)
		time.Sleep(5 * time.Minute)
		if got := h.lsns("oslo"); !slices.Equal(got, []int64{second}) {
			t.Errorf("LSNs %v came, want %d alone", got, second)
		}
		p.stop(t)
	})
}
