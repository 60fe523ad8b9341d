package delivery

import (
	"reflect"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// What is done after an owner has ended without a word.

// suspected is what the last owner has noted of a call: the changes of some LSNs, with so many failures.
func suspected(from, to int64, failures int) *notes.Suspect {
	return &notes.Suspect{
		Changes: int(to - from + 1), Alone: true, Letter: letterName(from, 0),
		Tried: []notes.Run{{From: from, To: to, Calls: failures, Failures: failures, Failing: 900}},
	}
}

func TestTheCareEndsWhenTheSuspectIsHandled(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 3, CanPark: true})
	w.Tell(OwnerCrashed{Suspect: suspected(1, 1, 1)}, w.now)
	w.page("a", "b", "c")
	b := w.wants(Call, 1)
	w.wantsNothing(Never) // one batch at a time
	w.succeeds(b)
	w.wants(Call, 2)
	w.wants(Call, 3)
}

// Any change of the batch may have ended the process.
func TestTheCareLastsForAllChangesOfTheSuspect(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 3, CanPark: true})
	w.Tell(OwnerCrashed{Suspect: suspected(1, 2, 1)}, w.now)
	w.page("a", "b", "c", "d")
	w.succeeds(w.wants(Call, 1))
	b := w.wants(Call, 2)
	w.wantsNothing(Never) // one batch at a time
	w.succeeds(b)
	w.wants(Call, 3)
	w.wants(Call, 4)
}

// If nothing is known of the crash, the care ends after some seconds.
func TestTheCareEndsAfterAWhile(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 3, CanPark: true})
	w.Tell(OwnerCrashed{}, w.now)
	w.page("a", "b", "c", "d")
	w.succeeds(w.wants(Call, 1))
	b := w.wants(Call, 2)
	w.wantsNothing(Never)
	w.wait(5 * time.Second)
	w.succeeds(b)
	w.wants(Call, 3)
	w.wants(Call, 4)
}

// A key that was set aside may have the suspect, though it was not read yet.
func TestTheCareLastsUntilAKeyIsReadAgain(t *testing.T) {
	w := behindWith(t, 1, "a")
	w.Tell(OwnerCrashed{Suspect: suspected(1, 1, 1)}, w.now)
	w.page("b", "c", "d")
	w.wants(ReadKey)
	w.succeeds(w.wants(Call, 6))
	b := w.wants(Call, 7)
	w.wantsNothing(Never)
	w.succeeds(b)
	w.reads("a", 5, 1)
	if b := w.wants(Call, 8); b.Attempt() != 1 {
		t.Errorf("attempt %d of another key", b.Attempt())
	} else {
		w.succeeds(b)
	}
	if b := w.wants(Call, 1); b.Attempt() != 2 {
		t.Errorf("attempt %d of the suspect, want 2", b.Attempt())
	}
}

// As many changes as have ended the process are divided until one is alone. Until then no batch is larger.
func TestBatchesAreSmallUntilTheSuspectIsFound(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true})
	w.Tell(OwnerCrashed{Suspect: suspected(5, 8, 2)}, w.now)
	w.page("a", "a", "a", "a", "a", "a", "a", "a")
	for lsn := int64(1); lsn < 8; lsn += 2 {
		w.succeeds(w.wants(Call, lsn, lsn+1))
	}
}

// A change that has ended the process as often as it may is parked, and no other one of its transaction. Until it is
// read the lease goes on to name it, and then no more.
func TestTheChangeIsParkedThatHasEndedTheProcess(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true})
	s := suspected(1, 1, 2)
	s.Letter = letterName(1, 1)
	w.Tell(OwnerCrashed{Suspect: s}, w.now)
	if n := w.Notes(); n.Suspect != s {
		t.Errorf("the lease says %+v before the change is read", n.Suspect)
	}
	w.page("a", "+a")
	if n := w.Notes(); n.Suspect != nil {
		t.Errorf("the lease says %+v after the change is read", n.Suspect)
	}
	b := w.wants(Call, 1)
	if b.Changes[0].Place != 0 {
		t.Fatal("the wrong change is parked")
	}
	w.succeeds(b)
	if b = w.wants(Park, 1); b.Err != ErrCrashed || b.Changes[0].Place != 1 {
		t.Errorf("parked because of %v", b.Err)
	}
}

// A change that has ended the process may have been replaced since. Then the feed never gives it, and no later owner
// has to be careful because of it.
func TestAChangeThatWasReplacedIsNamedNoMore(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true})
	w.Tell(OwnerCrashed{Suspect: suspected(1, 1, 2)}, w.now)
	w.lsn = 1
	w.page("a")
	if n := w.Notes(); n.Suspect != nil {
		t.Errorf("the feed has come further, and the lease says %+v", n.Suspect)
	}
	w.succeeds(w.wants(Call, 2))
}

// The lease has room for one name. It is that of a batch that has failed, also if its key is set aside.
func TestTheLeaseNamesOneBatch(t *testing.T) {
	w := newTrial(t, readsKeys, "a", "b")
	a, b := w.wants(Call, 1), w.wants(Call, 2)
	w.fails(a)
	w.fails(b)
	w.wait(time.Second)
	a = w.wants(Call, 1)
	for range 2 {
		want := []notes.Run{{Key: "a", From: 1, To: 1, Calls: 2, Failures: 2, Failing: 1000}}
		if n := w.Notes(); n.Suspect == nil || !reflect.DeepEqual(n.Suspect.Tried, want) {
			t.Errorf("the lease names %+v, want 1", n.Suspect)
		}
		w.Next(w.now) // the call of 2
	}
	if w.succeeds(a); w.Notes().Suspect != nil {
		t.Errorf("the lease names %+v after its call", w.Notes().Suspect)
	}
}

func TestASuspectAloneHasTheCallThatEndedTheProcess(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3, CanPark: true})
	w.Tell(OwnerCrashed{Suspect: suspected(1, 1, 1)}, w.now)
	w.page("a", "b")
	for lsn, want := range []int{2, 1} {
		b := w.wants(Call, int64(lsn+1))
		if b.Attempt() != want {
			t.Errorf("attempt %d of LSN %d, want %d", b.Attempt(), lsn+1, want)
		}
		w.succeeds(b)
	}
}

// The change may be of a key that was set aside. Then it is parked when its key is read.
func TestAChangeOfAKeySetAsideIsParkedThatHasEndedTheProcess(t *testing.T) {
	r := readsKeys
	r.CanPark = true
	w := newTrial(t, r)
	w.Restore(Notes{Aside: []Aside{{
		AsideKey: notes.AsideKey{Key: "a", LSN: 1, Last: 1, Passed: true, Covered: 5},
		From:     int64(0),
	}}}, w.now)
	w.Tell(OwnerCrashed{Suspect: suspected(1, 1, 1)}, w.now)
	w.wants(ReadKey)
	w.reads("a", 5, 1)
	if b := w.wants(Park, 1); b.Err != ErrCrashed {
		t.Errorf("parked because of %v", b.Err)
	}
}

// After a crash one batch is in the handler at a time, so that the next end of the process has one cause.
func TestOneBatchIsInHandAfterACrash(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 3, CanPark: true})
	w.Tell(OwnerCrashed{}, w.now)
	w.page("a", "b")
	first := w.wants(Call, 1)
	w.wantsNothing(Never)
	w.succeeds(first)
	w.wants(Call, 2)
}

// The lease names a batch that has returned. It must say that nothing is named before the next call, which may end the
// process.
func TestTheLeaseNamesNoBatchThatHasReturnedWhenTheNextIsCalled(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3, CanPark: true}, "a")
	w.fails(w.wants(Call, 1))
	w.wait(time.Second)
	w.succeeds(w.wants(Call, 1)) // its lease has named it
	w.page("b")
	if do, _ := w.Next(w.now); do.Kind != Call || !do.Note {
		t.Errorf("effect %d, note %v; want a call before which the lease is written", do.Kind, do.Note)
	}
}

// A stop in good order cuts a call short, and has not ended the process. So the next owner calls the change that had
// one attempt left, and does not park it.
func TestACallThatWasCutShortIsNamedNoMore(t *testing.T) {
	r := Rules{MaxAttempts: 3, CanPark: true}
	w := newTrial(t, r, "a")
	for range 2 {
		w.fails(w.wants(Call, 1))
		w.wait(time.Minute)
	}
	b := w.wants(Call, 1)
	if n := w.Notes(); n.Suspect == nil {
		t.Fatal("the lease names no batch that has failed and is in the handler")
	}
	if w.Tell(Cut{Batch: b}, w.now); w.Notes().Suspect != nil {
		t.Errorf("the lease names %+v after its call", w.Notes().Suspect)
	}
	w = w.after(r, true)
	w.page("a")
	w.wants(Call, 1)
}
