package changefeed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
	"github.com/millrace/changefeed/internal/notes"
)

// What the dispatcher does with what the engine says.

var fromStart = changefeed.Options{Start: feed.FromBeginning()}

// leaseOf is the lease of a partition.
func (w *world) leaseOf(p feed.Partition) feed.Record {
	w.t.Helper()
	all := w.records(feed.KindLease)
	i := slices.IndexFunc(all, func(l feed.Record) bool { return l.Range == p.Range })
	if i < 0 {
		w.t.Fatalf("no lease of %v", p.Range)
	}
	return all[i]
}

// Another kind of processor knows the position alone. So in a unit that it shares the position waits for a key that is
// set aside.
func TestThePositionOfASharedUnitWaitsForAKeySetAside(t *testing.T) {
	for _, later := range []bool{false, true} {
		t.Run(fmt.Sprint("later=", later), func(t *testing.T) { sharedWithAKeySetAside(t, later) })
	}
}

// sharedWithAKeySetAside has another processor in the unit, before an instance begins or later.
func sharedWithAKeySetAside(t *testing.T, later bool) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(20)
		setup := w.run("setup", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		setup.stop(t)
		parts := w.partitions()
		h := failsOn(onID("bad"))
		o := changefeed.Options{Concurrency: 2, OnFailure: changefeed.FailurePolicy{MaxAttempts: 1}}
		var p *process
		if later {
			p = w.run("a", h, o)
			time.Sleep(2 * time.Minute)
		}
		foreign := w.leaseOf(parts[0])
		foreign.Owner, foreign.Epoch, foreign.Expiration = "net-1", "", 0
		renew := func() {
			var err error
			foreign.Timestamp = time.Now()
			if foreign, err = w.leases.Update(t.Context(), foreign); err != nil {
				t.Errorf("the other processor lost its lease: %v", err)
			}
		}
		renew() // before an instance begins that would take a free lease
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() {
			defer close(ended)
			for waitFor(ctx, 17*time.Second) {
				renew()
			}
		}()
		if !later {
			p = w.run("a", h, o)
		}
		time.Sleep(2 * time.Minute)
		bad := w.put(w.cityIn(parts[1]), "bad", 1)
		time.Sleep(10 * time.Second)
		for i := range 20 {
			w.put(fmt.Sprintf("city-%d", i), "later", i)
		}
		time.Sleep(time.Minute)
		p.kill(t)
		cancel()
		<-ended
		if items, _ := h.items(); items == 0 {
			t.Fatal("nothing is handled behind the bad change")
		}
		if at := w.leaseOf(parts[1]).Position.Token; at != service.Token(bad-1) {
			t.Errorf("the position is %s, want that before LSN %d", at, bad)
		}
	})
}

// Whoever looks at the unit sees in a lease that there is an outage, and that it is over.
func TestALeaseSaysThatThereIsAnOutage(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h, mended := failsUntilMended()
		w.many(20, 5)
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: &letterBox{}},
		})
		says := func() bool {
			return slices.ContainsFunc(w.records(feed.KindLease), func(l feed.Record) bool {
				return l.Properties[notes.OutageProperty] != ""
			})
		}
		w.until(10*time.Minute, "the outage is in the lease", says)
		mended.Store(true)
		w.until(10*time.Minute, "its end is in the lease", func() bool { return !says() })
		p.stop(t)
	})
}

// setAside leaves a lease whose key oslo is set aside: two changes of it are to be read again, and those of some items
// between them.
func (w *world) setAside(o changefeed.Options, between ...string) changefeed.Options {
	o.Concurrency, o.OnFailure.MaxAttempts = 4, 1
	w.many(20, 5)
	p := w.run("a", failsOn(onID("bad")), o)
	time.Sleep(10 * time.Second)
	w.put("oslo", "bad", 1)
	time.Sleep(10 * time.Second)
	for _, id := range append(between, "next") {
		w.put("oslo", id, 2)
	}
	time.Sleep(10 * time.Second)
	p.stop(w.t)
	return o
}

// ids are which items were handled, in their order.
func (y *tally) ids() (all []string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, c := range y.changes {
		all = append(all, c.ID)
	}
	return all
}

func TestOneChildOfASplitReadsAKeyThatIsSetAside(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		o := w.setAside(fromStart)
		w.split(0)
		said, h := &hearsay{}, &tally{}
		o.Hooks = said.hooks()
		p := w.run("b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if got, want := said.about("key"), []string{string(feed.Key("oslo")) + " caught up"}; !slices.Equal(got, want) {
			t.Errorf("keys %q, want %q", got, want)
		}
		if got, want := h.ids(), []string{"bad", "next"}; !slices.Equal(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
		if errs := p.errs.all(); len(errs) != 0 {
			t.Errorf("reported: %v", errs)
		}
	})
}

// The next owner reads the key from where it continues, and not from where the container begins.
func TestAKeySetAsideIsReadFromWhereItContinues(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		o := w.setAside(fromStart)
		var mu sync.Mutex
		var from []feed.Position
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, at feed.Position,
			ro feed.ReadOptions,
		) (feed.Page, error) {
			if ro.Key != "" {
				mu.Lock()
				from = append(from, at)
				mu.Unlock()
			}
			return w.orders.Read(ctx, r, at, ro)
		}}
		h := &tally{}
		p := w.runWith(source, w.leases, "b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if len(from) == 0 || slices.ContainsFunc(from, func(at feed.Position) bool { return at.Token == "" }) {
			t.Errorf("the key is read from %v", from)
		}
		if got, want := h.ids(), []string{"bad", "next"}; !slices.Equal(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
	})
}

// A damaged note costs no more than what it says.
func TestAKeyThatIsNoneDoesNotStopItsLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		o := w.setAside(fromStart)
		l := w.records(feed.KindLease)[0]
		var a notes.Aside
		if err := json.Unmarshal([]byte(l.Properties[notes.AsideProperty]), &a); err != nil || len(a.Keys) != 1 {
			t.Fatal(err, a)
		}
		a.Keys = append(a.Keys, a.Keys[0])
		a.Keys[1].Key = "oslo without brackets"
		l.Properties[notes.AsideProperty] = a.String()
		if _, err := w.leases.Update(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		h := &tally{}
		p := w.run("b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if got, want := h.ids(), []string{"bad", "next"}; !slices.Equal(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
		if p.errs.find(feed.ErrBadLease) == nil {
			t.Error("nobody hears of the damage")
		}
	})
}

func TestACheckpointOfWhatIsStoredCostsNoWrite(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "one", 1)
		var writes atomic.Int64
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				writes.Add(1)
			}
			return w.leases.Update(ctx, l)
		}}
		var cost []int64
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			for range 5 {
				before := writes.Load()
				if err := b.Checkpoint(ctx); err != nil {
					t.Error(err)
				}
				cost = append(cost, writes.Load()-before)
			}
			return nil
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning(), Manual: true})
		time.Sleep(5 * time.Second)
		p.stop(t)
		if !slices.Equal(cost, []int64{1, 0, 0, 0, 0}) {
			t.Errorf("the checkpoints of a batch cost %v writes", cost)
		}
	})
}

// An operator frees the lease of an instance that has ended, so its next owner does not see that. It sees what was in
// the handler.
func TestACallThatEndedTheProcessCountsThoughItsLeaseWasFreed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		in := make(chan string, 1)
		h := &witness{call: func(ctx context.Context, id string, nth int) error {
			switch nth {
			case 1:
				return errHandler
			case 2:
				return dies(ctx, in, id)
			}
			return nil
		}}
		w.put("oslo", "bad", 1)
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 5,
			DeadLetters: &letterBox{},
		}, Drain: time.Second}
		p := w.run("a", h, o)
		<-in
		p.kill(t)
		l := w.records(feed.KindLease)[0]
		l.Owner, l.Epoch = "", ""
		if _, err := w.leases.Update(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		p = w.run("b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if got := h.attempts["bad"]; !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("attempts %v, want 1, 2 and 3", got)
		}
	})
}

// An instance whose keys are not handled in parallel goes on with what another one has set aside.
func TestAnInstanceInOrderReadsKeysThatAreSetAside(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.setAside(fromStart)
		h := &tally{}
		p := w.run("b", h, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if got, want := h.ids(), []string{"bad", "next"}; !slices.Equal(got, want) || len(h.attempts) == 0 ||
			h.attempts[0] < 2 {
			t.Errorf("handled %v, want %v; attempts %v", got, want, h.attempts)
		}
	})
}

// heldWith is an instance that holds a key for a change, with a letter behind it. When the change comes again, its call
// takes minutes and fails.
func (w *world) heldWith(store feed.LeaseStore) (p *process, h *tally, box *letterBox, lsn int64, again *atomic.Bool) {
	box, again = &letterBox{}, &atomic.Bool{}
	var parked atomic.Bool
	h = &tally{before: func(ctx context.Context, b *feed.Batch) error {
		if !slices.Contains(itemIDs(b), "bad") {
			return nil
		}
		if parked.Load() {
			again.Store(true)
			waitFor(ctx, 5*time.Minute) // its owner hears within a minute that a request is withdrawn
		}
		return errHandler
	}}
	p = w.runWith(w.orders, store, "a", h, changefeed.Options{
		Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2, DeadLetters: box,
			HoldKeys: true,
		}, HandlerTimeout: 10 * time.Minute,
	})
	lsn = w.put("oslo", "bad", 1)
	w.isParked(box, "bad")
	w.put("oslo", "next", 2)
	w.until(time.Minute, "next parked", func() bool { return len(box.all()) == 2 })
	parked.Store(true)
	return p, h, box, lsn, again
}

// A release waits for a retry of its key. Its caller gives up meanwhile, so it is not served after that.
func TestARequestThatIsWithdrawnWhileItWaitsIsNotServed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p, h, box, lsn, again := w.heldWith(w.leases)
		retried := make(chan error, 1)
		go func() {
			_, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
			retried <- err
		}()
		w.until(time.Minute, "the letter in the handler", again.Load)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := deadletters.Release(ctx, w.orders, w.leases, feed.Key("oslo")); err == nil {
			t.Error("the release is served while a letter of its key is in the handler")
		}
		<-retried
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 0 || box.names() != "bad failed, next held" {
			t.Errorf("%d items are handled, letters %q", items, box.names())
		}
	})
}

// The view of the owner may lag: it shows a request that was served, and whose caller has deleted the record. That is
// no failure.
func TestARequestThatIsGoneIsNoFailure(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		gone := 0
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, r feed.Record) (feed.Record, error) {
			if r.Kind == feed.KindRequest {
				gone++
				if err := w.leases.Delete(ctx, r); err != nil {
					return r, err
				}
			}
			return w.leases.Update(ctx, r)
		}
		p, _, _, lsn, _ := w.heldWith(store)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := deadletters.Redrive(ctx, w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
		p.stop(t)
		if gone == 0 || !errors.Is(err, deadletters.ErrNotServed) {
			t.Errorf("%d requests are gone; %v, want that it is not served", gone, err)
		}
		if n := p.reports(feed.ErrNotFound); n != 0 {
			t.Errorf("%d reports of requests that are gone", n)
		}
	})
}

// If the owner dies as soon as the caller has its answer, the key must be free under the next owner, too.
func TestAReleaseIsAnsweredWhenItsLeaseSaysSo(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var answered, held atomic.Int64
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindRequest && l.State == feed.StateRetired {
				answered.Add(1)
				if w.records(feed.KindLease)[0].Properties[notes.HeldProperty] != "" {
					held.Add(1)
				}
			}
			return w.leases.Update(ctx, l)
		}
		p, h, box, _, _ := w.heldWith(store)
		if _, err := deadletters.Release(t.Context(), w.orders, w.leases, feed.Key("oslo")); err != nil {
			t.Error(err)
		}
		p.stop(t)
		if answered.Load() == 0 || held.Load() != 0 {
			t.Errorf("%d answers, and for %d of them the lease holds the key", answered.Load(), held.Load())
		}
		if got := h.ids(); !slices.Equal(got, []string{"next"}) || box.names() != "bad failed" {
			t.Errorf("handled %v, letters %q", got, box.names())
		}
	})
}

// What is read of a key is what the feed would have had: in the same mode, and without what the handler does not want.
// A read that fails is repeated.
func TestAKeySetAsideIsReadAsTheFeedIs(t *testing.T) {
	inWorldOf(t, docstore.ContainerSpec{Ranges: 1, Retention: time.Hour}, func(t *testing.T, w *world) {
		o := w.setAside(changefeed.Options{
			Mode: feed.AllVersionsAndDeletes, MaxItems: 1, Filter: func(c *feed.Change) bool {
				return c.ID != "unwanted"
			},
		}, "unwanted", "unwanted", "unwanted")
		var reads, others atomic.Int64
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, at feed.Position,
			ro feed.ReadOptions,
		) (feed.Page, error) {
			if ro.Key == "" {
				return w.orders.Read(ctx, r, at, ro)
			}
			if ro.Mode != feed.AllVersionsAndDeletes {
				others.Add(1)
			}
			switch n := reads.Add(1); {
			case n == 1:
				return feed.Page{}, errors.New("no read")
			case n > 20:
				waitFor(ctx, time.Second) // a loop without a pause would never let virtual time pass
			}
			return w.orders.Read(ctx, r, at, ro)
		}}
		h := &tally{}
		p := w.runWith(source, w.leases, "b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if got, want := h.ids(), []string{"bad", "next"}; !slices.Equal(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
		if others.Load() != 0 || reads.Load() > 20 {
			t.Errorf("%d of %d reads are in another mode", others.Load(), reads.Load())
		}
	})
}

// A release reads so many letters at a time, because there may be a million.
func TestAReleaseDoesNotReadAllLettersAtOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &letterBox{}
		w.put("oslo", "bad", 1)
		const n = 150
		for i := range n {
			w.put("oslo", fmt.Sprint("next-", i), i)
		}
		p := w.run("a", failsOn(onID("bad", "next-0")), changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box, HoldKeys: true},
		})
		w.until(time.Hour, "all parked", func() bool { return len(box.all()) == n+1 })
		said, err := deadletters.Release(t.Context(), w.orders, w.leases, feed.Key("oslo"))
		p.stop(t)
		if err != nil || said.Result != deadletters.ResultFailed || said.Held != -1 {
			t.Errorf("%+v, %v; want a failure, and that it is not known how many are left", said, err)
		}
	})
}

// The lease could be written after the first letter of a transaction, but not after the second. The next owner finds
// that letter behind the first one, and stores no other.
func TestAHeldChangeOfATransactionHasOneLetter(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var p *process
		box := &letterBox{refuse: func(l feed.DeadLetter) error {
			if l.Change.ID == "next" {
				if w.records(feed.KindLease)[0].Properties["changefeed.held"] == "" {
					return errors.New("the lease does not say yet that the key is held")
				}
				p.wire.Cut()
			}
			return nil
		}}
		h := failsOn(onID("bad"))
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		p = w.run("a", h, o)
		time.Sleep(10 * time.Second)
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
			[]feed.Write{upsert("oslo", "bad", 1), upsert("oslo", "next", 2)}); err != nil {
			t.Fatal(err)
		}
		w.until(time.Minute, "two letters", func() bool { return len(box.all()) == 2 })
		p.kill(t)
		var parked atomic.Int64
		o.Hooks.Parked = func(context.Context, feed.DeadLetter) { parked.Add(1) }
		p = w.run("b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if parked.Load() != 0 || box.names() != "bad failed, next held" || w.pending() != 0 {
			t.Errorf("%d letters are stored again; letters %q, %d pending", parked.Load(), box.names(), w.pending())
		}
	})
}

// A change hangs in the handler, so the position stands still. What is done behind it is noted in the lease as often as
// CheckpointEvery says, and not only when the lease is renewed.
func TestCheckpointEveryHoldsBehindAChangeThatHangs(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			if !slices.Contains(itemIDs(b), "stuck") {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		w.put("oslo", "stuck", 0)
		o := changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 4, CheckpointEvery: 2 * time.Second,
			HandlerTimeout: time.Hour, Drain: time.Second,
		}
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		written := w.records(feed.KindLease)[0].Updated
		w.until(time.Minute, "the lease is renewed", func() bool {
			return w.records(feed.KindLease)[0].Updated.After(written)
		})
		w.many(20, 5)
		time.Sleep(5 * time.Second)
		p.kill(t)
		if items, _ := h.items(); items != 20 {
			t.Fatalf("%d items are handled behind the one that hangs, want 20", items)
		}
		h = &tally{}
		p = w.run("b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if got := h.ids(); !slices.Equal(got, []string{"stuck"}) {
			t.Errorf("the next owner handles %v, want what hung alone", got)
		}
	})
}

// MaxAge is a limit like MaxAttempts: one key that fails holds up no other one, also with a concurrency of 1.
func TestMaxAgeAloneFreesTheOtherKeys(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &letterBox{}
		w.put("oslo", "bad", 1)
		w.many(20, 5)
		h := failsOn(onID("bad"))
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAge: time.Hour, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		w.put("city-1", "later", 1)
		time.Sleep(20 * time.Minute)
		if items, _ := h.items(); items != 21 || len(box.all()) != 0 {
			t.Errorf("%d items are handled before MaxAge is over, want 21; letters %q", items, box.names())
		}
		p.stop(t)
	})
}

// A letter says of the last failure alone why its change is not done.
func TestALetterWhoseRetryFailsHasNoStackOfAnEarlierPanic(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var panics atomic.Bool
		panics.Store(true)
		h := failsOn(func(feed.Change) error {
			if panics.Load() {
				panic("no such column")
			}
			return errHandler
		})
		box := &letterBox{}
		lsn := w.put("oslo", "bad", 1)
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box},
		})
		w.isParked(box, "bad")
		if l := box.all()[0]; l.Stack == "" {
			t.Error("a letter of a panic has no stack")
		}
		panics.Store(false)
		if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"),
			letterNamed(lsn, "bad")); err != nil {
			t.Error(err)
		}
		p.stop(t)
		if l := box.all()[0]; l.Cause != errHandler.Error() || l.Stack != "" {
			t.Errorf("cause %q, stack %q", l.Cause, l.Stack)
		}
	})
}

// Each change of a transaction has a letter, and a retry that fails is noted in its own.
func TestTheSecondLetterOfATransactionSaysWhyItsRetryFailed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var later atomic.Bool
		errLater := errors.New("no such column")
		h := failsOn(func(feed.Change) error {
			if later.Load() {
				return errLater
			}
			return errHandler
		})
		results, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
			[]feed.Write{upsert("oslo", "one", 1), upsert("oslo", "two", 2)})
		if err != nil {
			t.Fatal(err)
		}
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box},
		})
		w.until(5*time.Minute, "both parked", func() bool { return box.names() == "one failed, two failed" })
		later.Store(true)
		said, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"),
			letterNamed(results[0].LSN, "two"))
		p.stop(t)
		if err != nil || said.Result != deadletters.ResultFailed {
			t.Errorf("%+v, %v; want that it has failed again", said, err)
		}
		for _, l := range box.all() {
			if want := map[string]string{
				"one": errHandler.Error(),
				"two": errLater.Error(),
			}[l.Change.ID]; l.Cause != want {
				t.Errorf("the letter of %s says %q, want %q", l.Change.ID, l.Cause, want)
			}
		}
	})
}

// interruptedBox is a box whose letters cannot be read for a minute after the first one was removed.
type interruptedBox struct {
	*blindBox
	once sync.Once
}

func (b *interruptedBox) Remove(ctx context.Context, key feed.PartitionKey, id string) error {
	b.once.Do(func() {
		b.blind.Store(true)
		time.AfterFunc(time.Minute, func() { b.blind.Store(false) })
	})
	return b.blindBox.Remove(ctx, key, id)
}

// The dead letters do not answer in the middle of a retry, which is served on later. Its caller hears of all letters.
func TestAnOutcomeCountsTheLettersOfEarlierTries(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h, mended := failsUntilMended()
		lsn := w.put("oslo", "bad", 1)
		box := &interruptedBox{blindBox: &blindBox{letterBox: &letterBox{}}}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
		})
		w.isParked(box.letterBox, "bad")
		w.put("oslo", "next", 2)
		w.until(time.Minute, "next parked", func() bool { return len(box.all()) == 2 })
		mended.Store(true)
		said, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
		p.stop(t)
		if err != nil || said.Result != deadletters.ResultHandled || said.Handled != 2 ||
			p.errs.find(errMissing) == nil {
			t.Errorf("%+v, %v; want two letters that were handled; said %v", said, err, p.errs.find(errMissing))
		}
	})
}

// stickyBox is a box that fails once to remove the letter of an item, or loses the answer.
type stickyBox struct {
	*letterBox
	of   string
	lost bool
	once sync.Once
}

func (b *stickyBox) Remove(ctx context.Context, key feed.PartitionKey, id string) (err error) {
	if _, hash, _ := strings.Cut(id, "."); "0."+hash == letterNamed(0, b.of) {
		b.once.Do(func() { err = errors.New("no letter is removed") })
	}
	if err != nil && !b.lost {
		return err
	}
	return errors.Join(err, b.letterBox.Remove(ctx, key, id))
}

// A letter that was handled, and could not be removed, is handled again: that is one letter.
func TestALetterThatCouldNotBeRemovedCountsOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h, mended := failsUntilMended()
		lsn := w.put("oslo", "bad", 1)
		box := &stickyBox{letterBox: &letterBox{}, of: "bad"}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		w.isParked(box.letterBox, "bad")
		mended.Store(true)
		said, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
		p.stop(t)
		if _, again := h.items(); again != 1 {
			t.Errorf("%d items are handled again, want 1", again)
		}
		if err != nil || said.Result != deadletters.ResultHandled || said.Handled != 1 || box.names() != "" {
			t.Errorf("%+v, %v, letters %q; want one letter", said, err, box.names())
		}
	})
}

// So it is with a held letter, whether its key is released or it follows a retry, and if the letter is gone all the
// same.
func TestAHeldLetterThatCouldNotBeRemovedCountsOnce(t *testing.T) {
	for n := range 4 {
		retry, lost := n&1 > 0, n&2 > 0
		t.Run(fmt.Sprintf("retry %v, answer lost %v", retry, lost), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var mended atomic.Bool
				lsn := w.put("oslo", "bad", 1)
				box := &stickyBox{letterBox: &letterBox{}, of: "next", lost: lost}
				p := w.run("a", breaking(&mended, "bad"), changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
				})
				w.isParked(box.letterBox, "bad")
				w.put("oslo", "next", 2)
				w.put("oslo", "last", 3)
				w.until(time.Minute, "all parked", func() bool { return len(box.all()) == 3 })
				mended.Store(true)
				oslo, want := feed.Key("oslo"), deadletters.Outcome{Result: deadletters.ResultHandled, Handled: 2}
				ask := func() (deadletters.Outcome, error) {
					return deadletters.Release(t.Context(), w.orders, w.leases, oslo)
				}
				if retry {
					want.Handled = 3
					ask = func() (deadletters.Outcome, error) {
						return deadletters.Redrive(t.Context(), w.orders, w.leases, oslo, letterNamed(lsn, "bad"))
					}
				}
				if said, err := ask(); said != want || err != nil {
					t.Errorf("%+v, %v; want %+v", said, err, want)
				}
				p.stop(t)
			})
		})
	}
}
