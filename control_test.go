package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// admin opens the unit for an operator.
func (w *world) admin(o admin.Options) *admin.Unit { return admin.Open(w.orders, w.leases, o) }

// operate does something as an operator, who waits for a minute.
func operate(t *testing.T, do func(ctx context.Context) ([]admin.Step, error)) []admin.Step {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	steps, err := do(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if !s.Done {
			t.Errorf("%s of %s is not done", s.Action, s.Lease.Token)
		}
	}
	return steps
}

// delivered counts all deliveries.
func (y *tally) delivered() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.order)
}

// While a unit is paused, nothing is delivered and nobody has a lease. Then everything comes, once.
func TestAPausedUnitDeliversNothing(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		a, b := w.run("a", y, o), w.run("b", y, o)
		w.fill(20)
		time.Sleep(time.Minute)
		unit := w.admin(admin.Options{By: "ada", Reason: "2026-11-27"})
		begun := time.Now()
		steps := operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		if spent := time.Since(begun); len(steps) != 4 || spent > 2*time.Second {
			t.Errorf("%d leases are paused after %v, want 4 within a second or two of a store that is followed",
				len(steps), spent)
		}
		before := y.delivered()
		for i := range 10 {
			w.fill(20)
			time.Sleep(time.Minute)
			if n := y.delivered(); n != before {
				t.Fatalf("%d deliveries after %d minutes of the pause", n-before, i)
			}
			if owners := w.owners(); owners[""] != 4 {
				t.Fatalf("owners of the paused leases: %v", owners)
			}
		}
		// An instance that comes later obeys too, and so does one whose view is old.
		c := w.run("c", y, o)
		time.Sleep(time.Minute)
		if n := y.delivered(); n != before {
			t.Errorf("a new instance has delivered %d changes of the pause", n-before)
		}
		steps = operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		time.Sleep(2 * time.Second)
		if n := y.delivered() - before; len(steps) != 4 || n != 20 || w.pending() != 0 {
			t.Errorf("%d leases resumed, %d deliveries, %d pending; want 4, 20 and 0", len(steps), n, w.pending())
		}
		for _, p := range []*process{a, b, c} {
			p.stop(t)
			if err := p.errs.all(); len(err) > 0 {
				t.Errorf("errors: %v", err)
			}
		}
	})
}

// Each instance reports a pause and its end, and one that begins meanwhile reports the pause it finds.
func TestAPauseIsReported(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		var mu sync.Mutex
		told := map[string][]feed.Pause{}
		run := func(name string) *process {
			return w.run(name, &tally{}, changefeed.Options{Hooks: changefeed.Hooks{
				Paused: func(_ context.Context, p feed.Pause) {
					mu.Lock()
					defer mu.Unlock()
					told[name] = append(told[name], p)
				},
			}})
		}
		running := []*process{run("a")}
		time.Sleep(time.Minute)
		unit := w.admin(admin.Options{By: "ada", Reason: "INC-1"})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		begun := time.Now()
		running = append(running, run("b"))
		time.Sleep(time.Minute)
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		time.Sleep(time.Minute)
		for _, p := range running {
			p.stop(t)
		}
		for _, name := range []string{"a", "b"} {
			all := told[name]
			if len(all) != 2 || !all[0].Ended.IsZero() || all[0].Range != feed.FullRange() || all[0].By != "ada" ||
				all[0].Reason != "INC-1" || begun.Sub(all[0].Since).Abs() > 10*time.Second ||
				all[1].Ended.Sub(begun).Abs() < 50*time.Second || all[1].Since != all[0].Since {
				t.Errorf("%s reports %+v, want the pause at %v and its end a minute later", name, all, begun)
			}
		}
	})
}

// A pause that ends and begins again between two rounds is reported as two, because somebody else has asked for the
// second one, for another reason.
func TestAPauseThatBeginsAgainIsReported(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var told []string
		store, isFrozen := &hookedStore{Leases: w.leases}, atomic.Bool{}
		var then []feed.Record
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			all, now, err := w.leases.List(ctx)
			if isFrozen.Load() {
				all = slices.Clone(then)
			}
			return all, now, err
		}
		store.follow = func(ctx context.Context, _ string) ([]feed.Record, string, time.Time, error) {
			<-ctx.Done()
			return nil, "", time.Time{}, context.Cause(ctx)
		}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{Hooks: changefeed.Hooks{
			Paused: func(_ context.Context, p feed.Pause) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprintf("%s %s, ended %v", p.By, p.Reason, !p.Ended.IsZero()))
			},
		}})
		time.Sleep(time.Minute)
		by := func(name string) *admin.Unit { return w.admin(admin.Options{By: name, Reason: "of " + name}) }
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return by("ada").Pause(ctx, admin.All()) })
		time.Sleep(time.Minute)
		var err error
		if then, _, err = w.leases.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		isFrozen.Store(true)
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return by("ada").Resume(ctx, admin.All()) })
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return by("bob").Pause(ctx, admin.All()) })
		isFrozen.Store(false)
		time.Sleep(time.Minute)
		p.stop(t)
		want := []string{"ada of ada, ended false", "ada of ada, ended true", "bob of bob, ended false"}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// A batch in the handler is finished and stored before its lease is paused.
func TestABatchInTheHandlerIsFinishedBeforeAPause(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		entered := make(chan struct{}, 10)
		y := &tally{before: func(ctx context.Context, _ *feed.Batch) error {
			entered <- struct{}{}
			select {
			case <-time.After(3 * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "one", 1)
		<-entered
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Pause(ctx, admin.All())
		})
		if items, again := y.items(); items != 1 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want the batch done once", items, again, w.pending())
		}
		p.stop(t)
	})
}

// A lease is paused alone; the others go on.
func TestALeaseIsPausedAlone(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		one := w.records(feed.KindLease)[1].Range
		unit := w.admin(admin.Options{})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.Of(one)) })
		w.fill(40)
		time.Sleep(time.Minute)
		synctest.Wait() // for y.changes
		for _, c := range y.changes {
			if epk, err := w.orders.Locate(t.Context(), c.PartitionKey); err != nil || one.Holds(epk) {
				t.Errorf("%s of the paused lease was delivered (%v)", c.PartitionKey, err)
			}
		}
		left := w.pending()
		if n := len(y.changes); n == 0 || left == 0 || int64(n)+left != 40 {
			t.Errorf("%d delivered and %d pending, want some of each and 40 together", n, left)
		}
		if _, err := unit.Resume(t.Context(), admin.Of(one)); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if w.pending() != 0 {
			t.Errorf("%d pending after the end of the pause", w.pending())
		}
		p.stop(t)
	})
}

// While no instance runs, the operator pauses and resumes alone.
func TestAUnitWithoutInstancesIsPaused(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		p := w.run("a", y, o)
		time.Sleep(time.Minute)
		p.kill(t) // its leases stay owned until they expire
		time.Sleep(5 * time.Minute)
		unit := w.admin(admin.Options{})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		w.fill(5)
		p = w.run("b", y, o)
		time.Sleep(5 * time.Minute)
		if n := y.delivered(); n != 0 {
			t.Errorf("%d deliveries of a paused unit", n)
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		time.Sleep(2 * time.Second)
		if n := y.delivered(); n != 5 {
			t.Errorf("%d deliveries after the pause, want 5", n)
		}
		p.stop(t)
	})
}

// A range that was paused as a part of a larger one is not resumed alone, because the request stays for the others.
func TestAPartOfAPauseIsNotResumedAlone(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		unit := w.admin(admin.Options{})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		one := w.records(feed.KindLease)[0].Range
		_, err := unit.Resume(t.Context(), admin.Of(one))
		if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), "a part of -FF: resume that one: changefeed leases resume") {
			t.Errorf("got %v", err)
		}
		p.stop(t)
	})
}

// A reset to the beginning delivers everything again, and nothing else; a reset to now delivers nothing old.
func TestAResetReplaysWhatItShould(t *testing.T) {
	for _, running := range []bool{true, false} {
		inWorld(t, 4, func(t *testing.T, w *world) {
			y := &tally{}
			o := changefeed.Options{Start: feed.FromBeginning()}
			p := w.run("a", y, o)
			w.fill(30)
			time.Sleep(time.Minute)
			if !running {
				p.stop(t)
			}
			unit := w.admin(admin.Options{})
			reset := func(to feed.Start) []admin.Step {
				return operate(t, func(ctx context.Context) ([]admin.Step, error) {
					return unit.Reset(ctx, admin.All(), to)
				})
			}
			steps := reset(feed.FromBeginning())
			if !running {
				p = w.run("b", y, o)
			}
			time.Sleep(time.Minute)
			if items, again := y.items(); len(steps) != 4 || items != 30 || again != 30 {
				t.Errorf("%d leases: %d items, %d again, want 4, 30 and 30", len(steps), items, again)
			}
			half := time.Now()
			time.Sleep(2 * time.Second)
			w.put("city-0", "late", 1)
			time.Sleep(time.Minute)
			reset(feed.FromTime(half))
			time.Sleep(time.Minute)
			if items, again := y.items(); items != 31 || again != 31 {
				t.Errorf("from a time: %d items, %d again, want 31 and 31", items, again)
			}
			reset(feed.FromNow())
			time.Sleep(time.Minute)
			if _, again := y.items(); again != 31 || w.pending() != 0 {
				t.Errorf("from now: %d again, %d pending, want 31 and 0", again, w.pending())
			}
			p.stop(t)
		})
	}
}

// What a lease knows of keys and attempts is about the old position.
func TestAResetForgetsHeldKeys(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &letterBox{}
		var broken bool
		y := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if broken && slices.ContainsFunc(b.Changes, func(c feed.Change) bool { return c.ID == "bad" }) {
				return errors.New("no")
			}
			return nil
		}}
		broken = true
		p := w.run("a", y, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
		})
		w.put("oslo", "bad", 1)
		w.put("oslo", "next", 1)
		w.fill(5)
		time.Sleep(5 * time.Minute)
		if l := w.lag(); l.Held != 1 {
			t.Fatalf("%d keys are held, want 1", l.Held)
		}
		broken = false
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		time.Sleep(time.Minute)
		if l := w.lag(); l.Held != 0 || l.Pending != 0 {
			t.Errorf("%d keys are held, %d pending, want none", l.Held, l.Pending)
		}
		if n := len(y.seen[`["oslo"]bad`]) + len(y.seen[`["oslo"]next`]); n != 2 {
			t.Errorf("the held key was delivered %d times, want each change once", n)
		}
		p.stop(t)
	})
}

// An owner that is cut off cannot store its position after a reset.
func TestAnOldOwnerDoesNotOverwriteAReset(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		p := w.run("a", y, o)
		w.fill(10)
		time.Sleep(time.Minute)
		p.wire.Cut()
		w.fill(10)
		time.Sleep(5 * time.Minute)
		unit := w.admin(admin.Options{})
		steps := operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return unit.Reset(ctx, admin.All(), feed.FromBeginning())
		})
		p.wire.Mend()
		p.cancel()
		<-p.done
		lease := w.records(feed.KindLease)[0]
		if lease.Position != steps[0].To {
			t.Errorf("the position is %s, want that of the reset, %s", lease.Position, steps[0].To)
		}
	})
}

// The owner dies while it is asked. The next one resets the lease.
func TestAResetOutlivesTheOwner(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		p := w.run("a", y, o)
		w.fill(10)
		time.Sleep(time.Minute)
		p.wire.Cut()
		done := make(chan error, 1)
		go func() {
			_, err := w.admin(admin.Options{}).Reset(t.Context(), admin.All(), feed.FromBeginning())
			done <- err
		}()
		time.Sleep(time.Second)
		q := w.run("b", y, o)
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 10 || again != 10 {
			t.Errorf("%d items, %d again, want 10 and 10", items, again)
		}
		p.cancel()
		<-p.done
		q.stop(t)
	})
}

// The outcome of a reset cannot be written. The next owner writes it, and does not reset the lease again.
func TestAResetWhoseOutcomeIsLostIsDoneOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		store := &hookedStore{Leases: w.leases}
		var refused time.Time // the first time
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind != feed.KindRequest || l.State != feed.StateRetired {
				return w.leases.Update(ctx, l)
			}
			if refused.IsZero() {
				refused = time.Now()
			}
			if time.Since(refused) < 30*time.Second { // long enough to deliver everything again
				return l, feed.ErrForbidden
			}
			return w.leases.Update(ctx, l)
		}
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(10)
		time.Sleep(time.Minute)
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		time.Sleep(5 * time.Minute)
		if items, again := y.items(); items != 10 || again != 10 || refused.IsZero() {
			t.Errorf("%d items, %d again after refusals since %v, want 10 and 10", items, again, refused)
		}
		p.stop(t)
	})
}

// While no instance obeys, the call says which lease is left, and who has it.
func TestAnInstanceThatDoesNotObeyIsNamed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		p.wire.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		steps, err := w.admin(admin.Options{}).Pause(ctx, admin.All())
		if !errors.Is(err, admin.ErrNotServed) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "lease -FF belongs to a") || len(steps) != 1 || steps[0].Done {
			t.Errorf("got %v, %+v", err, steps)
		}
		p.cancel()
		<-p.done
	})
}

// A pause that is obeyed in part says which leases are paused, and goes on when it is asked again.
func TestAPauseThatIsObeyedInPartSaysSo(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		a, b := w.run("a", &tally{}, changefeed.Options{}), w.run("b", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		a.wire.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		u := w.admin(admin.Options{})
		steps, err := u.Pause(ctx, admin.All())
		if !errors.Is(err, admin.ErrNotServed) || !strings.Contains(err.Error(), "1 of 2 leases are paused") ||
			len(steps) != 2 || steps[0].Done == steps[1].Done {
			t.Errorf("got %v, %+v, want one of two leases paused", err, steps)
		}
		for _, s := range steps {
			if s.Done != (s.Lease.Owner == "b") {
				t.Errorf("the pause of the lease of %s is done: %v", s.Lease.Owner, s.Done)
			}
		}
		if all, err := u.History(t.Context()); err != nil || len(all) != 1 || all[0].Done != 1 || all[0].Count != 2 {
			t.Errorf("history %+v, %v, want 1 of 2", all, err)
		}
		a.cancel()
		<-a.done
		time.Sleep(5 * time.Minute)
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return u.Pause(ctx, admin.All()) })
		if owners := w.owners(); owners[""] != 2 {
			t.Errorf("owners %v, want none when the owner that did not obey has gone", owners)
		}
		b.stop(t)
	})
}

// What cannot be is refused before anything is written.
func TestWhatCannotBeSteeredIsRefused(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		unit := w.admin(admin.Options{})
		if _, err := unit.Pause(t.Context(), admin.All()); !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("a unit without leases: %v", err)
		}
		p := w.run("a", &tally{}, changefeed.Options{})
		w.fill(5)
		time.Sleep(time.Minute)
		p.stop(t)
		before := w.records(feed.KindLease)
		quarter := feed.FullRange().Cut(4)[0]
		for name, do := range map[string]func() ([]admin.Step, error){
			"a range that cuts a lease": func() ([]admin.Step, error) {
				return unit.Pause(t.Context(), admin.Of(quarter))
			},
			"no start": func() ([]admin.Step, error) { return unit.Reset(t.Context(), admin.All(), feed.Start{}) },
			"a token of several leases": func() ([]admin.Step, error) {
				return unit.ResetTo(t.Context(), admin.All(), feed.At(`"1"`))
			},
			"an invalid token": func() ([]admin.Step, error) {
				return unit.ResetTo(t.Context(), admin.Of(before[0].Range), feed.At("nonsense"))
			},
		} {
			if _, err := do(); !errors.Is(err, feed.ErrBadRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
		dry := w.admin(admin.Options{DryRun: true})
		for name, do := range map[string]func() ([]admin.Step, error){
			"pause":  func() ([]admin.Step, error) { return dry.Pause(t.Context(), admin.All()) },
			"reset":  func() ([]admin.Step, error) { return dry.Reset(t.Context(), admin.All(), feed.FromBeginning()) },
			"resume": func() ([]admin.Step, error) { return dry.Resume(t.Context(), admin.All()) },
		} {
			steps, err := do()
			if err != nil || name != "resume" && len(steps) != 2 || slices.ContainsFunc(steps, func(s admin.Step) bool {
				return s.Done
			}) {
				t.Errorf("a dry %s: %+v, %v", name, steps, err)
			}
		}
		for i, lease := range w.records(feed.KindLease) {
			if lease.ETag != before[i].ETag {
				t.Errorf("lease %s was written", lease.Token)
			}
		}
		if n := len(w.records(feed.KindRequest)); n != 0 {
			t.Errorf("%d requests are left", n)
		}
		lease := before[0]
		lease.Owner, lease.Epoch = "dotnet", ""
		if _, err := w.leases.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if _, err := unit.Pause(t.Context(), admin.All()); !errors.Is(err, feed.ErrForeignOwner) {
			t.Errorf("a lease of another kind of processor: %v", err)
		}
		synctest.Wait()
	})
}

// A key that is set aside has changes that were not handled, and a reset to now skips these too.
func TestAResetForgetsKeysThatAreSetAside(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		o := w.setAside(fromStart)
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromNow())
		})
		h := &tally{}
		p := w.run("b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if got := h.ids(); len(got) > 0 {
			t.Errorf("after a reset to now, %v were handled", got)
		}
	})
}

// The request of the first pause is removed some time after its end. That of the second stays, for leases that are made
// later.
func TestASecondPauseLasts(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		o := changefeed.Options{Start: feed.FromBeginning()}
		p := w.run("a", &tally{}, o)
		time.Sleep(time.Minute)
		p.stop(t)
		unit := w.admin(admin.Options{})
		for _, do := range []func(context.Context, admin.Selection) ([]admin.Step, error){
			unit.Pause, unit.Resume, unit.Pause,
		} {
			operate(t, func(ctx context.Context) ([]admin.Step, error) { return do(ctx, admin.All()) })
		}
		time.Sleep(24 * time.Hour)
		w.delete(w.records(feed.KindLease)[0]) // an instance makes it anew
		w.fill(20)
		y := &tally{}
		p = w.run("b", y, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if n := len(w.records(feed.KindLease)); n != 2 || y.delivered() > 0 {
			t.Errorf("%d leases, %d deliveries of a paused unit, want 2 and none", n, y.delivered())
		}
	})
}

// The answer to the write that takes a lease is lost, and the lease is paused before the instance looks again. The
// instance gives the lease up, and takes it again after the pause.
func TestALeaseThatWasPausedBeforeItBeganIsTakenAfterThePause(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		unit := w.admin(admin.Options{})
		var lost atomic.Bool
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Update(ctx, l)
			if l.Kind != feed.KindLease || err != nil || lost.Swap(true) {
				return got, err
			}
			soon, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, err := unit.Pause(soon, admin.All()); !errors.Is(err, admin.ErrNotServed) {
				t.Errorf("the pause: %v", err)
			}
			return l, errors.New("the answer was lost")
		}
		y := &tally{}
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(5)
		time.Sleep(time.Minute)
		if owners := w.owners(); !lost.Load() || owners[""] != 1 || y.delivered() > 0 {
			t.Errorf("owners %v, %d deliveries while the lease is paused", owners, y.delivered())
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		time.Sleep(10 * time.Second)
		if n := y.delivered(); n != 5 {
			t.Errorf("%d deliveries after the pause, want 5", n)
		}
		p.stop(t)
	})
}
