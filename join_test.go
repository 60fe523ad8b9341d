package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// joinRest is how long a unit must have too many leases before they are joined.
const joinRest = 5 * time.Minute

// finer makes the leases of a unit that asks for many, and stops it.
func (w *world) finer(leases int) {
	p := w.run("maker", &tally{}, changefeed.Options{MinLeases: leases, Start: feed.FromBeginning()})
	time.Sleep(30 * time.Second)
	p.stop(w.t)
	if n := len(w.ranges()); n != leases {
		w.t.Fatalf("%d leases, want %d", n, leases)
	}
}

// Leases are joined while the unit works: nothing is skipped or comes twice, and the order of each key is kept.
func TestLeasesAreJoinedWhileTheUnitWorks(t *testing.T) {
	for _, c := range []struct{ partitions, leases, least, want, instances, concurrency int }{
		{1, 2, 0, 1, 2, 1}, {2, 10, 3, 4, 3, 4}, {1, 8, 0, 1, 1, 1}, {1, 8, 3, 3, 1, 4}, {2, 8, 0, 2, 2, 1},
	}[:detector.Rounds(5, 2)] {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			inWorld(t, c.partitions, func(t *testing.T, w *world) {
				w.finer(c.leases)
				y := &tally{}
				var all []*process
				for n := range c.instances {
					all = append(all, w.run(fmt.Sprint("host", n), y,
						changefeed.Options{MaxItems: 3, Concurrency: c.concurrency, MinLeases: c.least}))
				}
				stop := w.writeEvery(700 * time.Millisecond)
				time.Sleep(joinRest)
				if n := len(w.ranges()); n != c.leases {
					t.Errorf("%d leases after %v, want all %d: it may be a restart", n, joinRest, c.leases)
				}
				time.Sleep(6 * joinRest)
				if got := w.ranges(); len(got) != c.want {
					t.Errorf("%d leases, want %d: %v", len(got), c.want, got)
				}
				written := stop()
				time.Sleep(time.Minute)
				if items, again := y.items(); items != 20 || items+again != written {
					t.Errorf("%d items, %d later deliveries of %d writes", items, again, written)
				}
				y.ordered(t)
				w.tiles()
				for _, p := range all {
					p.stop(t)
				}
			})
		})
	}
}

// The highest MinLeases of the running instances counts, and leases are never cut and joined alternately.
func TestInstancesWithDifferentMinLeasesDoNotFight(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		a := w.run("a", y, changefeed.Options{MinLeases: 3})
		time.Sleep(time.Minute)
		b := w.run("b", y, changefeed.Options{MinLeases: 8})
		c := w.run("c", y, changefeed.Options{MinLeases: 5})
		time.Sleep(4 * joinRest)
		first := w.ranges()
		if len(first) != 8 {
			t.Errorf("%d leases, want 8: %v", len(first), first)
		}
		b.stop(t)
		time.Sleep(joinRest - time.Minute)
		if now := w.ranges(); !slices.Equal(now, first) {
			t.Errorf("leases %v became %v within %v", first, now, joinRest)
		}
		b = w.run("b", y, changefeed.Options{MinLeases: 8})
		time.Sleep(2 * joinRest)
		if now := w.ranges(); !slices.Equal(now, first) {
			t.Errorf("leases %v became %v after a restart", first, now)
		}
		b.stop(t)
		time.Sleep(6 * joinRest)
		second := w.ranges()
		if len(second) != 5 {
			t.Errorf("%d leases, want 5: %v", len(second), second)
		}
		time.Sleep(4 * joinRest)
		if now := w.ranges(); !slices.Equal(now, second) {
			t.Errorf("leases %v became %v", second, now)
		}
		w.tiles()
		a.stop(t)
		c.stop(t)
	})
}

// The leases of a partition are joined, and those of different partitions are not. After a merge of the partitions
// their leases are joined, too.
func TestJoinedLeasesAreThoseOfAPartition(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.finer(6)
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(4 * joinRest)
		var want []string
		partitions, err := w.orders.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, partition := range partitions {
			want = append(want, partition.Range.String())
		}
		if got := w.ranges(); !slices.Equal(got, want) {
			t.Errorf("leases %v, want those of the partitions %v", got, want)
		}
		w.merge(0)
		time.Sleep(4 * joinRest)
		if got := w.ranges(); !slices.Equal(got, []string{feed.FullRange().String()}) {
			t.Errorf("leases %v after the merge, want one", got)
		}
		p.stop(t)
	})
}

// A crash between any two writes of a join loses nothing and repeats nothing: the next owner of each lease goes on with
// it, or deletes it if the lease of both exists.
func TestAJoinSurvivesACrashBetweenAnyTwoSteps(t *testing.T) {
	const steps = 5 // mark both leases, create the lease of both, delete the two
	for left := range steps + 1 {
		t.Run(fmt.Sprintf("after %d steps", left), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.finer(2)
				y := &tally{}
				p := w.runToCrash(left, "a", y, changefeed.Options{})
				w.fill(20)
				time.Sleep(joinRest + time.Minute)
				p.cancel()
				if err := <-p.done; err != nil {
					t.Error(err)
				}
				if p.errs.find(errCrash) == nil && left < steps {
					t.Error("there was no crash: the test shows nothing")
				}
				w.fill(20)
				b := w.run("b", y, changefeed.Options{})
				time.Sleep(3 * time.Minute)
				if n := w.pending(); n != 0 {
					t.Errorf("%d pending", n)
				}
				if items, again := y.items(); items != 20 || again != 20 {
					t.Errorf("%d items, %d again; want both versions of all 20 once", items, again)
				}
				want := 2
				if left >= 3 {
					want = 1 // the lease of both is made
				}
				if got := len(w.ranges()); got != want {
					t.Errorf("%d leases, want %d", got, want)
				}
				time.Sleep(2 * joinRest)
				if got := len(w.ranges()); got != 1 {
					t.Errorf("%d leases in the end, want 1", got)
				}
				y.ordered(t)
				w.tiles()
				b.stop(t)
			})
		})
	}
}

// once checks that nothing was delivered twice, and that nothing is left.
func (w *world) once(y *tally) {
	w.t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for name, lsns := range y.seen {
		for i := 1; i < len(lsns); i++ {
			if lsns[i] <= lsns[i-1] {
				w.t.Errorf("item %s was delivered at LSN %d after %d", name, lsns[i], lsns[i-1])
			}
		}
	}
	if n := w.pending(); n != 0 {
		w.t.Errorf("%d pending", n)
	}
}

// joinTwo runs two instances, whose lease store is given, until two leases are joined, while items are written.
func (w *world) joinTwo(store *hookedStore) {
	w.finer(2)
	y := &tally{}
	a := w.runWith(w.orders, store, "a", y, changefeed.Options{})
	stop := w.writeEvery(700 * time.Millisecond)
	time.Sleep(time.Minute)
	b := w.runWith(w.orders, store, "b", y, changefeed.Options{})
	w.until(8*joinRest, "joined", w.isJoined)
	stop()
	time.Sleep(4 * time.Minute) // for creates that are late
	w.once(y)
	if all := w.atWork(); len(all) != 1 || all[0].Range != feed.FullRange() || all[0].Free() {
		w.t.Errorf("%d leases are at work, want 1 that all keys have", len(all))
	}
	a.stop(w.t)
	b.stop(w.t)
}

// atWork lists the leases at work.
func (w *world) atWork() (all []feed.Record) {
	for _, lease := range w.records(feed.KindLease) {
		if lease.State == feed.StateLive {
			all = append(all, lease)
		}
	}
	return all
}

// isJoined reports whether a single lease is left. A lease that was created too late is no lease, but stands beside
// leases that are splitting.
func (w *world) isJoined() bool {
	return len(w.atWork()) == 1 && !slices.ContainsFunc(w.records(feed.KindLease), func(l feed.Record) bool {
		return l.State == feed.StateSplitting
	})
}

// If the answer to the create is lost, or the create comes too late, nothing is skipped or comes twice.
func TestALostOrLateCreateOfAJoinedLeaseRepeatsNothing(t *testing.T) {
	noAnswer := errors.New("no answer")
	for _, late := range []time.Duration{
		58 * time.Second, 63 * time.Second, 0, 20 * time.Second, 3 * time.Minute,
	}[:detector.Rounds(5, 2)] {
		t.Run(fmt.Sprint("after ", late), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var creates sync.WaitGroup
				var mu sync.Mutex
				var first time.Time
				store := &hookedStore{Leases: w.leases}
				store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case l.Kind != feed.KindLease || !first.IsZero() && time.Since(first) > 2*time.Minute:
						return w.leases.Create(ctx, l)
					case first.IsZero():
						first = time.Now()
						due, ok := notes.ReadDue(l.Properties[notes.DueProperty])
						if !ok || due.By.After(first.Add(time.Minute)) {
							t.Errorf("the create may arrive until %v, want within the expiration of both leases", due.By)
						}
						creates.Go(func() {
							time.Sleep(late)
							_, _ = w.leases.Create(context.WithoutCancel(ctx), l) // nobody hears the answer
						})
					}
					return l, noAnswer
				}
				w.joinTwo(store)
				creates.Wait()
				if first.IsZero() {
					t.Error("no lease was joined: the test shows nothing")
				}
			})
		})
	}
}

// Without the right to delete, the joined leases are retired, and made live again when the lease of both is cut.
func TestLeasesAreJoinedAndCutWithoutTheRightToDelete(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		store.delete = func(context.Context, feed.Record) error { return feed.ErrForbidden }
		w.joinTwo(store)
		y := &tally{}
		p := w.runWith(w.orders, store, "c", y, changefeed.Options{MinLeases: 2})
		w.fill(20)
		time.Sleep(time.Minute)
		if all := w.atWork(); len(all) != 2 {
			t.Errorf("%d leases are at work, want 2", len(all))
		}
		w.once(y)
		p.stop(t)
		time.Sleep(time.Minute)
		p = w.runWith(w.orders, store, "d", y, changefeed.Options{})
		w.until(4*joinRest, "joined again", w.isJoined)
		w.fill(20)
		time.Sleep(time.Minute)
		w.once(y)
		p.stop(t)
	})
}

// A paused lease is joined when the pause is over.
func TestAPausedLeaseIsNotJoined(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		unit := w.admin(admin.Options{})
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		time.Sleep(3 * joinRest)
		if n := len(w.ranges()); n != 2 {
			t.Errorf("%d leases while the unit is paused, want 2", n)
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		time.Sleep(3 * joinRest)
		if n := len(w.ranges()); n != 1 {
			t.Errorf("%d leases after the pause, want 1", n)
		}
		a.stop(t)
	})
}

// While another kind of processor owns a lease, no lease is joined, because that processor does not know leases that
// are splitting.
func TestNothingIsJoinedBesideAForeignOwner(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(4)
		end := w.renewAsForeigner()
		b := w.run("b", &tally{}, changefeed.Options{})
		time.Sleep(3 * joinRest)
		if n := len(w.ranges()); n != 4 {
			t.Errorf("%d leases beside a foreign owner, want 4", n)
		}
		end()
		time.Sleep(4 * joinRest)
		if n := len(w.ranges()); n != 1 {
			t.Errorf("%d leases when the foreign owner has gone, want 1", n)
		}
		b.stop(t)
	})
}

// If a handler keeps something for each range, its instance joins no lease.
func TestAHandlerThatKeepsRangesHasNoLeaseJoined(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		p := w.run("a", needing{&tally{}, changefeed.Needs{NeverJoin: true}}, changefeed.Options{})
		time.Sleep(3 * joinRest)
		if n := len(w.ranges()); n != 2 {
			t.Errorf("%d leases, want 2", n)
		}
		p.stop(t)
		p = w.run("b", &tally{}, changefeed.Options{OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2, DeadLetters: &letterBox{}, HoldKeys: true,
		}})
		time.Sleep(3 * joinRest)
		if n := len(w.ranges()); n != 2 {
			t.Errorf("%d leases where keys may be held, want 2", n)
		}
		p.stop(t)
	})
}

// A lease whose changes fail, or stay in the handler, is not joined. Its neighbour goes on, and nothing comes twice.
func TestALeaseThatCannotSettleIsNotJoined(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails ", fails), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.finer(2)
				y := &tally{}
				bad, mended := w.townIn(w.ranges()[0]), make(chan struct{})
				p := w.run("a", feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
					if b.Changes[0].PartitionKey != feed.Key(bad) {
						return y.Handle(ctx, b)
					}
					select {
					case <-mended:
						return y.Handle(ctx, b)
					default:
					}
					if fails {
						return errors.New("fails")
					}
					<-mended
					return y.Handle(ctx, b)
				}), changefeed.Options{HandlerTimeout: time.Hour})
				w.put(bad, "bad", 0)
				stop := w.writeEvery(700 * time.Millisecond)
				time.Sleep(2 * joinRest)
				if n := len(w.ranges()); n != 2 {
					t.Errorf("%d leases, want 2", n)
				}
				if items, _ := y.items(); items < 5 {
					t.Errorf("%d items of the neighbour", items)
				}
				close(mended)
				time.Sleep(4 * joinRest)
				stop()
				time.Sleep(time.Minute)
				if n := len(w.ranges()); n != 1 {
					t.Errorf("%d leases in the end, want 1", n)
				}
				w.once(y)
				p.stop(t)
			})
		})
	}
}

// townIn returns a key within a range.
func (w *world) townIn(r string) string {
	of, err := feed.ParseRange(r)
	if err != nil {
		w.t.Fatal(err)
	}
	for n := range 1000 {
		town := fmt.Sprint("town-", n)
		if at, err := w.orders.Locate(w.t.Context(), feed.Key(town)); err == nil && of.Holds(at) {
			return town
		}
	}
	w.t.Fatal("no key in the range")
	return ""
}

// A lease that an earlier owner was about to join is not begun before it is sure whether the lease of both exists.
func TestAMarkedLeaseWaitsForTheLeaseOfBoth(t *testing.T) {
	for _, arrives := range []bool{false, true} {
		t.Run(fmt.Sprint("arrives ", arrives), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.finer(2)
				until := time.Now().Add(30 * time.Second)
				all := w.records(feed.KindLease)
				for _, lease := range all {
					records.MarkJoining(&lease, feed.FullRange(), until)
					if _, err := w.leases.Update(t.Context(), lease); err != nil {
						t.Fatal(err)
					}
				}
				w.fill(20)
				y := &tally{}
				p := w.run("b", y, changefeed.Options{})
				time.Sleep(20 * time.Second)
				if items, _ := y.items(); items != 0 || len(w.atWork()) != 0 {
					t.Errorf("%d items, and leases %v at work, while the lease of both may arrive", items, w.atWork())
				}
				want := 2
				if arrives {
					want = 1
					joint := records.Joint(all[0], all[1])
					joint.Timestamp = time.Now()
					records.SetDue(&joint, until)
					if _, err := w.leases.Create(t.Context(), joint); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				if items, again := y.items(); items != 20 || again != 0 || len(w.ranges()) != want {
					t.Errorf("%d items, %d again, leases %v; want all 20 once, and %d leases", items, again, w.ranges(),
						want)
				}
				w.tiles()
				p.stop(t)
			})
		})
	}
}

// If an instance stops while the answer to the create is missing, nothing comes twice, whether the create arrives or
// not.
func TestAStopDuringAJoinRepeatsNothing(t *testing.T) {
	for _, late := range []time.Duration{40 * time.Second, 70 * time.Second} {
		t.Run(fmt.Sprint("after ", late), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.finer(2)
				y, sent := &tally{}, make(chan struct{}, 100)
				var creates sync.WaitGroup
				store := &hookedStore{Leases: w.leases}
				store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
					if l.Kind != feed.KindLease {
						return w.leases.Create(ctx, l)
					}
					creates.Go(func() {
						time.Sleep(late)
						_, _ = w.leases.Create(context.WithoutCancel(ctx), l) // nobody hears the answer
					})
					sent <- struct{}{}
					<-ctx.Done()
					return l, ctx.Err()
				}
				a := w.runWith(w.orders, store, "a", y, changefeed.Options{})
				stop := w.writeEvery(700 * time.Millisecond)
				<-sent
				a.stop(t)
				b := w.run("b", y, changefeed.Options{})
				time.Sleep(4 * time.Minute)
				stop()
				creates.Wait()
				time.Sleep(time.Minute)
				want := 1
				if late > time.Minute {
					want = 2
				}
				if n := len(w.ranges()); n != want {
					t.Errorf("leases %v, want %d", w.ranges(), want)
				}
				w.once(y)
				w.tiles()
				b.stop(t)
			})
		})
	}
}

// stuckClose is a handler whose Close does not return for a lease that is joined.
type stuckClose struct {
	*tally
	of      string
	until   chan struct{}
	entered atomic.Bool
}

func (h *stuckClose) Close(_ context.Context, l feed.Lease, why feed.Reason) error {
	if l.Token == h.of && why == feed.ReasonJoined {
		h.entered.Store(true)
		<-h.until
	}
	return nil
}

// If the handler of a lease is stuck before its lease is marked, the neighbour does not wait for that lease.
func TestANeighbourDoesNotWaitForAStuckHandler(t *testing.T) {
	for n := range 2 {
		t.Run(fmt.Sprint("lease ", n), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.finer(2)
				h := &stuckClose{tally: &tally{}, of: w.ranges()[n], until: make(chan struct{})}
				town := w.townIn(w.ranges()[1-n])
				a := w.run("a", h, changefeed.Options{})
				w.until(2*joinRest, "stuck", h.entered.Load)
				time.Sleep(time.Minute)
				w.put(town, "late", 1)
				time.Sleep(30 * time.Second)
				if items, _ := h.items(); items != 1 {
					t.Errorf("%d items, want that of the neighbour", items)
				}
				close(h.until)
				a.stop(t)
			})
		})
	}
}

// Each owner of a key has a higher number than the owners before it, also after a join.
func TestTheOwnerOfAJoinedLeaseHasAHigherEpoch(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		for n := range 3 { // the owners of one of them have higher numbers
			for _, lease := range w.records(feed.KindLease)[:1] {
				records.SetProperty(&lease, notes.TermProperty, notes.PlainNumber(int64(100+n)))
				if _, err := w.leases.Update(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
			}
		}
		var mu sync.Mutex
		last := map[feed.PartitionKey]int64{}
		var joined int64
		p := w.run("a", feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range b.Changes {
				if b.Epoch < last[c.PartitionKey] {
					t.Errorf("the owner of %s has number %d after %d", c.PartitionKey, b.Epoch, last[c.PartitionKey])
				}
				last[c.PartitionKey] = b.Epoch
			}
			if b.Range == feed.FullRange() {
				joined = b.Epoch
			}
			return nil
		}), changefeed.Options{})
		stop := w.writeEvery(700 * time.Millisecond)
		time.Sleep(2 * joinRest)
		stop()
		p.stop(t)
		if joined <= 103 {
			t.Errorf("the owner of the joined lease has number %d, want more than 103", joined)
		}
	})
}
