package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inquiry"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// What pauses and resets meet: splits, fences, marks left behind, other callers, and deleted documents.

// edit writes the only lease with a change, as nobody's.
func (w *world) edit(change func(*feed.Record)) feed.Record {
	w.t.Helper()
	lease := w.records(feed.KindLease)[0]
	change(&lease)
	lease, err := w.leases.Update(w.t.Context(), lease)
	if err != nil {
		w.t.Fatal(err)
	}
	return lease
}

// ran has an instance make the unit, and work for a minute.
func (w *world) ran(y *tally, o changefeed.Options) {
	w.t.Helper()
	p := w.run("a", y, o)
	time.Sleep(time.Minute)
	p.stop(w.t)
}

// splitLease splits the partition, and leaves the only lease as an owner who has died in the midst of its split.
func (w *world) splitLease() feed.Record {
	w.t.Helper()
	w.split(0)
	parts := records.RangesOf(w.partitions())
	return w.edit(func(l *feed.Record) {
		l.State, l.Properties = feed.StateSplitting, notes.Set(l.Properties, notes.PartsProperty, keyspace.Join(parts))
	})
}

// The parts of a lease about to be split when it was paused are paused from the beginning.
func TestAPartOfAPausedLeaseIsNotBegun(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		w.ran(y, o)
		w.fill(20)
		w.splitLease()
		unit := w.admin(admin.Options{})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		p := w.run("b", y, o)
		time.Sleep(5 * time.Minute)
		leases := w.records(feed.KindLease)
		if n := y.delivered(); n != 0 || len(leases) != 2 || w.owners()[""] != 2 {
			t.Errorf("%d deliveries of %d leases, owners %v, want none of 2 without owners", n, len(leases), w.owners())
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		time.Sleep(2 * time.Second)
		if items, again := y.items(); items != 20 || again != 0 {
			t.Errorf("%d items, %d again, want 20 and 0", items, again)
		}
		p.stop(t)
	})
}

// While a lease is being split, some leases of the parts may exist already, with the old position.
func TestALeaseThatIsBeingSplitIsNotReset(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		o := changefeed.Options{Start: feed.FromBeginning()}
		y := &tally{}
		p := w.run("a", y, o)
		w.fill(20)
		time.Sleep(time.Minute)
		p.stop(t)
		before := w.splitLease().Position
		var healed atomic.Bool
		store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && !healed.Load() {
				return l, errCutOff
			}
			return w.leases.Create(ctx, l)
		}}
		p = w.runWith(w.orders, store, "b", y, o)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := inquiry.Ask(ctx, w.leases, notes.Control{
			Action: notes.Reset, Max: "FF", To: records.TargetOf(feed.At(`"0"`)),
		}, "")
		lease, _ := w.record(w.records(feed.KindLease)[0].ID)
		if err != nil || got.Result != notes.Failed || !strings.Contains(got.Cause, "is being split") ||
			lease.Position != before {
			t.Errorf("%+v, %v, the lease is at %v, want a failure, and %v", got, err, lease.Position, before)
		}
		if _, err := w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning()); !errors.Is(err,
			feed.ErrConflict) {
			t.Errorf("a reset of the unit: %v", err)
		}
		healed.Store(true)
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 20 || again != 0 {
			t.Errorf("%d items, %d again, want 20 and 0", items, again)
		}
		p.stop(t)
	})
}

// A new owner who has not begun may leave a lease to nobody while the owner before still works.
func TestAFenceIsWaitedFor(t *testing.T) {
	for name, do := range map[string]func(context.Context, *admin.Unit) ([]admin.Step, error){
		"pause": func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) { return u.Pause(ctx, admin.All()) },
		"reset": func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
			return u.Reset(ctx, admin.All(), feed.FromBeginning())
		},
	} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			w.ran(&tally{}, changefeed.Options{})
			w.edit(func(l *feed.Record) { l.Fence = time.Now().Add(30 * time.Second) })
			begun := time.Now()
			operate(t, func(ctx context.Context) ([]admin.Step, error) { return do(ctx, w.admin(admin.Options{})) })
			if spent := time.Since(begun); spent < 29*time.Second || spent > 35*time.Second {
				t.Errorf("%s returned after %v, want the 30 s of the fence", name, spent)
			}
		})
	}
}

// An owner who waits for the owner before is not asked for a reset before the latter has stopped.
func TestAnOwnerBehindAFenceResetsLater(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		w.ran(y, o)
		w.edit(func(l *feed.Record) {
			l.Owner, l.Epoch, l.Fence = "b", "", time.Now().Add(40*time.Second)
			l.Expiration = time.Minute
		})
		lease := w.records(feed.KindLease)[0]
		store := &hookedStore{Leases: w.leases}
		p := w.runWith(w.orders, store, "b", y, o)
		time.Sleep(time.Second)
		for _, host := range w.records(feed.KindHost) { // the lease is given to it
			if host.Owner == "b" {
				lease.Owner, lease.Epoch = host.Owner, host.Epoch
			}
		}
		if _, err := w.leases.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		begun := time.Now()
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		if spent := time.Since(begun); spent < 30*time.Second {
			t.Errorf("the lease was reset after %v, though its fence ends later", spent)
		}
		p.stop(t)
	})
}

// A mark no longer explained by a request is removed, so that nobody has to call Resume again.
func TestAMarkThatIsLeftIsRemoved(t *testing.T) {
	for _, followed := range []bool{true, false} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			y := &tally{}
			o := changefeed.Options{Start: feed.FromBeginning()}
			w.ran(y, o)
			w.edit(func(l *feed.Record) { records.MarkPaused(l, time.Now()) })
			w.fill(5)
			var store feed.LeaseStore = w.leases
			if !followed {
				store = struct{ feed.LeaseStore }{w.leases}
			}
			p := w.runWith(w.orders, store, "b", y, o)
			time.Sleep(time.Minute)
			if n := y.delivered(); n != 5 || records.IsMarkedPaused(w.records(feed.KindLease)[0]) {
				t.Errorf("%d deliveries, want 5 and no mark", n)
			}
			w.edit(func(l *feed.Record) { // an instance gives it up for a pause that is over
				l.Owner, l.Epoch = "", ""
				records.MarkPaused(l, time.Now())
			})
			w.put("oslo", "late", 1)
			time.Sleep(time.Minute)
			if items, _ := y.items(); items != 6 {
				t.Errorf("%d items after another mark was left, want 6", items)
			}
			p.stop(t)
		})
	}
}

// Two listings show a mark to be old. A pause beginning between them writes the mark anew, so an instance which has
// seen the first only changes nothing.
func TestAPauseRenewsAMarkThatWasLeft(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		old := w.edit(func(l *feed.Record) { records.MarkPaused(l, time.Now()) })
		unit := w.admin(admin.Options{})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		lease := w.records(feed.KindLease)[0]
		if lease.ETag == old.ETag || !records.IsMarkedPaused(lease) {
			t.Errorf("the lease of the new pause has the ETag %s, want another, and a mark", lease.ETag)
		}
		time.Sleep(5 * time.Second)
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		again := w.records(feed.KindLease)[0]
		if a, b := again.Properties[notes.PausedProperty], lease.Properties[notes.PausedProperty]; a != b {
			t.Errorf("a pause of a paused lease changes since when: from %q to %q", b, a)
		}
	})
}

// A later request for a reset replaces an earlier one for another position, whose caller may have died.
func TestAResetReplacesAnother(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(10)
		time.Sleep(time.Minute)
		p.wire.Cut()
		w.asks(feed.At(`"0"`))
		time.AfterFunc(5*time.Second, p.wire.Mend)
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromNow())
		})
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 10 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want 10 and no more", items, again, w.pending())
		}
		p.cancel()
		<-p.done
	})
}

// The owner who was asked dies, and no instance is left: the operator resets the lease.
func TestAResetOutlivesAllInstances(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		p := w.run("a", y, o)
		w.fill(10)
		time.Sleep(time.Minute)
		p.kill(t)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning()); err != nil {
			t.Error(err)
		}
		if n := len(w.records(feed.KindRequest)); n != 0 {
			t.Errorf("%d requests are left", n)
		}
		q := w.run("b", y, o)
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 10 || again != 10 {
			t.Errorf("%d items, %d again, want 10 and 10", items, again)
		}
		q.stop(t)
	})
}

// A source may not look at the position of a vanished range.
func TestAStartIsCheckedThoughThePartitionWasSplit(t *testing.T) {
	inWorldOf(t, docstore.ContainerSpec{Ranges: 1, Retention: time.Hour}, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{Mode: feed.AllVersionsAndDeletes})
		w.split(0)
		before := w.records(feed.KindLease)[0]
		for _, to := range []feed.Start{feed.FromTime(time.Now()), feed.FromBeginning()} {
			if _, err := w.admin(admin.Options{}).Reset(t.Context(), admin.All(), to); !errors.Is(err,
				feed.ErrBadRequest) {
				t.Errorf("reset to %v: %v", to, err)
			}
		}
		if after := w.records(feed.KindLease)[0]; after.ETag != before.ETag {
			t.Errorf("the lease was written, and is at %v", after.Position)
		}
	})
}

// A pause whose request is deleted meanwhile is none.
func TestAPauseThatSomebodyEndsIsNone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		p.wire.Cut()
		time.AfterFunc(5*time.Second, func() {
			for _, q := range w.records(feed.KindRequest) {
				w.delete(q)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := w.admin(admin.Options{}).Pause(ctx, admin.All()); !errors.Is(err, feed.ErrConflict) {
			t.Errorf("got %v", err)
		}
		p.cancel()
		<-p.done
	})
}

// The owner of a deleted lease may still work, so a pause waits until there is another lease.
func TestAPauseWaitsForALeaseThatIsMissing(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		o := changefeed.Options{}
		p := w.run("a", &tally{}, o)
		time.Sleep(time.Minute)
		p.stop(t)
		w.delete(w.records(feed.KindLease)[0])
		unit := w.admin(admin.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := unit.Pause(ctx, admin.All()); !errors.Is(err, admin.ErrNotServed) ||
			!strings.Contains(err.Error(), "no lease holds") {
			t.Errorf("got %v", err)
		}
		p = w.run("b", &tally{}, o)
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if _, err := unit.Pause(ctx, admin.All()); err != nil || len(w.records(feed.KindLease)) != 2 {
			t.Errorf("got %v, %d leases", err, len(w.records(feed.KindLease)))
		}
		p.stop(t)
	})
}

// Somebody has deleted the leases of a unit, and not its marker.
func TestARestoreMakesLeasesBesideAMarker(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		p := w.run("a", y, o)
		w.fill(10)
		time.Sleep(time.Minute)
		p.stop(t)
		s := w.snapshot(w.leases)
		w.fill(4)
		for _, lease := range w.records(feed.KindLease) {
			w.delete(lease)
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Restore(ctx, s)
		})
		p = w.run("b", y, o)
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 10 || again != 4 {
			t.Errorf("%d items, %d again, want 10, and the 4 that were written again", items, again)
		}
		p.stop(t)
	})
}

// A request of a caller who has died is not served after a later reset, which nobody had to be asked for.
func TestAResetWithdrawsAnEarlierRequest(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		w.fill(10)
		w.ran(y, o)
		w.asks(feed.At(`"0"`))
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromNow())
		})
		w.ran(y, o)
		if items, again := y.items(); items != 10 || again != 0 || len(w.records(feed.KindRequest)) != 0 {
			t.Errorf("%d items, %d again, %d requests, want 10 and no more", items, again,
				len(w.records(feed.KindRequest)))
		}
	})
}

// asks makes a request for a reset of the only lease, as a caller does who then dies.
func (w *world) asks(to feed.Position) feed.Record {
	w.t.Helper()
	return w.asksFor(feed.FullRange(), to)
}

// asksFor asks for a reset of a range, as a caller who has died since.
func (w *world) asksFor(of feed.Range, to feed.Position) feed.Record {
	w.t.Helper()
	return w.requests(notes.Control{Action: notes.Reset, Min: of.Min, Max: of.Max, To: records.TargetOf(to)})
}

// requests makes a request, as a caller who has died since.
func (w *world) requests(c notes.Control) feed.Record {
	w.t.Helper()
	q, err := w.leases.Create(w.t.Context(), feed.Record{
		Kind: feed.KindRequest, Token: c.Token(), TTL: time.Hour,
		Properties: notes.Set(c.Properties(nil), notes.CallerProperty, "somebody"),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

// A request withdrawn while the owner ended its batch is not served.
func TestAWithdrawnResetIsNotCarriedOut(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		entered := make(chan struct{}, 10)
		y := &tally{before: func(context.Context, *feed.Batch) error {
			entered <- struct{}{}
			time.Sleep(5 * time.Second)
			return nil
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "one", 1)
		<-entered
		q := w.asks(feed.At(`"0"`))
		time.Sleep(2 * time.Second)
		w.delete(q)
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 1 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want the one", items, again, w.pending())
		}
		p.stop(t)
	})
}

// An instance must not, without having read the request, take a lease given up by its owner for a pause.
func TestALeaseThatIsGivenUpForAPauseHasTheMark(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		c := notes.Control{Action: notes.Pause, Max: "FF"}
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindRequest, Token: c.Token(), Properties: c.Properties(nil),
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if l := w.records(feed.KindLease)[0]; !l.Free() || !records.IsMarkedPaused(l) {
			t.Errorf("the lease of %q has %v, want no owner, and a mark", l.Owner, l.Properties)
		}
		p.stop(t)
	})
}

// A listing is no picture of one moment: it may show a mark, and not the request written before.
func TestAMarkIsRemovedAfterTwoListings(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		w.edit(func(l *feed.Record) { records.MarkPaused(l, time.Now()) })
		lists := 0
		store := &hookedStore{Leases: w.leases}
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			lists++
			return w.leases.List(ctx)
		}
		begun := -1
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && begun < 0 {
				begun = lists
			}
			return w.leases.Update(ctx, l)
		}
		shown := 0 // listings of the start, in which no marks are looked for
		p := w.runWith(w.orders, struct{ feed.LeaseStore }{store}, "b", &tally{}, changefeed.Options{
			Hooks: changefeed.Hooks{Ready: func(context.Context) { shown = lists }},
		})
		time.Sleep(2 * time.Minute)
		p.stop(t)
		if begun < shown+2 {
			t.Errorf("the mark was removed after %d listings, of which %d were of the start, want two more", begun, shown)
		}
	})
}

// What a lease says of its old position means nothing at another.
func TestWhatALeaseKnowsIsForgottenByAReset(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		all := []string{
			notes.DoneProperty, notes.FailingProperty, notes.HeldProperty, notes.AsideProperty, notes.OutageProperty,
			notes.SkipsProperty,
		}
		w.edit(func(l *feed.Record) {
			l.Attempts = 3
			for _, name := range all {
				records.SetProperty(l, name, "{}")
			}
		})
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		l := w.records(feed.KindLease)[0]
		for _, name := range all {
			if l.Attempts != 0 || l.Properties[name] != "" {
				t.Errorf("the lease has %d attempts, and %s %q", l.Attempts, name, l.Properties[name])
			}
		}
	})
}

// An owner unable to write the new position has not reset the lease.
func TestAResetWhosePositionCannotBeWrittenIsNotDone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && l.Properties[notes.ResetProperty] != "" {
				return l, errCutOff
			}
			return w.leases.Update(ctx, l)
		}
		y := &tally{}
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(10)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		steps, err := w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		if !errors.Is(err, admin.ErrNotServed) || len(steps) != 1 || steps[0].Done {
			t.Errorf("got %+v, %v", steps, err)
		}
		p.cancel()
		<-p.done
	})
}

// The owner of several leases resets the one asked for.
func TestAResetOfALeaseLeavesTheOthers(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(40)
		time.Sleep(time.Minute)
		synctest.Wait() // for y.changes
		first, done := slices.Clone(y.changes), 0
		for _, lease := range w.records(feed.KindLease) { // each of them: an owner finds its leases in any order
			in := 0
			for _, c := range first {
				if epk, err := w.orders.Locate(t.Context(), c.PartitionKey); err == nil && lease.Range.Holds(epk) {
					in++
				}
			}
			operate(t, func(ctx context.Context) ([]admin.Step, error) {
				return w.admin(admin.Options{}).Reset(ctx, admin.Of(lease.Range), feed.FromBeginning())
			})
			time.Sleep(time.Minute)
			if items, again := y.items(); items != 40 || in == 0 || again != done+in {
				t.Errorf("%d items, %d again, want 40, and the %d of the lease beside %d", items, again, in, done)
			}
			done += in
		}
		p.stop(t)
	})
}

// A lease whose range has several places in a snapshot continues at the earliest.
func TestARestoreTakesTheEarliestPlace(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(20)
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		for _, order := range [][2]string{{`"3"`, `"9"`}, {`"9"`, `"3"`}} {
			s := w.snapshot(w.leases)
			s.Leases = nil
			for i, half := range feed.FullRange().Cut(2) {
				s.Leases = append(s.Leases, admin.Place{Range: half.String(), Token: order[i]})
			}
			operate(t, func(ctx context.Context) ([]admin.Step, error) {
				return w.admin(admin.Options{}).Restore(ctx, s)
			})
			if at := w.records(feed.KindLease)[0].Position; at.Token != `"3"` {
				t.Errorf("places %v: the lease is at %v, want 3", order, at)
			}
		}
	})
}

// While the outcome of a reset cannot be written, and its caller is dead, the lease is not reset again and again.
func TestAResetWithoutAnOutcomeIsDoneOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		store := &hookedStore{Leases: w.leases}
		var refused atomic.Int64
		begun := time.Now()
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindRequest && time.Since(begun) < 5*time.Minute {
				refused.Add(1)
				return l, feed.ErrForbidden
			}
			return w.leases.Update(ctx, l)
		}
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(10)
		time.Sleep(time.Minute)
		w.asks(feed.At(`"0"`))
		time.Sleep(10 * time.Minute)
		if items, again := y.items(); items != 10 || again != 10 || refused.Load() < 3 {
			t.Errorf("%d items, %d again after %d refusals, want 10, 10 and some", items, again, refused.Load())
		}
		p.stop(t)
	})
}
