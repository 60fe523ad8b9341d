package delivery

import (
	"reflect"
	"testing"

	"github.com/millrace/changefeed/internal/notes"
)

// How changes come into batches, and what the lease says of them.

// A key that has failed under the last owner takes no other key into its batch: that would be divided with it.
func TestKeysThatFailedDifferentlyOftenAreNotPutTogether(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 3})
	w.width.lanes = 4
	w.Restore(Notes{Tried: []notes.Run{{From: 1, To: 1, Calls: 2, Failures: 2, Failing: 900}}}, w.now)
	w.page("a", "b", "c", "d")
	w.wants(Call, 1)
	w.wants(Call, 2, 3, 4)
}

// What the handler has not had comes as it would have come without the failure.
func TestWhatWasNotTriedComesAgainWhole(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3}, "a", "b", "c")
	w.Tell(Failed{Batch: w.wants(Call, 1, 2, 3), Failure: Failure{
		Err:  errTrial,
		Left: []*Part{{Changes: []int{0}, Err: errTrial}, {Changes: []int{1, 2}, Untried: true}},
	}}, w.now)
	w.wants(Call, 2, 3)
}

// The handler must be able to know that the change has others beside it, though it is done with these.
func TestTheRestOfATransactionIsCut(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3}, "a", "+a")
	w.Tell(Failed{Batch: w.wants(Call, 1, 1), Failure: Failure{
		Err:  errTrial,
		Left: []*Part{{Changes: []int{1}, Untried: true}},
	}}, w.now)
	if b := w.wants(Call, 1); !b.IsCut() {
		t.Error("the rest of a transaction is taken for the whole")
	}
}

// A stuck key leaves one page in memory, and the lease knows what is done behind it.
func TestTheLeaseKnowsWhatIsDoneBehindAStuckKey(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2}, "stuck")
	w.wants(Call, 1)
	for range 100 {
		done := w.lsn
		w.page("b")
		if n := w.Notes(); done > 1 && (n.Through != done || len(n.Open) != 1 || n.Open[0] != 1) {
			t.Fatalf("through %d, %v are open, want through %d with 1", n.Through, n.Open, done)
		}
		w.succeeds(w.wants(Call, w.lsn))
	}
	if n := len(w.feed.pages); n > 16 {
		t.Errorf("%d pages are kept", n)
	}
}

// A change that is handled and not confirmed has not failed.
func TestWhatWaitsForItsConfirmationIsNoAttempt(t *testing.T) {
	w := newTrial(t, Rules{ByHand: true, MaxAttempts: 3}, "a")
	w.succeeds(w.wants(Call, 1))
	if n := w.Notes(); len(n.Tried) != 0 {
		t.Errorf("the lease says %v", n.Tried)
	}
}

// Nor do the attempts of its neighbours count for it.
func TestNoRunGoesPastWhatWaitsForItsConfirmation(t *testing.T) {
	w := newTrial(t, Rules{ByHand: true, MaxAttempts: 3, Concurrency: 2, CanPark: true}, "a", "b", "a")
	both, other := w.wants(Call, 1, 3), w.wants(Call, 2)
	w.fails(both)
	w.succeeds(other)
	want := []notes.Run{
		{From: 1, To: 1, Calls: 1, Failures: 1, Failing: 1000},
		{From: 3, To: 3, Calls: 1, Failures: 1, Failing: 1000},
	}
	if n := w.Notes(); !reflect.DeepEqual(n.Tried, want) {
		t.Errorf("tried are %v, want %v", n.Tried, want)
	}
}

// The attempts that the lease says without a note are those of the first change.
func TestTheAttemptsOfTheLeaseAreOfOneChange(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 9})
	w.Restore(Notes{First: 2}, w.now)
	for i, want := range []int{3, 1, 1} {
		w.page("a")
		b := w.wants(Call, w.lsn)
		if b.Attempt() != want {
			t.Errorf("attempt %d of change %d, want %d", b.Attempt(), i+1, want)
		}
		w.succeeds(b)
	}
}

// Without a policy no page is read while a batch fails: it would be handled too early.
func TestAFailureBlocksAllIfAllIsInOrder(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		w := newTrial(t, Rules{InOrder: inOrder}, "a")
		w.fails(w.wants(Call, 1))
		if w.IsBlocked() == inOrder {
			t.Errorf("in order %v: another page may be read: %v", inOrder, w.IsBlocked())
		}
	}
}

// The handler has confirmed its batch and then takes too long: nothing comes again.
func TestABatchThatIsConfirmedIsDoneThoughItsCallFails(t *testing.T) {
	w := newTrial(t, Rules{ByHand: true, MaxAttempts: 3}, "a", "a")
	b := w.wants(Call, 1, 2)
	w.Confirm(b, w.now)
	w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, Late: true}}, w.now)
	if w.wantsNothing(Never); !w.IsIdle() || w.Position() != int64(2) {
		t.Errorf("position %v, idle %v", w.Position(), w.IsIdle())
	}
}
