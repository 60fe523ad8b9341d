package delivery

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// leaseSays is what the lease is to say: the position, through which LSN changes are settled and which are open, and
// how many settled changes the stored lease does not cover.
func (w *trial) leaseSays() string {
	n := w.Notes()
	return fmt.Sprintf("%d: %d%v +%d", w.Position(), n.Through, n.Open, w.Counts().Unsaved)
}

func (w *trial) wantsLease(want string) {
	w.t.Helper()
	if got := w.leaseSays(); got != want {
		w.t.Errorf("the lease says %s, want %s", got, want)
	}
}

// knowsLSNs has positions that are LSNs, so that the position can be within a page.
func knowsLSNs(_ Position, lsn int64) (Position, bool) { return lsn, true }

func TestThePositionWaitsForTheOldestPage(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 9}, "a", "b")
	w.page("c")
	w.page("d", "e")
	a, b, c, d := w.wants(Call, 1), w.wants(Call, 2), w.wants(Call, 3), w.wants(Call, 4)
	w.wantsLease("0: 0[] +0")
	w.succeeds(d)
	w.wantsLease("0: 4[1 2 3] +0")
	w.succeeds(a)
	w.wantsLease("0: 4[2 3] +0")
	w.succeeds(c)
	w.wantsLease("0: 4[2] +0")
	w.succeeds(b)
	w.wantsLease("3: 4[] +3")
	w.Tell(LeaseStored{Changes: 3}, w.now)
	w.succeeds(w.wants(Call, 5))
	w.wantsLease("5: 0[] +2")
}

func TestThePositionMayBeWithinAPage(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 9, MaxItems: 1, After: knowsLSNs}, "a", "b", "+c", "d", "e")
	a, b, c, d := w.wants(Call, 1), w.wants(Call, 2), w.wants(Call, 2), w.wants(Call, 3)
	w.succeeds(b)
	w.wantsLease("0: 2[1 2] +0")
	w.succeeds(a)
	w.wantsLease("1: 2[2] +1") // not within LSN 2
	w.Tell(LeaseStored{Changes: 1}, w.now)
	w.succeeds(d)
	w.wantsLease("1: 3[2] +0")
	w.succeeds(c)
	w.wantsLease("3: 0[] +3")
	w.succeeds(w.wants(Call, 4))
	w.wantsLease("4: 0[] +4")
}

// A position that can be told of some LSNs only moves to one of these.
func TestThePositionWithinAPageMustBeKnown(t *testing.T) {
	even := func(_ Position, lsn int64) (Position, bool) { return lsn, lsn%2 == 0 }
	w := newTrial(t, Rules{Concurrency: 9, After: even}, "a", "b", "c", "d")
	w.succeeds(w.wants(Call, 1))
	w.wantsLease("0: 1[] +0")
	w.succeeds(w.wants(Call, 2))
	w.wantsLease("2: 0[] +2")
	w.succeeds(w.wants(Call, 3))
	w.wantsLease("2: 3[] +2")
	w.succeeds(w.wants(Call, 4))
	w.wantsLease("4: 0[] +4")
}

// Settled pages behind one that is stuck are remembered together, and the lease says the same.
func TestSettledPagesAreMerged(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 9}, "stuck", "a")
	stuck := w.wants(Call, 1)
	w.succeeds(w.wants(Call, 2))
	for n := range int64(100) {
		w.page("a", "b")
		w.succeeds(w.wants(Call, 2*n+3))
		w.succeeds(w.wants(Call, 2*n+4))
		w.wantsLease(fmt.Sprintf("0: %d[1] +0", 2*n+4))
	}
	if len(w.feed.pages) > 16 {
		t.Errorf("%d pages are remembered", len(w.feed.pages))
	}
	w.page("c", "stuck")
	w.succeeds(w.wants(Call, 203))
	w.wantsLease("0: 203[1] +0")
	w.succeeds(stuck)
	w.wantsLease("202: 203[] +202")
	w.succeeds(w.wants(Call, 204))
	w.wantsLease("204: 0[] +204")
}

// Merged pages keep what is open between them apart.
func TestOpenPagesAreNotMerged(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 99})
	var slow []*Batch
	for n := range int64(60) {
		w.page(fmt.Sprint("k", n))
		if b := w.wants(Call, n+1); n%10 == 0 {
			slow = append(slow, b)
		} else {
			w.succeeds(b)
		}
	}
	w.wantsLease("0: 60[1 11 21 31 41 51] +0")
	w.succeeds(slow[2])
	w.succeeds(slow[0])
	w.wantsLease("10: 60[11 31 41 51] +10")
	for _, b := range []*Batch{slow[5], slow[4], slow[3], slow[1]} {
		w.succeeds(b)
	}
	w.wantsLease("60: 0[] +60")
}

// What one owner has settled, and no more, is left out by the next, however little room the lease has; and the next one
// says the same before it has read that far.
func TestWhatIsSettledIsNotHandedOverAgain(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		first := newTrial(t, Rules{Concurrency: 99, MaxItems: 1})
		if rng.IntN(2) == 0 {
			first = newTrial(t, Rules{Concurrency: 99, MaxItems: 1, After: knowsLSNs})
		}
		count := 0
		for range 1 + rng.IntN(8) {
			var keys []string
			for range 1 + rng.IntN(4) {
				keys = append(keys, fmt.Sprint("k", count))
				count++
			}
			first.page(keys...)
		}
		settled := map[int64]bool{}
		for do, _ := first.Next(first.now); do.Kind != Nothing; do, _ = first.Next(first.now) {
			if do.Kind == Call && rng.IntN(3) > 0 {
				settled[do.Batch.Changes[0].LSN] = true
				first.succeeds(do.Batch)
			}
		}
		most := 1 + rng.IntN(count+1)
		through, open := first.feed.settledAfter(most)
		if len(open) > most {
			t.Fatalf("seed %d: %d are open, with room for %d", seed, len(open), most)
		}
		at := first.Position().(int64)
		for lsn := int64(1); lsn <= at; lsn++ {
			if !settled[lsn] {
				t.Fatalf("seed %d: the position is %d, and %d is not settled", seed, at, lsn)
			}
		}
		second := newTrial(t, Rules{Concurrency: 99})
		second.Begin(at)
		second.lsn = at
		second.Restore(Notes{Through: through, Open: open}, second.now)
		for int(second.lsn) < count {
			if n := second.Notes(); second.lsn < through && second.Position() == Position(at) &&
				(n.Through != through || !slices.Equal(n.Open, open)) {
				t.Fatalf("seed %d: restored through %d but for %v, says %d but for %v", seed, through, open, n.Through,
					n.Open)
			}
			var keys []string
			for n := range min(1+rng.IntN(5), count-int(second.lsn)) {
				keys = append(keys, fmt.Sprint("k", int(second.lsn)+n))
			}
			second.page(keys...)
		}
		again := map[int64]bool{}
		for do, _ := second.Next(second.now); do.Kind != Nothing; do, _ = second.Next(second.now) {
			if do.Kind == Call {
				again[do.Batch.Changes[0].LSN] = true
			}
		}
		for lsn := at + 1; int(lsn) <= count; lsn++ {
			if want := lsn > through || !settled[lsn]; again[lsn] != want {
				t.Fatalf("seed %d: at %d, through %d but for %v: LSN %d comes again: %v", seed, at, through, open, lsn,
					again[lsn])
			}
			if most > count && settled[lsn] && again[lsn] {
				t.Fatalf("seed %d: at %d, through %d but for %v: LSN %d is settled and comes again", seed, at, through,
					open, lsn)
			}
		}
	}
}

// What another owner has settled counts as progress of this one: without a handler's call the position moves on.
func TestWhatWasSettledBeforeMovesThePosition(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 4})
	w.Restore(Notes{Through: 4, Open: []int64{3}}, w.now)
	w.page("a", "b")
	w.wantsLease("2: 4[3] +2")
	w.page("c", "d")
	w.succeeds(w.wants(Call, 3))
	w.wantsLease("4: 0[] +4")
}

func TestTriedRunsReachTheNextOwner(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3, CanPark: true}, "a", "a", "b", "a")
	w.fails(w.wants(Call, 1, 2, 3, 4))
	w.wait(time.Second)
	w.Tell(Failed{Batch: w.wants(Call, 1, 2, 4), Failure: Failure{Err: errTrial, Outage: true}}, w.now)
	n := w.Notes()
	want := []notes.Run{
		{From: 1, To: 2, Calls: 2, Failures: 1, Failing: 1000},
		{From: 3, To: 3, Calls: 1, Failures: 1, Failing: 1000},
		{From: 4, To: 4, Calls: 2, Failures: 1, Failing: 1000},
	}
	if !reflect.DeepEqual(n.Tried, want) || w.Attempts() != 2 {
		t.Fatalf("tried are %v, %d attempts, want %v", n.Tried, w.Attempts(), want)
	}
	next := newTrial(t, Rules{MaxAttempts: 3, CanPark: true})
	restored := n
	restored.First = w.Attempts() // as the lease says
	next.Restore(restored, next.now)
	if got := next.Notes(); fmt.Sprint(got) != fmt.Sprint(n) || next.Attempts() != 2 {
		t.Errorf("the next owner says %+v, want %+v", got, n)
	}
	next.page("a", "a", "b", "a", "c")
	if got := next.Notes(); !reflect.DeepEqual(got.Tried, want) || next.Attempts() != 2 {
		t.Errorf("the next owner has read them, and says %v", got.Tried)
	}
	b := next.wants(Call, 1, 2, 3, 4) // all have failed as often
	if b.Attempt() != 3 {
		t.Errorf("attempt %d, want 3", b.Attempt())
	}
	next.fails(b)
	next.succeeds(next.wants(Call, 5)) // nobody has the failures of others
}

// What is settled between changes that have failed alike is in their run: a settled change does not come again, and the
// lease has room for few runs.
func TestARunGoesPastWhatIsSettled(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 3, CanPark: true}, "a", "b", "a")
	a := w.wants(Call, 1, 3)
	w.succeeds(w.wants(Call, 2))
	w.fails(a)
	want := []notes.Run{{From: 1, To: 3, Calls: 1, Failures: 1, Failing: 1000}}
	if got := w.Notes().Tried; !reflect.DeepEqual(got, want) {
		t.Errorf("tried are %v, want %v", got, want)
	}
}

// An owner that has read the first changes of a run notes the rest of the run as it was.
func TestTheRestOfARunThatWasReadInPartIsNoted(t *testing.T) {
	r := Rules{MaxAttempts: 3, CanPark: true}
	w := newTrial(t, r)
	w.Restore(Notes{Tried: []notes.Run{{From: 1, To: 6, Calls: 2, Failures: 2, Failing: 1000}}}, w.now)
	w.page("a", "b", "c")
	want := []notes.Run{
		{From: 1, To: 3, Calls: 2, Failures: 2, Failing: 1000}, {From: 4, To: 6, Calls: 2, Failures: 2, Failing: 1000},
	}
	n := w.Notes()
	if !reflect.DeepEqual(n.Tried, want) {
		t.Fatalf("tried are %v, want %v", n.Tried, want)
	}
	next := newTrial(t, r)
	next.Restore(n, next.now)
	next.page("a", "b", "c", "d", "e", "f", "g")
	if b := next.wants(Call, 1, 2, 3, 4, 5, 6); b.Attempt() != 3 {
		t.Errorf("attempt %d, want 3", b.Attempt())
	}
}

// A change that has used up its attempts under one owner has one call under the next.
func TestAttemptsAreNotGivenAnew(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3, CanPark: true})
	w.Restore(Notes{Tried: []notes.Run{{From: 1, To: 1, Calls: 5, Failures: 3}}}, w.now)
	w.page("a", "b")
	w.fails(w.wants(Call, 1))
	w.succeeds(w.wants(Call, 2))
	w.wants(Park, 1)
}

// An older owner, or one without a limit, says only how often the first change was tried. These attempts count for no
// limit.
func TestTheFirstChangeHasTheAttemptsOfTheLease(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		w := newTrial(t, Rules{Concurrency: concurrency, MaxAttempts: 3, CanPark: true})
		w.Restore(Notes{First: 2}, w.now)
		if w.Attempts() != 2 {
			t.Errorf("concurrency %d: %d attempts before the first page", concurrency, w.Attempts())
		}
		w.page("a", "b")
		lsns := []int64{1, 2}[:map[int]int{1: 2, 4: 1}[concurrency]] // at a concurrency of 4 the keys are apart
		if b := w.wants(Call, lsns...); w.Attempts() != 2 || b.Attempt() != 3 || b.failures() != 0 {
			t.Errorf("concurrency %d: %d attempts, attempt %d", concurrency, w.Attempts(), b.Attempt())
		} else {
			w.succeeds(b)
		}
		if w.Attempts() != 0 {
			t.Errorf("concurrency %d: %d attempts of the next change", concurrency, w.Attempts())
		}
	}
}

// A page of which nothing is wanted moves the position when nothing before it is open, and ends the attempts of what
// may have been there.
func TestAnEmptyPageMovesThePosition(t *testing.T) {
	w := newTrial(t, Rules{})
	w.Restore(Notes{First: 2}, w.now)
	w.Tell(FeedPassed{Next: int64(0)}, w.now)
	if w.Attempts() != 2 {
		t.Errorf("%d attempts after a page that does not move", w.Attempts())
	}
	w.Tell(FeedPassed{Next: int64(3)}, w.now)
	if w.lsn = 3; w.Attempts() != 0 || w.Position() != Position(int64(3)) {
		t.Errorf("%d attempts at %v", w.Attempts(), w.Position())
	}
	w.page("a")
	w.Tell(FeedPassed{Next: int64(7)}, w.now)
	w.wantsLease("3: 0[] +0")
	if w.Omit(2) {
		t.Error("what was omitted counts though a change before it is open")
	}
	w.succeeds(w.wants(Call, 4))
	w.wantsLease("7: 0[] +1")
	if !w.Omit(2) {
		t.Error("what was omitted does not count")
	}
	w.wantsLease("7: 0[] +3")
}

func TestAPositionThatIsFrozenStays(t *testing.T) {
	w := newTrial(t, Rules{MaxItems: 1, After: knowsLSNs}, "a", "b")
	w.succeeds(w.wants(Call, 1))
	w.Freeze()
	w.succeeds(w.wants(Call, 2))
	w.Tell(FeedPassed{Next: int64(9)}, w.now)
	if w.Position() != Position(int64(1)) || !w.IsFrozen() {
		t.Errorf("the position moved to %v", w.Position())
	}
}

// A processor of another kind does not know which keys are set aside, so the position waits for them while such a
// processor may take the lease.
func TestASharedLeaseWaitsForKeysThatAreSetAside(t *testing.T) {
	for _, shared := range []bool{false, true} {
		w := newTrial(t, Rules{
			Concurrency: 4, MaxItems: 1, CanReadKeys: true, MaxAside: 9, KeyPages: 4,
			After: knowsLSNs,
		}, "a", "a", "b")
		w.Share(shared)
		w.fails(w.wants(Call, 1))
		w.succeeds(w.wants(Call, 3))
		w.MakeRoom(0, time.Second, w.now)
		w.wait(time.Second)
		w.succeeds(w.wants(Call, 1))
		want := map[bool]int64{false: 3, true: 1}[shared]
		if got := w.Position(); got != Position(want) || w.Counts().SetAside != 1 || w.Counts().Items != 0 {
			t.Errorf("shared %v: position %v with %d keys set aside, %d items; want %d", shared, got,
				w.Counts().SetAside, w.Counts().Items, want)
		}
		n := w.Notes()
		if len(n.Aside) != 1 || n.Aside[0].Key != "a" || n.Aside[0].LSN != 2 || !shared && !n.Aside[0].Passed {
			t.Errorf("shared %v: set aside are %+v", shared, n.Aside)
		}
		w.wants(ReadKey)
		w.Tell(KeyRead{Key: "a", Next: int64(2), Head: 3, Changes: 1, Meta: func(int) Meta {
			return Meta{LSN: 2, Key: "a", Size: 100}
		}}, w.now)
		w.succeeds(w.wants(Call, 2))
		if got := w.Position(); got != Position(int64(3)) || w.Counts().SetAside != 0 {
			t.Errorf("shared %v: position %v, %d keys set aside at the end", shared, got, w.Counts().SetAside)
		}
	}
}

func TestASharedLeaseWaitsForTheOldestKey(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 4, MaxItems: 1, CanReadKeys: true, MaxAside: 9, KeyPages: 4, After: knowsLSNs},
		"c", "a", "a", "b", "b")
	w.Share(true)
	w.succeeds(w.wants(Call, 1))
	w.fails(w.wants(Call, 2))
	w.fails(w.wants(Call, 4))
	w.MakeRoom(0, time.Second, w.now)
	if got := w.Position(); got != Position(int64(1)) || w.Counts().SetAside != 2 {
		t.Errorf("position %v with %d keys set aside, want 1", got, w.Counts().SetAside)
	}
}

func TestAConfirmedBatchTakesInWhatCameBefore(t *testing.T) {
	w := newTrial(t, Rules{MaxItems: 2, ByHand: true}, "a", "b", "c", "d", "e", "f")
	first := w.wants(Call, 1, 2)
	w.succeeds(first)
	second := w.wants(Call, 3, 4)
	w.succeeds(second)
	w.wantsLease("0: 0[] +0")
	w.wants(Call, 5, 6)
	if fresh, valid := w.Confirm(second, w.now); !fresh || !valid || !first.IsConfirmed() {
		t.Errorf("fresh %v, valid %v, the first is confirmed: %v", fresh, valid, first.IsConfirmed())
	}
	if first := w.FirstOpen(); first.LSN != 5 {
		t.Errorf("LSN %d is open first, want 5", first.LSN)
	}
	if fresh, valid := w.Confirm(first, w.now); fresh || !valid {
		t.Errorf("again: fresh %v, valid %v", fresh, valid)
	}
}

// With keys in parallel, a batch stands for what was handled before it of its keys alone.
func TestALateConfirmationIsOfItsKeyAlone(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 4, MaxItems: 1, ByHand: true}, "k", "k", "k", "o", "k")
	var batches []*Batch
	for _, lsn := range []int64{1, 2, 3} {
		do, _ := w.Next(w.now)
		if do.Batch.Changes[0].Key == "o" {
			w.succeeds(do.Batch)
			do, _ = w.Next(w.now)
		}
		if do.Batch.Changes[0].LSN != lsn {
			t.Fatalf("%d comes, want %d", do.Batch.Changes[0].LSN, lsn)
		}
		w.succeeds(do.Batch)
		batches = append(batches, do.Batch)
	}
	w.Confirm(batches[1], w.now)
	for _, b := range []*Batch{batches[0], batches[1], batches[0]} {
		w.Confirm(b, w.now)
		if first := w.FirstOpen(); first.LSN != 3 {
			t.Errorf("LSN %d is open first, want 3", first.LSN)
		}
	}
	w.Confirm(batches[2], w.now)
	if first := w.FirstOpen(); first.LSN != 4 {
		t.Errorf("LSN %d is open first, want 4 of the other key", first.LSN)
	}
}

func TestAConfirmationLeavesOutWhatHasFailed(t *testing.T) {
	w := newTrial(t, Rules{MaxItems: 1, ByHand: true, MaxAttempts: 1}, "a", "b")
	// nothing can be parked, so it is tried for ever
	w.Tell(Failed{Batch: w.wants(Call, 1), Failure: Failure{Err: errTrial, Hopeless: true}}, w.now)
	second := w.wants(Call, 2)
	w.succeeds(second)
	w.Confirm(second, w.now)
	if first := w.FirstOpen(); first.LSN != 1 {
		t.Errorf("LSN %d is open first, want 1", first.LSN)
	}
}

// A batch that comes again in parts cannot be confirmed as a whole; one that waits to be tried again can, and does not
// come.
func TestABatchIsConfirmedThatHasFailed(t *testing.T) {
	w := newTrial(t, Rules{ByHand: true}, "a", "a", "a", "a")
	b := w.wants(Call, 1, 2, 3, 4)
	w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, Late: true}}, w.now)
	if _, valid := w.Confirm(b, w.now); valid {
		t.Error("a batch is confirmed that comes again in parts")
	}
	w.wait(time.Second)
	half := w.wants(Call, 1, 2)
	w.Tell(Failed{Batch: half, Failure: Failure{Err: errors.New("again")}}, w.now)
	if fresh, valid := w.Confirm(half, w.now); !fresh || !valid {
		t.Errorf("fresh %v, valid %v", fresh, valid)
	}
	w.wants(Call, 3, 4)
}

// A transaction that has failed comes again in parts, which share an LSN. The last part stands for those before it.
func TestTheLastPartOfATransactionIsConfirmedWithThoseBeforeIt(t *testing.T) {
	for _, concurrency := range []int{1, 2} {
		w := newTrial(t, Rules{Concurrency: concurrency, MaxAttempts: 1, CanPark: true, ByHand: true}, "a", "+a")
		w.fails(w.wants(Call, 1, 1))
		first := w.wants(Call, 1)
		w.succeeds(first)
		second := w.wants(Call, 1)
		w.succeeds(second)
		if fresh, valid := w.Confirm(second, w.now); !fresh || !valid || !first.IsConfirmed() {
			t.Errorf("fresh %v, valid %v, the first part is confirmed: %v", fresh, valid, first.IsConfirmed())
		}
		w.wantsLease("1: 0[] +2")
	}
}

func TestOldestIsHowOftenAndSinceWhen(t *testing.T) {
	w := newTrial(t, Rules{})
	if calls, since := w.Oldest(); calls != 0 || !since.IsZero() {
		t.Errorf("without a change: %d calls, since %v", calls, since)
	}
	w.page(strings.Fields("a b")...)
	begun := w.now
	w.fails(w.wants(Call, 1, 2))
	w.wait(time.Minute)
	if calls, since := w.Oldest(); calls != 1 || since != begun {
		t.Errorf("%d calls, since %v", calls, since)
	}
}
