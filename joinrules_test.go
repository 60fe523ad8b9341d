package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// turnover counts what happens to leases.
type turnover struct{ acquired, joined, given, marked atomic.Int64 }

func (n *turnover) hooks() changefeed.Hooks {
	return changefeed.Hooks{
		Acquired: func(context.Context, feed.Lease) { n.acquired.Add(1) },
		Released: func(_ context.Context, _ feed.Lease, why feed.Reason) {
			switch why {
			case feed.ReasonJoined:
				n.joined.Add(1)
			case feed.ReasonGiven:
				n.given.Add(1)
			}
		},
	}
}

// failsAt is a handler that fails on each batch that begins with a change of a town.
func failsAt(town string) *tally {
	return &tally{before: func(_ context.Context, b *feed.Batch) error {
		if b.Changes[0].PartitionKey == feed.Key(town) {
			return errors.New("fails")
		}
		return nil
	}}
}

// store counts the leases that are marked as about to be joined.
func (n *turnover) store(w *world) *hookedStore {
	s := &hookedStore{Leases: w.leases}
	s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
		if l.Kind == feed.KindLease && l.State == feed.StateSplitting {
			n.marked.Add(1)
		}
		return w.leases.Update(ctx, l)
	}
	return s
}

// A lease that was made for a hole begins at the time at which the unit began, and the others "now": they are joined.
func TestARepairedLeaseIsJoined(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("maker", &tally{}, changefeed.Options{MinLeases: 2})
		time.Sleep(30 * time.Second)
		w.fill(20)
		time.Sleep(30 * time.Second)
		w.delete(w.records(feed.KindLease)[0])
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if all := w.records(feed.KindLease); len(all) != 2 || all[0].Position.Start == all[1].Position.Start {
			t.Fatalf("leases %+v, want two with different starts", all)
		}
		y := &tally{}
		q := w.run("a", y, changefeed.Options{})
		stop := w.writeEvery(5 * time.Second)
		time.Sleep(4 * joinRest)
		stop()
		time.Sleep(time.Minute)
		if got := w.ranges(); len(got) != 1 {
			t.Errorf("leases %v, want 1", got)
		}
		w.once(y)
		q.stop(t)
	})
}

// A lease that was reset is joined when it has come beyond the start that somebody has asked for.
func TestALeaseThatWasResetIsJoined(t *testing.T) {
	for _, to := range []string{"beginning", "time"} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprint(to, ", busy ", busy), func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) {
					p := w.run("maker", &tally{}, changefeed.Options{MinLeases: 2})
					time.Sleep(30 * time.Second)
					w.fill(20)
					time.Sleep(time.Minute)
					start := feed.FromBeginning()
					if to == "time" {
						start = feed.FromTime(time.Now().Add(-10 * time.Second))
					}
					of := w.records(feed.KindLease)[0].Range
					operate(t, func(ctx context.Context) ([]admin.Step, error) {
						return w.admin(admin.Options{}).Reset(ctx, admin.Of(of), start)
					})
					p.stop(t)
					y, stop := &tally{}, func() int { return 0 }
					if busy {
						stop = w.writeEvery(5 * time.Second)
					}
					q := w.run("a", y, changefeed.Options{})
					time.Sleep(4 * joinRest)
					stop()
					time.Sleep(time.Minute)
					if got := w.ranges(); len(got) != 1 {
						t.Errorf("leases %v, want 1", got)
					}
					if n := w.pending(); n != 0 {
						t.Errorf("%d changes are pending", n)
					}
					y.ordered(t)
					q.stop(t)
				})
			})
		}
	}
}

// Where leases cannot be joined, none is handed over for a join or marked, so no handler is closed and opened in vain.
func TestWhatCannotBeJoinedIsNotTried(t *testing.T) {
	later := func(_ *world, l *feed.Record) { l.Position.Start = feed.FromTime(time.Now().Add(100 * time.Hour)) }
	foreign := func(_ *world, l *feed.Record) { delete(l.Properties, notes.GenerationProperty) }
	newer := func(w *world, l *feed.Record) {
		both := feed.Record{
			Kind: feed.KindLease, Version: 1, Token: feed.FullRange().String(), Range: feed.FullRange(),
			Position: l.Position, State: "draining", Properties: maps.Clone(l.Properties),
		}
		if _, err := w.leases.Create(w.t.Context(), both); err != nil {
			w.t.Error(err)
		}
	}
	never := changefeed.Needs{NeverJoin: true}
	for _, c := range []struct {
		what   string
		a, b   changefeed.Needs
		source func(w *world) feed.Source
		edit   func(w *world, l *feed.Record)
	}{
		{what: "a never joins", a: never},
		{what: "b never joins", b: never},
		{what: "no sequencer", source: func(w *world) feed.Source { return struct{ feed.Source }{w.orders} }},
		{what: "made by others", edit: foreign},
		{what: "a start to come", edit: later},
		{what: "a lease of a later version for both", edit: newer},
	} {
		for _, instances := range []int{2, 1}[:detector.Rounds(2, 1)] {
			t.Run(fmt.Sprint(c.what, ", instances ", instances), func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) {
					w.finer(2)
					if c.edit != nil {
						lease := w.records(feed.KindLease)[0]
						c.edit(w, &lease)
						if _, err := w.leases.Update(t.Context(), lease); err != nil {
							t.Fatal(err)
						}
					}
					source := feed.Source(w.orders)
					if c.source != nil {
						source = c.source(w)
					}
					var n turnover
					o := changefeed.Options{Hooks: n.hooks()}
					all := []*process{w.runWith(source, n.store(w), "a", needing{&tally{}, c.a}, o)}
					if instances > 1 {
						all = append(all, w.runWith(source, n.store(w), "b", needing{&tally{}, c.b}, o))
					}
					time.Sleep(joinRest - time.Minute)
					before := n.acquired.Load()
					time.Sleep(8 * joinRest)
					joins := instances == 1 && c.what == "b never joins" // there is no b
					moved, marked := n.acquired.Load()-before, n.marked.Load()
					if !joins && (moved > 0 || marked > 0) {
						t.Errorf("leases were acquired %d times and marked %d times", moved, marked)
					}
					got := len(slices.DeleteFunc(w.atWork(), feed.Record.Free))
					if joins != (got == 1) {
						t.Errorf("%d leases are at work, joined: %v", got, joins)
					}
					for _, p := range all {
						p.stop(t)
					}
				})
			})
		}
	}
}

// An instance that never joins leases says so where the others see it.
func TestWhoNeverJoinsSaysSo(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		uncounted := struct{ feed.Source }{w.orders}
		held := changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: &letterBox{}, HoldKeys: true}
		all := []*process{
			w.run("joins", &tally{}, changefeed.Options{}),
			w.run("needs", needing{&tally{}, changefeed.Needs{NeverJoin: true}}, changefeed.Options{}),
			w.run("holds", &tally{}, changefeed.Options{OnFailure: held}),
			w.runWith(uncounted, w.leases, "uncounted", &tally{}, changefeed.Options{}),
		}
		time.Sleep(time.Minute)
		never := map[string]bool{}
		for _, host := range w.records(feed.KindHost) {
			never[host.Owner] = host.Properties[notes.NeverJoinProperty] != ""
		}
		if want := map[string]bool{"joins": false, "needs": true, "holds": true, "uncounted": true}; !maps.Equal(never,
			want) {
			t.Errorf("never join: %v, want %v", never, want)
		}
		for _, p := range all {
			p.stop(t)
		}
	})
}

// If all instances have as many leases as they may have, neighbours of two owners are joined nevertheless: one of them
// has one more while both are joined, and no longer.
func TestFullInstancesJoin(t *testing.T) {
	for _, c := range []struct{ leases, most, instances int }{
		{6, 2, 3}, {2, 1, 2}, {4, 2, 2}, {8, 4, 2},
	}[:detector.Rounds(4, 1)] {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.finer(c.leases)
				y := &tally{}
				var all []*process
				for i := range c.instances {
					all = append(all, w.run(fmt.Sprint("host", i), y, changefeed.Options{MaxLeases: c.most}))
				}
				stop := w.writeEvery(5 * time.Second)
				defer w.watchLimit(c.most)()
				time.Sleep(12 * joinRest)
				stop()
				if got := w.ranges(); len(got) != 1 {
					t.Errorf("leases %v of %v, want 1", got, w.owners())
				}
				time.Sleep(time.Minute)
				w.once(y)
				for _, p := range all {
					p.stop(t)
				}
			})
		})
	}
}

// watchLimit looks every second until end is called: no owner has more than most leases for longer than a join takes,
// and none has more than one above.
func (w *world) watchLimit(most int) (end func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		since := map[string]time.Time{}
		for ctx.Err() == nil {
			for owner, n := range w.owners() {
				switch at, above := since[owner]; {
				case n <= most || owner == "":
					delete(since, owner)
				case n > most+1:
					w.t.Errorf("%s has %d leases, want %d at most and one for a join", owner, n, most)
				case !above:
					since[owner] = time.Now()
				case time.Since(at) > 20*time.Second:
					w.t.Errorf("%s has had %d leases since %v, want %d", owner, n, at, most)
				}
			}
			time.Sleep(time.Second)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// A lease that cannot be joined keeps only itself from being joined: its neighbours are joined with others.
func TestAFailingLeaseDoesNotKeepOthersApart(t *testing.T) {
	for instances := 1; instances <= 2; instances++ {
		t.Run(fmt.Sprint("instances ", instances), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.finer(8)
				bad := w.townIn(w.ranges()[0])
				y := failsAt(bad)
				var all []*process
				for i := range instances {
					all = append(all, w.run(fmt.Sprint("host", i), y, changefeed.Options{MinLeases: 6}))
				}
				w.put(bad, "bad", 0)
				stop := w.writeEvery(5 * time.Second)
				time.Sleep(8 * joinRest)
				stop()
				if got := w.ranges(); len(got) != 6 {
					t.Errorf("leases %v, want 6: one of the eight fails", got)
				}
				w.tiles()
				for _, p := range all {
					p.stop(t)
				}
			})
		})
	}
}

// A lease that fails when leases are about to be joined is not handed over, and neither is its neighbour.
func TestALeaseThatHasJustFailedIsNotHandedOver(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		bad := w.townIn(w.ranges()[0])
		y := failsAt(bad)
		var n turnover
		a := w.run("a", y, changefeed.Options{Hooks: n.hooks()})
		b := w.run("b", y, changefeed.Options{Hooks: n.hooks()})
		time.Sleep(joinRest - time.Minute)
		before := n.given.Load()
		w.put(bad, "bad", 0)
		time.Sleep(4 * time.Minute)
		if given := n.given.Load() - before; given > 0 {
			t.Errorf("%d leases were handed over, want none: one of both fails", given)
		}
		a.stop(t)
		b.stop(t)
	})
}

// While a change that was parked may come back, because an outage may have been the cause, its lease is not joined. The
// next change that succeeds shows that there was none.
func TestALeaseWithAParkedChangeIsJoinedAfterTheNextSuccess(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		bad := w.townIn(w.ranges()[0])
		y := failsAt(bad)
		p := w.run("a", y, changefeed.Options{OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2, DeadLetters: &letterBox{},
		}})
		w.put(bad, "bad", 0)
		time.Sleep(3 * joinRest)
		if n := len(w.ranges()); n != 2 {
			t.Errorf("%d leases while the change may come back, want 2", n)
		}
		w.fill(20)
		time.Sleep(3 * joinRest)
		if n := len(w.ranges()); n != 1 {
			t.Errorf("%d leases after a success, want 1", n)
		}
		p.stop(t)
	})
}
