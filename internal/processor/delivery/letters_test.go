package delivery

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// How letters are handed over again, and which keys are held.

var withBox = Rules{
	Concurrency: 2, MaxAttempts: 1, CanPark: true, HasBox: true, HoldKeys: true, CanReadKeys: true,
	MaxAside: 9, KeyPages: 1,
}

// holding is an engine whose last owner held the key a.
func holding(t *testing.T, since int64) *trial {
	w := newTrial(t, withBox)
	w.Restore(Notes{Held: []notes.HeldKey{{Key: "a", Since: since}}}, w.now)
	return w
}

// asks has a request of the key a served.
func (w *trial) asks(q Request) *Request {
	q.Key = "a"
	w.Tell(RequestMade{Request: &q}, w.now)
	return &q
}

// handles has the handler succeed with the letter of a request, and the letter removed.
func (w *trial) handles(q *Request, lsn int64) {
	w.t.Helper()
	w.succeeds(w.wants(Call, lsn))
	w.wants(Remove)
	w.Tell(LetterRemoved{Request: q}, w.now)
}

func TestARequestIsServedOnce(t *testing.T) {
	w := newTrial(t, withBox)
	q := w.asks(Request{Token: "1", Letter: "1.0"})
	w.asks(Request{Token: "1", Letter: "1.0"})
	w.wants(FindLetter)
	if w.IsIdle() {
		t.Error("an engine that serves a request is idle")
	}
	w.Tell(LetterFound{Request: q}, w.now)
	w.wants(Answer)
	w.wantsNothing(Never)
	if !w.IsIdle() {
		t.Error("an engine whose only request is answered is not idle")
	}
}

func TestAWithdrawnRequestIsNotServed(t *testing.T) {
	w := newTrial(t, withBox)
	q := w.asks(Request{Token: "retry", Letter: "1.0"})
	w.wants(FindLetter)
	w.Tell(RequestWithdrawn{Key: "a", Token: "retry"}, w.now)
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1}}, w.now)
	w.wants(Answer)
	w.wantsNothing(Never)
	q = w.asks(Request{Token: "release"})
	w.wants(ListLetters)
	w.Tell(RequestWithdrawn{Key: "a", Token: "release"}, w.now)
	w.Tell(LettersListed{Request: q, Letters: []*Letter{{LSN: 1}}, Failed: false}, w.now)
	w.wants(Answer)
	w.wantsNothing(Never)
}

// The handler has the letter already, so its outcome counts.
func TestARequestIsNotWithdrawnWhileItsLetterIsInTheHandler(t *testing.T) {
	w := newTrial(t, withBox)
	q := w.asks(Request{Token: "1", Letter: "1.0"})
	w.wants(FindLetter)
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1}}, w.now)
	b := w.wants(Call, 1)
	w.Tell(RequestWithdrawn{Key: "a", Token: "1"}, w.now)
	w.succeeds(b)
	w.wants(Remove)
	w.Tell(LetterRemoved{Request: q}, w.now)
	if w.wants(Answer); q.Result != HandledAgain {
		t.Errorf("result %d", q.Result)
	}
}

// A letter that waits for its turn, as in an outage, is taken back with its request, and its key goes on.
func TestARequestIsWithdrawnUntilItsLetterIsInTheHandler(t *testing.T) {
	w := newTrial(t, withBox, "a")
	b := w.wants(Call, 1)
	q := w.asks(Request{Token: "1", Letter: "1.0"})
	w.wants(FindLetter)
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 9}}, w.now)
	w.Tell(RequestWithdrawn{Key: "a", Token: "1"}, w.now)
	if w.wants(Answer); q.Result != NotServed || w.Counts().Items != 1 {
		t.Errorf("result %d; %d changes are in memory, want that in the handler alone", q.Result, w.Counts().Items)
	}
	w.page("a")
	w.succeeds(b)
	w.succeeds(w.wants(Call, 2))
	w.wantsNothing(Never)
}

func TestAReleaseHandsOverOneLetterAfterTheOther(t *testing.T) {
	w := holding(t, 1)
	q := w.asks(Request{Token: "1"})
	w.wants(ListLetters)
	w.lsn = 4
	w.page("a")
	w.wantsNothing(Never) // it waits for the letters
	w.Tell(LettersListed{Request: q, Letters: []*Letter{{LSN: 1}, {LSN: 2}}, Failed: false}, w.now)
	w.handles(q, 1)
	w.handles(q, 2)
	w.wants(ListLetters)
	w.Tell(LettersListed{Request: q, Failed: false}, w.now)
	if w.wants(Answer); w.Counts().Held != 0 {
		t.Errorf("%d keys are held", w.Counts().Held)
	}
	w.wants(Call, 5)
}

// Also one that has failed for good by itself waits for the letters of those before it.
func TestTheLettersOfAKeyAreStoredInTheOrderOfItsChanges(t *testing.T) {
	w := newTrial(t, withBox, "a", "a", "a")
	w.Tell(Failed{Batch: w.wants(Call, 1, 2, 3), Failure: Failure{Err: errTrial, Left: []*Part{
		{Changes: []int{0, 1}, Err: errTrial}, {Changes: []int{2}, Err: errTrial, Hopeless: true},
	}}}, w.now)
	w.Tell(Failed{Batch: w.wants(Call, 1), Failure: Failure{Err: errTrial, Hopeless: true}}, w.now)
	for lsn := range int64(3) {
		w.Tell(LetterStored{Batch: w.wants(Park, lsn+1)}, w.now)
	}
	w.wantsNothing(Never)
}

// The changes behind a letter that is stored while the held letters are listed would not be in the list, and stay
// parked.
func TestAKeyThatIsHeldDuringAReleaseParksNothingMore(t *testing.T) {
	w := newTrial(t, withBox, "a", "a")
	w.Tell(Failed{Batch: w.wants(Call, 1, 2), Failure: Failure{
		Err:  errTrial,
		Left: []*Part{{Changes: []int{0}, Hopeless: true}, {Changes: []int{1}, Untried: true}},
	}}, w.now)
	q := w.asks(Request{Token: "1"})
	w.wants(ListLetters)
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	w.wantsNothing(Never)
	w.Tell(LettersListed{Request: q, Failed: false}, w.now)
	if w.wants(Answer); w.Counts().Held != 0 {
		t.Errorf("%d keys are held", w.Counts().Held)
	}
	w.wants(Call, 2)
}

// An owner that ends before the lease says that a key is held leaves held letters, and their changes come again. What
// of the key comes before them, and is not done, is handled or parked first.
func TestHeldLettersComeAfterEarlierChangesOfTheirKey(t *testing.T) {
	w := newTrial(t, withBox, "a")
	b := w.wants(Call, 1)
	release := func(lsn int64) *Request {
		q := w.asks(Request{Token: "1"})
		w.wants(ListLetters)
		w.Tell(LettersListed{Request: q, Letters: []*Letter{{LSN: lsn}}, Failed: false}, w.now)
		return q
	}
	if q := release(2); q.State != Answered || q.Result != NotServed {
		t.Errorf("result %d while an earlier change is in the handler", q.Result)
	}
	w.wants(Answer)
	w.succeeds(b)
	w.handles(release(2), 2)

	w = holding(t, 1)
	w.lsn = 4
	w.page("a")
	if q := release(6); q.State != Answered || q.Result != NotServed {
		t.Errorf("result %d while an earlier change is to be parked", q.Result)
	}
	w.wants(Answer)
	w.wants(Park, 5)

	w = holding(t, 1)
	w.lanes.own["a"].aside = aside{state: behind, after: 4}
	if q := release(6); q.State != Answered || q.Result != NotServed {
		t.Errorf("result %d while an earlier change is to be read again", q.Result)
	}
	w = holding(t, 1)
	w.lanes.own["a"].aside = aside{state: behind, after: 5}
	w.handles(release(6), 6)
}

// Which letters have failed is asked once: those that are held come after these.
func TestARetryGoesOnWithAllHeldLetters(t *testing.T) {
	w := holding(t, 1)
	q := w.asks(Request{Token: "1", Letter: "1.0"})
	w.wants(FindLetter)
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1}}, w.now)
	w.handles(q, 1)
	w.wants(ListLetters)
	w.Tell(LettersListed{Request: q, Letters: []*Letter{{LSN: 2}}, Failed: false}, w.now)
	w.handles(q, 2)
	w.wants(ListLetters)
	w.Tell(LettersListed{Request: q, Letters: []*Letter{{LSN: 3}}, Failed: true}, w.now)
	w.handles(q, 3)
}

func TestAReleaseIsServedThoughALetterIsRefused(t *testing.T) {
	w := holding(t, 1)
	w.page("a")
	b := w.wants(Park, 1)
	w.asks(Request{Token: "1"})
	w.wantsNothing(Never) // what is read of the letters must have this one
	w.Tell(LetterRefused{Batch: b}, w.now)
	w.wants(ListLetters)
}

// The parts of a batch that has failed come after a letter of their key.
func TestALetterGoesBeforeThePartsOfABatch(t *testing.T) {
	w := newTrial(t, withBox, "x", "a", "a")
	w.succeeds(w.wants(Call, 1))
	b := w.wants(Call, 2, 3)
	q := w.asks(Request{Token: "1", Letter: "1.0"})
	w.wants(FindLetter)
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1}}, w.now)
	w.fails(b)
	w.handles(q, 1)
	w.wants(Answer)
	w.wants(Call, 2)
}

func TestALetterWaitsForWhatIsInTheHandler(t *testing.T) {
	w := newTrial(t, withBox, "x", "a", "a")
	w.succeeds(w.wants(Call, 1))
	w.fails(w.wants(Call, 2, 3))
	w.wants(Call, 2)
	q := w.asks(Request{Token: "1", Letter: "1.0"})
	w.wants(FindLetter)
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1}}, w.now)
	w.page("a")
	w.MakeRoom(0, time.Second, w.now)
	if w.Counts().Items != 2 { // 3 and 4 are forgotten
		t.Errorf("%d changes and letters in memory, want 2", w.Counts().Items)
	}
	w.wantsNothing(Never)
}

// A batch of several keys does not have the others wait for the letter of one.
func TestALetterStopsNoOtherKey(t *testing.T) {
	w := newTrial(t, withBox)
	w.width.lanes = 2
	w.page("a", "b", "c", "d")
	b := w.wants(Call, 1, 2)
	w.Tell(Cut{Batch: b}, w.now)
	q := w.asks(Request{Token: "1", Letter: "9.0"})
	w.wants(FindLetter)
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 9}}, w.now)
	w.wants(Call, 2)
	w.wants(Call, 9)
}

// The changes of a key wait until the letter is handled that an outage has had parked.
func TestChangesWaitForARecall(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 2, CanPark: true, HasBox: true}, "a")
	w.fails(w.wants(Call, 1))
	w.wait(time.Second)
	q := w.asks(Request{Token: "1", Letter: "9.0", origin: recalled})
	w.wants(FindLetter)
	w.wantsNothing(Never) // 1 waits
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 9}}, w.now)
	w.handles(q, 9)
	w.wants(Answer)
	w.succeeds(w.wants(Call, 1))

	q = w.asks(Request{Token: "2", Letter: "9.0", origin: recalled})
	w.wants(FindLetter)
	w.page("a")
	w.wantsNothing(Never) // and so does what comes
	w.Tell(LetterFound{Request: q}, w.now)
	w.wants(Answer)
	w.wants(Call, 2)
}

// A change from before the one that its key is held for has come again, and fails: now the key is held for this one.
func TestAKeyIsHeldSinceTheFirstChangeThatFailed(t *testing.T) {
	w := holding(t, 5)
	w.page("a")
	w.Tell(Failed{Batch: w.wants(Call, 1), Failure: Failure{Err: errTrial, Hopeless: true}}, w.now)
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	if n := w.Notes(); w.lanes.own["a"].heldSince != 1 || !slices.Equal(n.Held, []notes.HeldKey{{Key: "a", Since: 1}}) {
		t.Errorf("held since %d, and the lease says %v", w.lanes.own["a"].heldSince, n.Held)
	}
}

// A change of a held key is parked for that, also if it has failed itself.
func TestASuspectOfAHeldKeyIsHeld(t *testing.T) {
	w := newTrial(t, withBox, "x", "a", "a")
	w.wants(Call, 1)
	b := w.wants(Call, 2, 3)
	w.Tell(Failed{Batch: b, Failure: Failure{
		Err:  errTrial,
		Left: []*Part{{Changes: []int{0}, Hopeless: true, Err: errTrial}, {Changes: []int{1}, Err: errTrial}},
	}}, w.now)
	w.Tell(LetterStored{Batch: w.wants(Park, 2)}, w.now)
	if b = w.wants(Park, 3); !b.IsHeld() {
		t.Error("a change of a held key is parked for itself")
	}
}

// Two letters that are stored at once must not hold one key more than a lease has room for. What waits behind the
// second one is forgotten, and its owner hears of it once.
func TestALeaseHasRoomForSoManyHeldKeys(t *testing.T) {
	r := withBox
	r.MaxHeld, r.MaxHeldBytes = 1, 1000
	w := newTrial(t, r, "a", "b", "b")
	a, b := w.wants(Call, 1), w.wants(Call, 2, 3)
	w.Tell(Failed{Batch: a, Failure: Failure{Err: errTrial, Hopeless: true}}, w.now)
	w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, Left: []*Part{
		{Changes: []int{0}, Hopeless: true},
		{Changes: []int{1}, Untried: true},
	}}}, w.now)
	w.wants(Park, 1)
	w.wants(TooManyHeld, 2)
	w.wantsNothing(Never)
	if w.Counts().Items != 2 || w.Counts().SetAside != 1 {
		t.Errorf("%d changes are in memory, %d keys set aside", w.Counts().Items, w.Counts().SetAside)
	}
}

func TestALetterThatWasRefusedLeavesNothingBehind(t *testing.T) {
	w := newTrial(t, withBox, "a")
	w.Tell(Failed{Batch: w.wants(Call, 1), Failure: Failure{Err: errTrial, Hopeless: true}}, w.now)
	w.Tell(LetterRefused{Batch: w.wants(Park, 1)}, w.now)
	w.wait(time.Second)
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	if len(w.batches) != 0 || w.Counts().Held != 1 {
		t.Errorf("%d batches are kept, %d keys held", len(w.batches), w.Counts().Held)
	}
}
