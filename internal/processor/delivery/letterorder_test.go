package delivery

import (
	"testing"
	"time"
)

// Letters that an earlier hold has left, as a reset does, while a change between them comes again and fails.

// refused is an engine in which the change 5 of the key a has failed for good, and whose letter was refused once.
func refused(t *testing.T) (w *trial, b *Batch) {
	r := withBox
	r.CanReadKeys = false
	w = newTrial(t, r)
	w.lsn = 4
	w.page("a")
	w.Tell(Failed{Batch: w.wants(Call, 5), Failure: Failure{Err: errTrial, Hopeless: true}}, w.now)
	b = w.wants(Park, 5)
	w.Tell(LetterRefused{Batch: b}, w.now)
	return w, b
}

// lists answers a list of the held letters of a request.
func (w *trial) lists(q *Request, failed bool, lsns ...int64) {
	w.t.Helper()
	w.wants(ListLetters)
	var letters []*Letter
	for _, lsn := range lsns {
		letters = append(letters, &Letter{LSN: lsn})
	}
	w.Tell(LettersListed{Request: q, Letters: letters, Failed: failed}, w.now)
}

// Not the first letter of a list alone waits for what is before it.
func TestNoLetterOfAListPassesAnEarlierChange(t *testing.T) {
	w, _ := refused(t)
	q := w.asks(Request{Token: "1"})
	w.lists(q, false, 1, 9)
	w.handles(q, 1)
	w.lists(q, false, 9)
	if w.wants(Answer); q.Result != NotServed || q.Handled != 1 {
		t.Errorf("result %d and %d letters handled, want not served after 1", q.Result, q.Handled)
	}
	w.wait(time.Second)
	w.wants(Park, 5)
}

// parks has the change 5 parked while the handled letter 1 of a request is removed, and lets the removal end.
func (w *trial) parks(q *Request, b *Batch) {
	w.t.Helper()
	w.succeeds(w.wants(Call, 1))
	w.wants(Remove)
	w.wait(time.Second)
	w.wants(Park, 5)
	w.Tell(LetterStored{Batch: b}, w.now)
	w.Tell(LetterRemoved{Request: q}, w.now)
}

// The new letter, and those held behind it, are not in the list.
func TestTheLettersAreListedAgainIfOneWasStoredMeanwhile(t *testing.T) {
	w, b := refused(t)
	q := w.asks(Request{Token: "1"})
	w.lists(q, false, 1, 9)
	w.parks(q, b)
	w.lists(q, true, 7, 9)
	w.handles(q, 7)
	w.handles(q, 9)
	w.lists(q, true)
	if w.wants(Answer); q.Result != HandledAgain || w.Counts().Held != 0 {
		t.Errorf("result %d, and %d keys are held", q.Result, w.Counts().Held)
	}
}

// How many letters are left is not known if one was stored since they were listed.
func TestAnOldListDoesNotSayHowManyLettersAreLeft(t *testing.T) {
	for _, isOld := range []bool{true, false} {
		w, b := refused(t)
		q := w.asks(Request{Token: "1"})
		w.wants(ListLetters)
		if isOld {
			w.wait(time.Second)
			w.wants(Park, 5)
		}
		w.Tell(LettersListed{Request: q, Letters: []*Letter{{LSN: 1}, {LSN: 2}}}, w.now)
		if isOld {
			w.Tell(LetterStored{Batch: b}, w.now)
		}
		w.fails(w.wants(Call, 1))
		w.wants(Rewrite)
		w.Tell(LetterRewritten{Request: q}, w.now)
		w.wants(Answer)
		if n, known := q.Waiting(); q.Result != FailedAgain || n != 1 || known == isOld {
			t.Errorf("result %d, %d letters left, known %v, though the list is old: %v", q.Result, n, known, isOld)
		}
	}
}
