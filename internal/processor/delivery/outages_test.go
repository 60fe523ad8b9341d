package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// What an outage does to the changes of a lease. The failures of other leases begin it, and their successes end it.

func (w *trial) outageBegins() {
	w.t.Helper()
	openBreaker(w.breaker, w.now)
	if !w.breaker.IsOpen() {
		w.t.Fatal("no outage")
	}
}

func (w *trial) outageEnds() { w.breaker.close(w.now) }

func TestAProbeThatFailsIsNoAttempt(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true}, "a")
	w.outageBegins()
	w.wait(time.Second)
	b := w.wants(Call, 1)
	w.fails(b)
	if b.failures() != 0 || b.Attempt() != 2 {
		t.Errorf("%d failures, attempt %d; want 0 and 2", b.failures(), b.Attempt())
	}
}

// A bad change would be in every probe, if a failed one came again whole.
func TestAProbeThatFailsIsDivided(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 5, CanPark: true}, "a", "a")
	w.outageBegins()
	w.wait(time.Second)
	w.fails(w.wants(Call, 1, 2))
	w.wait(time.Minute)
	w.succeeds(w.wants(Call, 1))
	if w.breaker.IsOpen() {
		t.Error("a probe has succeeded, and the outage lasts")
	}
}

func TestProbesTakeTurns(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 9, CanPark: true}, "a", "b")
	a, b := w.wants(Call, 1), w.wants(Call, 2)
	w.fails(a)
	w.fails(b)
	w.outageBegins()
	for n := range 4 {
		w.wait(time.Minute)
		w.fails(w.wants(Call, int64(1+n%2)))
	}
}

func TestACallThatWasCutShortIsNoProbeAnyMore(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true}, "a")
	w.outageBegins()
	w.wait(time.Second)
	w.Tell(Cut{Batch: w.wants(Call, 1)}, w.now)
	w.outageEnds()
	b := w.wants(Call, 1)
	w.outageBegins()
	if w.succeeds(b); !w.breaker.IsOpen() {
		t.Error("a call that was begun before an outage has ended it")
	}
}

// Each key of a batch counts for itself.
func TestABatchOfManyKeysIsMuchEvidence(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true}, "a", "b", "c", "d")
	w.breaker.troubled(w.now)
	w.succeeds(w.wants(Call, 1, 2, 3, 4))
	openBreaker(w.breaker, w.now)
	if w.breaker.IsOpen() {
		t.Error("three keys fail and four are handled: that is no outage")
	}
}

// Another key of its batch was handled: so the change is at fault.
func TestAPartThatIsHandledIsEvidence(t *testing.T) {
	w := newTrial(t, Rules{MaxItems: 2, MaxAttempts: 1, CanPark: true}, "a", "b", "c")
	w.Tell(Failed{Batch: w.wants(Call, 1, 2), Failure: Failure{
		Err:  errTrial,
		Left: []*Part{{Changes: []int{0}, Err: errTrial}},
	}}, w.now)
	w.wants(Park, 1)
}

// What has recovered does not get everything at once.
func TestWhatHasFailedComesASecondAfterAnOutage(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 9, CanPark: true}, "a")
	w.fails(w.wants(Call, 1))
	w.outageBegins()
	w.wait(time.Hour)
	w.outageEnds()
	w.wantsNothing(time.Second)
	w.wait(time.Second)
	w.wants(Call, 1)
}

// A handler has asked for an hour: no probe comes before its end, then one does, and an outage ending before does not
// shorten the hour.
func TestAPauseOutlastsAnOutage(t *testing.T) {
	for _, ends := range []bool{false, true} {
		w := newTrial(t, Rules{MaxAttempts: 9, CanPark: true}, "a")
		b := w.wants(Call, 1)
		w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, After: time.Hour}}, w.now)
		w.outageBegins()
		w.wait(30 * time.Minute)
		if ends {
			w.outageEnds()
		}
		w.wantsNothing(30 * time.Minute)
		w.wait(30 * time.Minute)
		w.wants(Call, 1)
	}
}

// What failed under the last owner of the lease, and was not read again yet, begins anew too.
func TestAfterAnOutageWhatIsNotReadYetBeginsAnew(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3, CanPark: true})
	w.Restore(Notes{Tried: []notes.Run{{From: 1, To: 1, Calls: 2, Failures: 2}}}, w.now)
	w.outageBegins()
	w.outageEnds()
	w.wantsNothing(Never)
	w.page("a")
	if b := w.wants(Call, 1); b.failures() != 0 || b.Attempt() != 3 {
		t.Errorf("%d failures count, attempt %d; want 0 and 3", b.failures(), b.Attempt())
	}
}

// What was forgotten of a key set aside begins anew too when its key is read again.
func TestAfterAnOutageWhatWasForgottenOfAKeyBeginsAnew(t *testing.T) {
	r := readsKeys
	r.MaxAttempts, r.CanPark = 3, true
	w := newTrial(t, r)
	tried := []notes.Run{{From: 1, To: 1, Calls: 2, Failures: 2}}
	w.Restore(Notes{Aside: []Aside{{
		AsideKey: notes.AsideKey{Key: "a", LSN: 1, Last: 1, Tried: tried},
		From:     int64(0),
	}}}, w.now)
	w.outageBegins()
	w.outageEnds()
	w.wants(ReadKey)
	w.reads("a", 5, 1)
	if b := w.wants(Call, 1); b.failures() != 0 || b.Attempt() != 3 {
		t.Errorf("%d failures count, attempt %d; want 0 and 3", b.failures(), b.Attempt())
	}
	if tried[0].Failures != 2 {
		t.Error("the notes of the last owner were changed")
	}
}

// So does what the last owner had in its handler when it ended, if it is of a key not readable until then.
func TestAfterAnOutageWhatTheLastOwnerHadInItsHandlerBeginsAnew(t *testing.T) {
	r := readsKeys
	r.MaxAttempts, r.CanPark = 3, true
	w := newTrial(t, r)
	w.Restore(Notes{Aside: []Aside{{AsideKey: notes.AsideKey{Key: "a", LSN: 1, Last: 1}, From: int64(0)}}}, w.now)
	s := suspected(1, 1, 2)
	w.Tell(OwnerCrashed{Suspect: s}, w.now)
	w.wants(ReadKey)
	w.outageBegins()
	w.Tell(KeyFailed{Key: "a"}, w.now)
	w.outageEnds()
	w.wait(time.Minute)
	w.wants(ReadKey)
	w.reads("a", 5, 1)
	if b := w.wants(Call, 1); b.failures() != 0 || b.Attempt() != 3 || b.Failing() != time.Unix(900, 0) {
		t.Errorf("%d failures count, attempt %d, since %v; want 0 and 3 since 900", b.failures(), b.Attempt(),
			b.Failing().Unix())
	}
	if s.First().Failures != 2 {
		t.Error("what the last owner has noted was changed")
	}
}

// The probe of another lease has begun at the same moment, so a batch of this one waits, without a failure of its own.
// It is the next probe, before a failed probe, which may be poison.
func TestABatchThatHasNotFailedIsTheProbeBeforeThoseThatHave(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 9, CanPark: true}, "a")
	w.outageBegins()
	w.wait(time.Minute)
	w.fails(w.wants(Call, 1))
	w.page("b")
	w.wait(time.Minute)
	w.Engine.now = w.now
	w.findProbe()
	w.breaker.beginProbe(w.now)
	w.wait(time.Minute)
	w.succeeds(w.wants(Call, 2))
	if w.breaker.IsOpen() {
		t.Error("a probe has succeeded, and the outage lasts")
	}
}

// The probe of another lease has begun at the same moment, so the batch of this one waits. It may be the whole common
// lane by then, and what is behind it must go on when it fails.
func TestKeysGoOnAfterTheProbeOfAnotherLease(t *testing.T) {
	w := newTrial(t, Rules{MaxItems: 1, MaxAttempts: 9}, "a", "b")
	w.outageBegins()
	w.wait(time.Second)
	w.Engine.now = w.now
	w.findProbe()
	w.breaker.beginProbe(w.now)
	w.wantsNothing(2 * time.Second)
	w.outageEnds()
	w.fails(w.wants(Call, 1))
	w.wants(Call, 2)
}

// A change failing after an outage, while others are handled, is parked: it is no sign of the next outage. This holds
// though its handler names it.
func TestASuspectThatOutlivesAnOutageIsParked(t *testing.T) {
	for _, named := range []bool{false, true} {
		w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 1, CanPark: true}, "a", "b")
		a := w.wants(Call, 1)
		w.wants(Call, 2)
		w.fails(a)
		w.wantsNothing(Never) // 2 may be handled
		w.outageBegins()
		w.outageEnds()
		w.wantsNothing(time.Second) // what has recovered does not get everything at once
		w.wait(time.Second)
		f := Failure{Err: errTrial}
		if a = w.wants(Call, 1); named {
			f.Left = []*Part{{Changes: []int{0}, Err: errTrial}}
		}
		w.Tell(Failed{Batch: a, Failure: f}, w.now)
		w.wants(Park, 1)
	}
}

func TestASuspectIsParkedWhenItIsTooOld(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 1, MaxAge: 5 * time.Second, CanPark: true}, "a", "b")
	a := w.wants(Call, 1)
	w.wants(Call, 2)
	w.fails(a)
	w.wantsNothing(5 * time.Second)
	w.wait(5 * time.Second)
	w.wants(Park, 1)
}

func TestABatchThatIsTooOldWaitsForItsPauses(t *testing.T) {
	w := newTrial(t, Rules{MaxAge: 2 * time.Second}, "a")
	for n := range 4 {
		w.fails(w.wants(Call, 1))
		if n > 1 {
			w.wantsNothing(time.Second << n)
		}
		w.wait(time.Second << n)
	}
}

// A letter needs nothing the handler needs, so it is stored when its pause is over.
func TestARefusedLetterDoesNotWaitForTheEndOfAnOutage(t *testing.T) {
	w := holding(t, 1)
	w.page("a")
	w.outageBegins()
	w.breaker.beginProbe(w.now.Add(time.Hour)) // another lease
	w.Tell(LetterRefused{Batch: w.wants(Park, 1)}, w.now)
	w.wantsNothing(time.Second)
	w.wait(time.Second)
	w.wants(Park, 1)
}

func TestFailuresOfAnOutageDoNotBeginTheNext(t *testing.T) {
	w := newTrial(t, Rules{})
	w.outageBegins()
	w.outageEnds()
	w.breaker.failed(0, w.breaker.outages(), "another", 9, w.now)
	if w.breaker.judge("another", w.breaker.outages(), w.now, true, w.now); w.breaker.IsOpen() {
		t.Error("one key fails after an outage, and that is the next one")
	}
}

func TestABreakerForgetsOldResults(t *testing.T) {
	w := newTrial(t, Rules{})
	w.breaker.troubled(w.now)
	for n := range 1000 {
		w.breaker.succeeded(fmt.Sprint(n), w.now)
	}
	if n := len(w.breaker.recent); n != remembered {
		t.Errorf("%d results are remembered, want %d", n, remembered)
	}
}

// Two batches have failed, and nothing was handled since. When something is, more is tried.
func TestASuccessHasMoreTried(t *testing.T) {
	w := newTrial(t, Rules{MaxItems: 4, MaxAttempts: 3, CanPark: true}, "a", "b", "c", "d", "e", "f")
	w.fails(w.wants(Call, 1, 2, 3, 4)) // two parts, whose keys are not told apart
	w.wantsNothing(time.Second)
	w.breaker.succeeded("of another lease", w.now)
	w.wants(Call, 5, 6)
}

// parkedAlone is an engine that has parked a change for want of others: it may be the first of an outage.
func parkedAlone(t *testing.T) *trial {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true, HasBox: true}, "a")
	w.fails(w.wants(Call, 1))
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	return w
}

// recalled takes the request for the letter handed over again.
func (w *trial) recalled(key string) *Request {
	w.t.Helper()
	w.wants(FindLetter)
	l := w.lanes.own[key]
	if l == nil || len(l.requests) != 1 || !l.requests[0].IsRecall() {
		w.t.Fatalf("the letter of %s is not recalled", key)
	}
	return l.requests[0]
}

// The letter may have been dropped meanwhile.
func TestWhatAnOutageHasHadParkedIsRecalledOnce(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		w := parkedAlone(t)
		w.outageBegins()
		w.outageEnds()
		q := w.recalled("a")
		if dropped {
			w.Tell(LetterFound{Request: q}, w.now)
		} else {
			w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1}}, w.now)
			w.handles(q, 1)
		}
		w.wants(Answer)
		w.outageBegins()
		w.outageEnds()
		w.wantsNothing(Never)
	}
}

func TestWhatWasParkedBeforeASuccessIsNotRecalled(t *testing.T) {
	w := parkedAlone(t)
	w.wait(time.Second)
	w.page("b")
	w.succeeds(w.wants(Call, 2))
	w.wait(time.Second)
	if n := w.Notes(); len(n.Recalls) != 0 {
		t.Errorf("the lease says %v", n.Recalls)
	}
	w.outageBegins()
	w.outageEnds()
	w.wantsNothing(Never)
}

// A slow call may succeed after a quick one begun later. Its success does not hide the quick one's.
func TestWhatWasParkedBeforeASuccessIsNotRecalledThoughASlowCallSucceedsLast(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 3, MaxItems: 1, MaxAttempts: 1, CanPark: true, HasBox: true}, "slow", "bad")
	slow, bad := w.wants(Call, 1), w.wants(Call, 2)
	w.wait(time.Second)
	w.fails(bad)
	w.wait(time.Second)
	w.page("good")
	good := w.wants(Call, 3)
	w.wait(time.Second)
	w.succeeds(good)
	w.succeeds(slow)
	w.Tell(LetterStored{Batch: w.wants(Park, 2)}, w.now)
	w.wait(time.Second)
	if n := w.Notes(); len(n.Recalls) != 0 {
		t.Errorf("the lease says %v", n.Recalls)
	}
	w.outageBegins()
	w.outageEnds()
	w.wantsNothing(Never)
}

// What was parked long ago takes no place from what an outage has had parked.
func TestThereIsRoomForTheRecallsOfAnOutage(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true, HasBox: true})
	for n := range maxRecalls + 1 {
		w.page(fmt.Sprint("bad ", n))
		w.fails(w.wants(Call, w.lsn))
		w.Tell(LetterStored{Batch: w.wants(Park, w.lsn)}, w.now)
		w.wait(time.Second)
		if n < maxRecalls {
			w.page("good")
			w.succeeds(w.wants(Call, w.lsn))
		}
		w.wait(time.Second)
	}
	w.outageBegins()
	w.outageEnds()
	w.recalled(fmt.Sprint("bad ", maxRecalls))
}

func TestALeaseHasRoomForSoManyRecalls(t *testing.T) {
	w := newTrial(t, Rules{HasBox: true})
	for n := range 2 * maxRecalls {
		w.recalls.note(w.Engine, &Batch{Changes: []*Change{{LSN: int64(n), Key: "a", Page: &Page{}}}, last: w.now})
	}
	if n := w.Notes(); len(n.Recalls) != maxRecalls {
		t.Errorf("the lease says %d, want %d", len(n.Recalls), maxRecalls)
	}
}

// A letter failing again during an outage returns after it.
func TestARecallThatFailsInAnOutageIsMadeAgain(t *testing.T) {
	w := parkedAlone(t)
	w.outageBegins()
	w.outageEnds()
	w.Tell(LetterFound{Request: w.recalled("a"), Letter: &Letter{LSN: 1}}, w.now)
	b := w.wants(Call, 1)
	w.outageBegins()
	w.fails(b)
	w.wants(Answer)
	w.outageEnds()
	w.recalled("a")
}

// The handler still reports an outage. So the letter is not to blame, and returns when something has succeeded.
func TestARecallWhoseHandlerNamesAnOutageIsMadeAgain(t *testing.T) {
	w := parkedAlone(t)
	w.outageBegins()
	w.outageEnds()
	w.Tell(LetterFound{Request: w.recalled("a"), Letter: &Letter{LSN: 1}}, w.now)
	w.Tell(Failed{Batch: w.wants(Call, 1), Failure: Failure{Err: errTrial, Outage: true}}, w.now)
	w.wants(Answer)
	w.page("b")
	w.succeeds(w.wants(Call, 2))
	w.recalled("a")
}

func TestARecallIsMadeLaterIfTheLettersCannotBeRead(t *testing.T) {
	w := parkedAlone(t)
	w.outageBegins()
	w.outageEnds()
	w.Tell(RequestFailed{Request: w.recalled("a"), Err: errTrial}, w.now)
	w.wants(Answer)
	w.wantsNothing(time.Second)
	w.wait(time.Second)
	w.recalled("a")
}

// There was an outage when the last owner ended, and the next one does not know whether it is over. The first success
// shows it.
func TestTheNextOwnerRecallsAfterItsFirstSuccess(t *testing.T) {
	w := parkedAlone(t)
	want := notes.Recall{Key: "a", Letter: "1.0"}
	if n := w.Notes(); len(n.Recalls) != 1 || n.Recalls[0] != want {
		t.Fatalf("the lease says %v", n.Recalls)
	}
	w.outageBegins()
	next := w.after(w.rules, false)
	next.wantsNothing(time.Second)
	next.page("b")
	next.succeeds(next.wants(Call, 2))
	next.recalled("a")
}

// Nothing else may come whose change would wake the engine.
func TestARecallThatWaitsIsWork(t *testing.T) {
	w := parkedAlone(t)
	w.outageBegins()
	w.outageEnds()
	w.Tell(RequestFailed{Request: w.recalled("a"), Err: errTrial}, w.now)
	w.wants(Answer)
	if w.wantsNothing(time.Second); w.IsIdle() {
		t.Error("an engine with a letter to hand over again is idle")
	}
}

// The handler says that of two changes one has failed, and that one is parked without another call.
func TestAPartThatWasParkedJustBeforeAnOutageIsRecalled(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true, HasBox: true}, "a", "a")
	b := w.wants(Call, 1, 2)
	w.wait(time.Second)
	w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, Left: []*Part{{Changes: []int{1}, Err: errTrial}}}}, w.now)
	w.Tell(LetterStored{Batch: w.wants(Park, 2)}, w.now)
	w.wait(time.Second)
	w.outageBegins()
	w.outageEnds()
	w.recalled("a")
}

// A bad change may be in every probe. What was handled beside it shows the end of the outage.
func TestAProbeThatIsHandledInPartEndsAnOutage(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true}, "a", "b")
	w.outageBegins()
	w.wait(time.Second)
	w.Tell(Failed{Batch: w.wants(Call, 1, 2), Failure: Failure{
		Err:  errTrial,
		Left: []*Part{{Changes: []int{1}, Err: errTrial}},
	}}, w.now)
	if w.breaker.IsOpen() {
		t.Error("a part of a probe was handled, and the outage lasts")
	}
}
