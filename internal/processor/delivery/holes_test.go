package delivery

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// What blame, suspicion, origin, stage and fraction decide in a second step: after an outage, a pause or another owner.

// The last owner's handler had the letter when that owner ended. The letters cannot be read at first, and the letter
// stays where it is all the same.
func TestALetterThatMayHaveEndedTheProcessStaysThoughItIsReadLater(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true, HasBox: true})
	w.Restore(Notes{Recalls: []notes.Recall{{Key: "a", Letter: "1.0", InHand: true, Due: true}}}, w.now)
	w.Tell(RequestFailed{Request: w.recalled("a"), Err: errTrial}, w.now)
	w.wants(Answer)
	w.wait(time.Second)
	w.Tell(LetterFound{Request: w.recalled("a"), Letter: &Letter{LSN: 1}}, w.now)
	w.wants(Answer)
	w.wantsNothing(Never)
}

// The next owner ends too, before it has the letter. The one after that must know what the handler had.
func TestTheLeaseSaysThatALetterMayHaveEndedTheProcessWhileItIsLookedFor(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true, HasBox: true})
	w.Restore(Notes{Recalls: []notes.Recall{{Key: "a", Letter: "1.0", InHand: true, Due: true}}}, w.now)
	w.recalled("a")
	if n := w.Notes(); len(n.Recalls) != 1 || !n.Recalls[0].InHand {
		t.Errorf("the lease says %+v", n.Recalls)
	}
}

// A letter has used up its tries, and then something succeeds: in the next trouble the letter has all its tries again.
func TestALetterHasItsTriesAgainAfterASuccess(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true, HasBox: true})
	w.Restore(Notes{Outage: true, Recalls: []notes.Recall{{Key: "a", Letter: "1.0"}}}, w.now)
	fails := func() {
		t.Helper()
		w.Tell(LetterFound{Request: w.recalled("a"), Letter: &Letter{LSN: 1}}, w.now)
		w.Tell(Failed{Batch: w.wants(Call, 1), Failure: Failure{Err: errTrial, Outage: true}}, w.now)
		w.wants(Answer)
	}
	w.wait(time.Second)
	fails()
	w.wait(time.Hour)
	w.wantsNothing(Never)
	w.page("b")
	w.succeeds(w.wants(Call, 1))
	w.wait(time.Second)
	fails()
	w.wantsNothing(time.Second)
	w.wait(time.Second)
	w.recalled("a")
}

// The first of two letters is gone. The second one waits as long as if the first one had been a try.
func TestThePauseBetweenLettersOfAnOutageGrowsThoughOneIsGone(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3, CanPark: true, HasBox: true})
	w.Restore(Notes{Outage: true, Recalls: []notes.Recall{{Key: "a", Letter: "1.0"}, {Key: "b", Letter: "2.0"}}}, w.now)
	w.wait(time.Second)
	w.Tell(LetterFound{Request: w.recalled("a")}, w.now)
	w.wants(Answer)
	w.wantsNothing(2 * time.Second)
	w.wait(2 * time.Second)
	w.recalled("b")
}

// The changes of a transaction were tried differently, and come again together: the handler has all of it.
func TestATransactionOfWhichNotesNameChangesIsNotCut(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 9})
	w.Restore(Notes{Tried: []notes.Run{{From: 1, To: 1, Calls: 1, Letters: []string{"1.0"}}}}, w.now)
	w.page("a", "+a")
	if b := w.wants(Call, 1, 1); b.IsCut() || b.Attempt() != 2 {
		t.Errorf("cut %v, attempt %d: want no cut and 2", b.IsCut(), b.Attempt())
	}
}

// Such a transaction has not begun here, so all of it is forgotten when its key is set aside.
func TestATransactionOfWhichNotesNameChangesIsForgotten(t *testing.T) {
	w := newTrial(t, readsKeys)
	w.Restore(Notes{Tried: []notes.Run{{From: 2, To: 2, Calls: 1, Letters: []string{"2.0"}}}}, w.now)
	w.page("a")
	w.wants(Call, 1)
	w.lsn = 1
	w.page("a", "+a")
	w.MakeRoom(0, -time.Second, w.now)
	if n := w.Counts(); n.Items != 1 || n.SetAside != 1 {
		t.Errorf("%d changes are in memory and %d keys are set aside, want 1 and 1", n.Items, n.SetAside)
	}
}

// A suspect outlives an outage and has attempts left. It is parked after the last of them, and not before.
func TestASuspectThatOutlivesAnOutageHasItsAttempts(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 2, CanPark: true}, "a", "b")
	a := w.wants(Call, 1)
	w.wants(Call, 2)
	w.fails(a)
	w.wait(time.Second)
	w.fails(w.wants(Call, 1))
	w.wantsNothing(Never) // 2 may be handled
	w.outageBegins()
	w.outageEnds()
	w.wantsNothing(time.Second)
	w.wait(time.Second)
	w.fails(w.wants(Call, 1))
	w.wantsNothing(2 * time.Second)
	w.wait(2 * time.Second)
	w.fails(w.wants(Call, 1))
	w.wants(Park, 1)
}

// What has failed before the end of an outage fails still, until it is handled: the status says so, and its pauses
// grow.
func TestWhatHasFailedInAnOutageFailsStillAfterIt(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 9}, "a")
	w.fails(w.wants(Call, 1))
	w.outageBegins()
	w.outageEnds()
	w.wantsNothing(time.Second)
	if !w.HasFailed() {
		t.Error("nothing fails")
	}
	w.wait(time.Second)
	w.fails(w.wants(Call, 1))
	w.wantsNothing(2 * time.Second)
}

// A change had attempts left when an outage was over. A success from before its next failure is no evidence against it.
func TestASuccessBeforeTheNextFailureIsNoEvidenceAfterAnOutage(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 3, MaxItems: 1, MaxAttempts: 2, CanPark: true}, "a", "slow")
	a := w.wants(Call, 1)
	w.wants(Call, 2)
	w.fails(a)
	w.outageBegins()
	w.outageEnds()
	w.page("b")
	w.succeeds(w.wants(Call, 3))
	w.wait(time.Second)
	w.fails(w.wants(Call, 1))
	w.wait(2 * time.Second)
	w.fails(w.wants(Call, 1))
	w.wantsNothing(Never) // the slow one may be handled
}

// An outage ends just before a change is too old. The change has one more call, because its failures may be of the
// outage.
func TestAChangeIsCalledOnceMoreAfterAnOutageThoughItIsTooOld(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 9, MaxAge: 10 * time.Second, CanPark: true}, "a")
	w.fails(w.wants(Call, 1))
	w.outageBegins()
	w.wait(9500 * time.Millisecond)
	w.outageEnds()
	w.wantsNothing(500 * time.Millisecond)
	w.wait(500 * time.Millisecond)
	w.wantsNothing(500 * time.Millisecond)
	w.wait(500 * time.Millisecond)
	w.fails(w.wants(Call, 1))
	w.wants(Park, 1)
}

// The handler has not tried the second change when the first one fails. What is handled before the second one fails is
// no evidence against that.
func TestAnUntriedChangeNeedsEvidenceOfItsOwn(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxItems: 2, MaxAttempts: 1, CanPark: true}, "a", "a", "b", "slow")
	a := w.wants(Call, 1, 2)
	w.Tell(Failed{Batch: a, Failure: Failure{Err: errTrial, Left: []*Part{
		{Changes: []int{0}, Err: errTrial},
		{Changes: []int{1}, Untried: true},
	}}}, w.now)
	w.wait(time.Second)
	w.succeeds(w.wants(Call, 3))
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	second := w.wants(Call, 2)
	w.wants(Call, 4)
	w.wait(time.Second)
	w.fails(second)
	w.wantsNothing(Never) // 4 may be handled
}

// A probe that fails is divided. Its halves were tried with it, so the batch is the next probe that was tried before
// that.
func TestHalvesOfAProbeWaitForBatchesThatWereTriedBefore(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxItems: 2, MaxAttempts: 9, CanPark: true}, "a", "a", "b")
	a, b := w.wants(Call, 1, 2), w.wants(Call, 3)
	w.fails(b)
	w.fails(a)
	w.outageBegins()
	w.wait(time.Minute)
	w.Tell(Failed{Batch: w.wants(Call, 3), Failure: Failure{Err: errTrial, After: 10 * time.Minute}}, w.now)
	w.wait(time.Minute)
	w.fails(w.wants(Call, 1, 2))
	w.wait(time.Hour)
	w.wants(Call, 3)
}

// A suspect that has outlived an outage is called when the call is cut short, as every batch is that is no suspect.
func TestWhatHasOutlivedAnOutageIsCalledAgainAfterACut(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 1, CanPark: true}, "a", "b")
	a := w.wants(Call, 1)
	w.wants(Call, 2)
	w.fails(a)
	w.outageBegins()
	w.outageEnds()
	w.wantsNothing(time.Second)
	w.wait(time.Second)
	w.Tell(Cut{Batch: w.wants(Call, 1)}, w.now)
	w.wants(Call, 1)
}

// A batch that the handler has called hopeless was divided when an outage was over. Its parts begin anew with a pause,
// also if they are divided once more, because batches of their size take too long.
func TestWhatWasHopelessBeforeTheEndOfAnOutageHasAPauseAfterIt(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxItems: 4, MaxAttempts: 9, CanPark: true}, "a", "a", "a", "a")
	a := w.wants(Call, 1, 2, 3, 4)
	w.page("b", "b")
	b := w.wants(Call, 5, 6)
	w.Tell(Failed{Batch: a, Failure: Failure{Err: errTrial, Hopeless: true}}, w.now)
	w.outageBegins()
	w.outageEnds()
	w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, Late: true}}, w.now)
	w.wantsNothing(time.Second)
}
