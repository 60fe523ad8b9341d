package changefeedtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/feed"
)

var beginning = feed.Position{Start: feed.FromBeginning()}

// upsert is a batch of one item.
func upsert(id string) []feed.Write {
	return []feed.Write{{Body: fmt.Appendf(nil, `{"id":%q,"pk":"k"}`, id)}}
}

// committed are the ids of the items in a store.
func committed(t *testing.T, s feed.Source) []string {
	t.Helper()
	page, err := s.Read(t.Context(), feed.FullRange(), beginning, feed.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, c := range page.Changes {
		ids = append(ids, c.ID)
	}
	return ids
}

func TestARefusedCallIsNotMadeAndALostOneIs(t *testing.T) {
	s := monitored(t, changefeedtest.Container{Paths: []string{"/pk"}})
	broken := errors.New("broken")
	c := changefeedtest.Any(
		changefeedtest.Nth(changefeedtest.CommitterCommit, 1, changefeedtest.Refuse(broken)),
		changefeedtest.Nth(changefeedtest.CommitterCommit, 1, changefeedtest.Lose()),
	).Committer(s.Committer)
	for i, want := range []error{broken, changefeedtest.ErrInjected, nil} {
		results, err := c.Commit(t.Context(), feed.Key("k"), upsert(fmt.Sprint("item", i)))
		if !errors.Is(err, want) || (err == nil) != (len(results) == 1) {
			t.Errorf("commit %d = %d results, %v, want error %v", i, len(results), err, want)
		}
	}
	if got := committed(t, s.Source); !slices.Equal(got, []string{"item1", "item2"}) {
		t.Errorf("committed %v, want the lost item and the good one", got)
	}
}

func TestDelaysComeBeforeAndAfterTheEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := monitored(t, changefeedtest.Container{Paths: []string{"/pk"}})
		slow := changefeedtest.Always(changefeedtest.Fault{
			Delay:      3 * time.Second,
			DelayAfter: 4 * time.Second,
		}).Committer(s.Committer)
		begin := time.Now()
		_, err := slow.Commit(t.Context(), feed.Key("k"), upsert("a"))
		if took := time.Since(begin); err != nil || took != 7*time.Second {
			t.Errorf("a slow commit: %v after %v, want success after 7s", err, took)
		}
		for after, want := range map[time.Duration]string{2 * time.Second: "not made", 5 * time.Second: "made"} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			if _, err := slow.Commit(ctx, feed.Key("k"), upsert(want)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a commit that was given up after %v: %v", after, err)
			}
			cancel()
		}
		if got := committed(t, s.Source); !slices.Equal(got, []string{"a", "made"}) {
			t.Errorf("committed %v, want a and made", got)
		}
	})
}

func TestThrottlingAndConflictsLookReal(t *testing.T) {
	s := monitored(t, changefeedtest.Container{Paths: []string{"/pk"}})
	throttled := changefeedtest.Always(changefeedtest.Throttle(20 * time.Millisecond)).Source(s.Source)
	_, err := throttled.Read(t.Context(), feed.FullRange(), beginning, feed.ReadOptions{})
	if pause, ok := errors.AsType[*feed.ThrottledError](err); !errors.Is(err, feed.ErrThrottled) || !ok ||
		pause.After != 20*time.Millisecond {
		t.Errorf("a throttled read: %v", err)
	}
	if _, err := throttled.Partitions(t.Context()); !errors.Is(err, feed.ErrThrottled) {
		t.Errorf("throttled partitions: %v", err)
	}
	store := leaseContainer(t).Unit(t, "unit")
	l, err := store.Create(t.Context(), feed.Record{Kind: feed.KindLease, Token: "0"})
	if err != nil {
		t.Fatal(err)
	}
	contested := changefeedtest.Random(rand.New(rand.NewPCG(1, 1)), changefeedtest.Rates{Conflict: 1}).Leases(store)
	if _, err := contested.Update(t.Context(), l); !errors.Is(err, feed.ErrConflict) {
		t.Errorf("a contested update: %v", err)
	}
	if records, _, err := contested.List(t.Context()); err != nil || len(records) != 1 || records[0].ETag != l.ETag {
		t.Errorf("after a contested update: %+v, %v", records, err)
	}
}

func TestABlackoutHasABeginningAndAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leaseContainer(t).Unit(t, "unit")
		begin := time.Now()
		dark := changefeedtest.Window{From: begin.Add(10 * time.Second), To: begin.Add(20 * time.Second)}
		flaky := changefeedtest.Blackout(nil, dark).Leases(store)
		for second := range 30 {
			if _, _, err := flaky.List(t.Context()); (err != nil) != (second >= 10 && second < 20) {
				t.Errorf("List after %d s: %v", second, err)
			}
			<-time.After(time.Second) // of the bubble
		}
	})
}

func TestOneSeedMakesOneOrderOfFaults(t *testing.T) {
	rates := changefeedtest.Rates{Refuse: 0.1, Lose: 0.1, Throttle: 0.1, Conflict: 0.1, Slow: 0.1, SlowAway: 0.1}
	draw := func(seed uint64, rates changefeedtest.Rates) []string {
		plan := changefeedtest.Random(rand.New(rand.NewPCG(seed, 0)), rates)
		var faults []string
		for range 2000 {
			faults = append(faults, fmt.Sprint(plan(changefeedtest.Call{Method: changefeedtest.LeaseUpdate})))
		}
		return faults
	}
	first := draw(1, rates)
	if !slices.Equal(first, draw(1, rates)) {
		t.Error("one seed gave two orders of faults")
	}
	if slices.Equal(first, draw(2, rates)) {
		t.Error("two seeds gave one order of faults")
	}
	if none := draw(1, changefeedtest.Rates{}); slices.ContainsFunc(none, func(f string) bool { return f != none[0] }) {
		t.Error("no rates gave faults")
	}
}

func TestRatesAreKept(t *testing.T) {
	const calls = 20_000
	plan := changefeedtest.Random(rand.New(rand.NewPCG(7, 7)), changefeedtest.Rates{
		Refuse: 0.1, Lose: 0.2,
		Throttle: 0.3, Conflict: 0.05, Slow: 0.5, MaxDelay: time.Minute,
	})
	counts := map[string]int{}
	for range calls {
		fault := plan(changefeedtest.Call{Method: changefeedtest.LeaseUpdate})
		switch {
		case errors.Is(fault.Before, changefeedtest.ErrInjected):
			counts["refuse"]++
		case errors.Is(fault.Before, feed.ErrThrottled):
			counts["throttle"]++
		case errors.Is(fault.Before, feed.ErrConflict):
			counts["conflict"]++
		case fault.After != nil:
			counts["lose"]++
		}
		if fault.Delay > 0 {
			counts["slow"]++
		}
		if fault.Delay > time.Minute || fault.DelayAfter != 0 {
			t.Fatalf("fault %+v, want a delay of up to a minute before the call", fault)
		}
	}
	for what, rate := range map[string]float64{
		"refuse": 0.1, "lose": 0.2, "throttle": 0.3, "conflict": 0.05,
		"slow": 0.5,
	} {
		if got := float64(counts[what]) / calls; got < rate-0.02 || got > rate+0.02 {
			t.Errorf("rate of %s is %.3f, want %.2f", what, got, rate)
		}
	}
}

func TestPlansMayBeUsedConcurrently(t *testing.T) {
	s := monitored(t, changefeedtest.Container{Paths: []string{"/pk"}})
	var counts changefeedtest.Counts
	plan := changefeedtest.Any(
		changefeedtest.Nth(changefeedtest.SourceRead, 50, changefeedtest.Lose()),
		changefeedtest.Random(rand.New(rand.NewPCG(1, 2)), changefeedtest.Rates{Refuse: 0.2}),
	)
	source := counts.Source(plan.Source(s.Source))
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 20 {
				if _, err := source.Read(t.Context(), feed.FullRange(), beginning, feed.ReadOptions{}); err != nil &&
					!errors.Is(err, changefeedtest.ErrInjected) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := counts.Of(changefeedtest.SourceRead); got != 200 {
		t.Errorf("%d reads counted, want 200", got)
	}
}

// Only one of the optional abilities each.
type (
	waitingSource struct {
		feed.Source
		feed.Waiter
	}
	countingSource struct {
		feed.Source
		feed.Counter
	}
	locatingSource struct {
		feed.Source
		feed.Locator
	}
)

func TestWrappersHaveTheAbilitiesOfWhatTheyWrap(t *testing.T) {
	s := monitored(t, changefeedtest.Container{Paths: []string{"/pk"}})
	waiter, counter, locator := s.Source.(feed.Waiter), s.Source.(feed.Counter), s.Source.(feed.Locator)
	abilities := func(s feed.Source) (has [3]bool) {
		_, has[0] = s.(feed.Waiter)
		_, has[1] = s.(feed.Counter)
		_, has[2] = s.(feed.Locator)
		return has
	}
	var counts changefeedtest.Counts
	none := changefeedtest.Always(changefeedtest.Fault{})
	for _, inner := range []feed.Source{
		s.Source,
		struct{ feed.Source }{s.Source},
		waitingSource{s.Source, waiter},
		countingSource{s.Source, counter},
		locatingSource{s.Source, locator},
		struct {
			waitingSource
			feed.Counter
		}{waitingSource{s.Source, waiter}, counter},
		struct {
			waitingSource
			feed.Locator
		}{waitingSource{s.Source, waiter}, locator},
		struct {
			countingSource
			feed.Locator
		}{countingSource{s.Source, counter}, locator},
	} {
		for _, wrapped := range []feed.Source{
			none.Source(inner), counts.Source(inner),
			counts.Source(none.Source(inner)),
		} {
			if got, want := abilities(wrapped), abilities(inner); got != want {
				t.Errorf("a wrapped source is a Waiter, Counter, Locator: %v, want %v", got, want)
			}
		}
	}
	store := leaseContainer(t).Unit(t, "unit")
	for _, wrapped := range []feed.LeaseStore{none.Leases(store), counts.Leases(store)} {
		if _, follows := wrapped.(feed.Follower); !follows {
			t.Error("a wrapped lease store that can be followed cannot")
		}
	}
	for _, wrapped := range []feed.LeaseStore{
		none.Leases(struct{ feed.LeaseStore }{store}),
		counts.Leases(struct{ feed.LeaseStore }{store}),
	} {
		if _, follows := wrapped.(feed.Follower); follows {
			t.Error("a wrapped lease store that cannot be followed pretends to")
		}
	}
}

func TestEveryMethodPassesThroughTheWrappers(t *testing.T) {
	var counts changefeedtest.Counts
	var seen []string
	plan := changefeedtest.Faults(func(c changefeedtest.Call) changefeedtest.Fault {
		seen = append(seen, fmt.Sprint(c.Method, "(", c.On, ")"))
		return changefeedtest.Fault{}
	})
	s := monitored(t, changefeedtest.Container{Paths: []string{"/pk"}})
	source, committer := counts.Source(plan.Source(s.Source)), counts.Committer(plan.Committer(s.Committer))
	ctx, full := t.Context(), feed.FullRange()
	_, commitErr := committer.Commit(ctx, feed.Key("k"), upsert("a"))
	parts, partitionsErr := source.Partitions(ctx)
	page, readErr := source.Read(ctx, full, beginning, feed.ReadOptions{})
	waitErr := source.(feed.Waiter).Wait(ctx, full, beginning)
	backlog, pendingErr := source.(feed.Counter).Pending(ctx, full, beginning, feed.ReadOptions{})
	place, locateErr := source.(feed.Locator).Locate(ctx, feed.Key("k"))
	if len(parts) != 1 || !full.Holds(place) || len(page.Changes) != 1 || backlog.Items != 1 {
		t.Errorf("%d partitions, %d changes, %d pending, want one of each", len(parts), len(page.Changes),
			backlog.Items)
	}
	store := counts.Leases(plan.Leases(leaseContainer(t).Unit(t, "unit")))
	created, createErr := store.Create(ctx, feed.Record{Kind: feed.KindLease, Token: "0"})
	_, cursor, now, followErr := store.(feed.Follower).Follow(ctx, "")
	updated, updateErr := store.Update(ctx, created)
	changed, _, _, changedErr := store.(feed.Follower).Follow(ctx, cursor)
	records, listed, listErr := store.List(ctx)
	deleteErr := store.Delete(ctx, updated)
	if len(changed) != 1 || len(records) != 1 || now.IsZero() || listed.IsZero() {
		t.Errorf("%d changed, %d listed at %v, %v, want one of each", len(changed), len(records), now, listed)
	}
	if err := errors.Join(commitErr, partitionsErr, readErr, waitErr, pendingErr, locateErr, createErr, followErr,
		updateErr, changedErr, listErr, deleteErr); err != nil {
		t.Error(err)
	}
	want := []string{
		`Committer.Commit(["k"])`, "Source.Partitions()", "Source.Read(-FF)", "Source.Wait(-FF)", "Source.Pending(-FF)",
		`Source.Locate(["k"])`,
		"LeaseStore.Create(0)", "LeaseStore.Follow()", "LeaseStore.Update(0)", "LeaseStore.Follow()",
		"LeaseStore.List()", "LeaseStore.Delete(0)",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("calls %v, want %v", seen, want)
	}
	if counts.Of() != len(want) || counts.Of(changefeedtest.LeaseFollow, changefeedtest.LeaseList) != 3 {
		t.Errorf("counted %v", &counts)
	}
	if taken := counts.Take(); taken[changefeedtest.LeaseFollow] != 2 || counts.Of() != 0 {
		t.Errorf("took %v and left %d", taken, counts.Of())
	}
}

// The wrappers also give the embedded store two abilities that it lacks: to throttle on
// demand, and clients that may not delete.
func TestTheSuitesHoldForAWrappedStore(t *testing.T) {
	h := embedded()
	h.Lacks = nil
	var counts changefeedtest.Counts
	h.Container = func(t *testing.T, c changefeedtest.Container) changefeedtest.Store {
		s := monitored(t, c)
		var busy atomic.Bool
		throttled := changefeedtest.Only(func(changefeedtest.Call) changefeedtest.Fault {
			if busy.Swap(false) {
				return changefeedtest.Throttle(3 * time.Second)
			}
			return changefeedtest.Fault{}
		}, changefeedtest.SourceRead)
		s.Source, s.Committer = throttled.Source(s.Source), counts.Committer(s.Committer)
		s.Throttle = func(*testing.T) { busy.Store(true) }
		return s
	}
	h.Leases = func(t *testing.T) changefeedtest.LeaseContainer {
		c := leaseContainer(t)
		forbidden := changefeedtest.Only(changefeedtest.Always(changefeedtest.Refuse(feed.ErrForbidden)),
			changefeedtest.LeaseDelete)
		c.WithoutDelete = func(t *testing.T, processor string) feed.LeaseStore {
			return forbidden.Leases(c.Unit(t, processor))
		}
		return c
	}
	t.Run("source", func(t *testing.T) { changefeedtest.TestSource(t, h) })
	t.Run("leases", func(t *testing.T) { changefeedtest.TestLeaseStore(t, h) })
	t.Run("commits", func(t *testing.T) { changefeedtest.TestCommitter(t, h) })
	if counts.Of(changefeedtest.CommitterCommit) == 0 {
		t.Error("the suites committed nothing")
	}
}
