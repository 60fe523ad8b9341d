package delivery

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// How keys that are set aside are read again.

var readsKeys = Rules{Concurrency: 2, MaxAttempts: 1, CanReadKeys: true, MaxAside: 2, KeyPages: 1}

// behindWith is an engine whose last owner has set keys aside: the changes from LSN 1 to 5 are to be read again.
func behindWith(t *testing.T, last int64, keys ...string) *trial {
	w := newTrial(t, readsKeys)
	w.lsn = 5
	w.Begin(int64(5))
	var n Notes
	for _, key := range keys {
		n.Aside = append(n.Aside, Aside{AsideKey: notes.AsideKey{
			Key: key, LSN: 1, Last: last, Passed: true,
			Covered: 5,
		}, From: int64(0)})
	}
	w.Restore(n, w.now)
	return w
}

// reads answers a read of a key with the changes of some LSNs.
func (w *trial) reads(key string, head int64, lsns ...int64) {
	next := w.lanes.own[key].aside.from
	if n := len(lsns); n > 0 {
		next = lsns[n-1]
	}
	w.Tell(KeyRead{Key: key, Next: next, Head: head, Changes: len(lsns), Meta: func(i int) Meta {
		return Meta{lsns[i], key, 100}
	}}, w.now)
}

func TestAKeyThatIsToBeReadIsWork(t *testing.T) {
	w := behindWith(t, 5, "a")
	if w.IsIdle() {
		t.Error("an engine with a key to read again is idle")
	}
	w.wants(ReadKey)
	w.reads("a", 5)
	if !w.IsIdle() || w.Counts().SetAside != 0 {
		t.Errorf("%d keys are set aside, idle %v", w.Counts().SetAside, w.IsIdle())
	}
}

func TestSoManyKeysAreReadAtOnce(t *testing.T) {
	w := behindWith(t, 5, "a", "b")
	w.wants(ReadKey)
	w.wantsNothing(Never)
	w.reads("a", 5)
	w.wants(ReadKey)
}

func TestAKeyThatCannotBeReadIsReadLater(t *testing.T) {
	w := behindWith(t, 5, "a")
	for n := range 4 {
		w.wants(ReadKey)
		w.Tell(KeyFailed{Key: "a"}, w.now)
		w.wantsNothing(time.Second << n)
		w.wait(time.Second << n)
	}
	w.wants(ReadKey)
}

func TestAPauseBetweenReadsIsShortAgainAfterASuccess(t *testing.T) {
	w := behindWith(t, 5, "a")
	for n := range 3 {
		w.wants(ReadKey)
		w.Tell(KeyFailed{Key: "a"}, w.now)
		w.wait(time.Second << n)
	}
	w.wants(ReadKey)
	w.reads("a", 5, 1)
	w.succeeds(w.wants(Call, 1))
	w.wants(ReadKey)
	w.Tell(KeyFailed{Key: "a"}, w.now)
	w.wantsNothing(time.Second)
}

// Each key that is set aside costs reads. So those go first that have the most in memory, and no more than is needed.
func TestKeysWithTheMostChangesAreSetAsideFirst(t *testing.T) {
	r := readsKeys
	r.Concurrency = 3
	w := newTrial(t, r, "a", "b", "c")
	for lsn := range int64(3) {
		w.wants(Call, lsn+1)
	}
	w.page("a", "b", "b", "b", "c")
	w.wait(time.Minute)
	w.MakeRoom(5, time.Second, w.now)
	if got := w.News(); len(got) != 1 || got[0] != (KeyNews{"b", BecameAside}) || w.Counts().Items != 5 {
		t.Errorf("news %v, %d changes in memory: want b set aside alone, and 5", got, w.Counts().Items)
	}
}

// A replica that has not seen the last change yet says nothing about the end of a key.
func TestAKeyIsReadUntilAReplicaHasAllOfIt(t *testing.T) {
	w := behindWith(t, 5, "a")
	w.wants(ReadKey)
	w.reads("a", 4)
	w.wantsNothing(time.Second)
	w.wait(time.Second)
	w.wants(ReadKey)
	w.reads("a", 5)
	if w.Counts().SetAside != 0 {
		t.Error("the key is set aside still")
	}
}

// What the feed brings while the last page of a key is read may have come too late for that page.
func TestAChangeThatComesDuringAReadOfItsKeyIsReadByKey(t *testing.T) {
	w := behindWith(t, 5, "a")
	w.wants(ReadKey)
	w.page("a")
	w.reads("a", 0)
	w.wantsNothing(time.Second)
	w.wait(time.Second)
	w.wants(ReadKey)
	w.reads("a", 0, 6)
	w.succeeds(w.wants(Call, 6))
	if w.wantsNothing(Never); w.Counts().SetAside != 0 {
		t.Error("the key is set aside still")
	}
}

// An owner of an older version does not say how far a key must be read. So it is read until nothing is left.
func TestAKeyWhoseLastChangeIsNotKnownIsReadToItsEnd(t *testing.T) {
	w := behindWith(t, 0, "a")
	w.wants(ReadKey)
	w.reads("a", 0, 3)
	w.succeeds(w.wants(Call, 3))
	w.wants(ReadKey)
	w.reads("a", 0, 4)
	w.succeeds(w.wants(Call, 4))
	w.wants(ReadKey)
	w.reads("a", 0)
	if w.wantsNothing(Never); w.Counts().SetAside != 0 {
		t.Error("the key is set aside still")
	}
}

func TestForgottenChangesKeepTheirAttempts(t *testing.T) {
	r := readsKeys
	r.MaxAttempts = 2
	w := newTrial(t, r, "a", "x", "a")
	b := w.wants(Call, 1, 3)
	w.succeeds(w.wants(Call, 2))
	w.fails(b)
	w.wait(time.Second)
	w.fails(w.wants(Call, 1, 3)) // it is divided
	w.fails(w.wants(Call, 1))    // 3 is forgotten
	if w.Counts().Items != 1 {
		t.Fatalf("%d changes in memory, want 1", w.Counts().Items)
	}
	w.wait(time.Minute)
	w.succeeds(w.wants(Call, 1))
	w.wants(ReadKey)
	w.reads("a", 3, 3)
	if b := w.wants(Call, 3); b.Attempt() != 3 {
		t.Errorf("attempt %d, want 3", b.Attempt())
	}
}

// A key is read again from the LSN on that follows what is in memory. So of a transaction nothing is forgotten alone.
func TestTheRestOfATransactionIsNotForgotten(t *testing.T) {
	w := newTrial(t, readsKeys, "a", "+a", "a", "x")
	b := w.wants(Call, 1, 1)
	w.fails(b)
	w.fails(w.wants(Call, 1))
	if w.Counts().SetAside != 1 || w.Counts().Items != 3 {
		t.Errorf("%d keys are set aside, %d changes in memory, want 1 and both of LSN 1 with 3", w.Counts().SetAside,
			w.Counts().Items)
	}
}

// The first part of it is done, and would come again.
func TestTheRestOfATransactionIsNotForgottenBehindALetter(t *testing.T) {
	r := readsKeys
	r.HasBox = true
	w := newTrial(t, r, "a", "+a")
	w.fails(w.wants(Call, 1, 1))
	w.succeeds(w.wants(Call, 1))
	q := w.asks(Request{Token: "1", Letter: "0.0"})
	w.wants(FindLetter)
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 9}}, w.now)
	w.wants(Call, 9)
	w.page("a")
	w.wait(time.Second)
	if w.MakeRoom(0, 0, w.now); w.Counts().SetAside != 1 || w.Counts().Items != 2 {
		t.Errorf("%d keys are set aside, %d changes in memory, want 1, the letter and the rest of the transaction",
			w.Counts().SetAside, w.Counts().Items)
	}
}

// A key is held from within a transaction. What waits of that is not forgotten, because the first part of it would come
// again.
func TestTheRestOfATransactionOfAHeldKeyIsNotForgotten(t *testing.T) {
	r := withBox
	w := newTrial(t, r, "a", "+a", "+a", "a")
	w.Tell(Failed{
		Batch: w.wants(Call, 1, 1, 1, 2),
		Failure: Failure{Err: errTrial, Left: []*Part{
			{Changes: []int{1}, Hopeless: true},
			{Changes: []int{2, 3}, Untried: true},
		}},
	}, w.now)
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	w.asks(Request{Token: "1"})
	w.wants(ListLetters)
	if w.MakeRoom(0, 0, w.now); w.Counts().SetAside != 1 || w.Counts().Items != 1 {
		t.Errorf("%d keys are set aside, %d changes in memory, want 1 and the rest of the transaction",
			w.Counts().SetAside, w.Counts().Items)
	}
}

// A handler that hangs on a key must not have the changes behind it fill the memory.
func TestWhatWaitsForACallOfLongIsForgotten(t *testing.T) {
	w := newTrial(t, readsKeys, "a")
	b := w.wants(Call, 1)
	w.page("a", "a")
	w.wait(time.Second)
	w.MakeRoom(0, time.Minute, w.now)
	if w.Counts().Items != 3 {
		t.Errorf("%d changes in memory after a second, want 3", w.Counts().Items)
	}
	w.wait(time.Minute)
	w.MakeRoom(0, time.Minute, w.now)
	if w.Counts().Items != 1 || w.Counts().SetAside != 1 {
		t.Errorf("%d changes in memory after a minute, want 1", w.Counts().Items)
	}
	w.succeeds(b)
	w.wants(ReadKey)
}

// The position has passed a key that is set aside. When a processor of another kind joins, it must not move back.
func TestThePositionDoesNotMoveBackWhenALeaseIsShared(t *testing.T) {
	r := readsKeys
	r.After = knowsLSNs
	w := newTrial(t, r, "a", "b")
	w.fails(w.wants(Call, 1))
	w.succeeds(w.wants(Call, 2))
	if at := w.Position(); at != int64(2) {
		t.Fatalf("position %v, want 2", at)
	}
	w.Share(true)
	if at := w.Position(); at != int64(2) {
		t.Errorf("position %v of a shared lease, want 2", at)
	}
}

// The position of a shared lease waits for a key within a page that is not settled. When the key goes on, the position
// does not move back to the begin of the page.
func TestThePositionDoesNotMoveBackWhenAKeyGoesOn(t *testing.T) {
	r := readsKeys
	r.After = knowsLSNs
	w := newTrial(t, r)
	w.Begin(int64(2))
	w.Share(true)
	w.Restore(Notes{Aside: []Aside{{
		AsideKey: notes.AsideKey{Key: "a", LSN: 4, Last: 3, Passed: true, Covered: 2},
		From:     int64(3),
	}}}, w.now)
	w.lsn = 4
	w.page("b", "x", "a")
	w.wants(ReadKey)
	w.wants(Call, 5)
	if at := w.Position(); at != int64(3) {
		t.Fatalf("position %v before the key is read, want 3", at)
	}
	w.reads("a", 0, 7)
	if at := w.Position(); at != int64(3) {
		t.Errorf("position %v after the key was read, want 3", at)
	}
}

// The position of a shared lease is that of a read after the last change, since nothing came there. When the next
// change comes, the position does not move back to the last change that it has passed.
func TestThePositionDoesNotMoveBackToTheLastChangeBeforeIt(t *testing.T) {
	r := readsKeys
	r.After = knowsLSNs
	w := newTrial(t, r)
	w.Begin(int64(3))
	w.Share(true)
	w.Restore(Notes{Aside: []Aside{{
		AsideKey: notes.AsideKey{Key: "a", LSN: 4, Last: 3, Passed: true, Covered: 3},
		From:     int64(3),
	}}}, w.now)
	w.Tell(FeedPassed{Next: int64(6)}, w.now)
	if at := w.Position(); at != int64(6) {
		t.Fatalf("position %v after a read without changes, want 6", at)
	}
	w.lsn = 8
	w.page("b")
	if at := w.Position(); at != int64(6) {
		t.Errorf("position %v when a change has come, want 6", at)
	}
}

// A processor of another kind may move the position. Then the next owner keeps the key only if the position had passed
// its change before: here it is right behind that.
func TestThePositionHasPassedTheChangeBeforeIt(t *testing.T) {
	w := newTrial(t, readsKeys, "b", "a")
	w.succeeds(w.wants(Call, 1))
	w.fails(w.wants(Call, 2))
	if n := w.Notes(); len(n.Aside) != 1 || n.Aside[0].LSN != 2 || n.Aside[0].Covered != 2 || !n.Aside[0].Passed {
		t.Errorf("the position is %v, and the lease says %+v", w.Position(), n.Aside)
	}
}

// Pages behind one that is stuck are merged. The position passes all of them at once.
func TestThePositionPassesPagesThatAreMerged(t *testing.T) {
	r := readsKeys
	r.Concurrency = 3
	w := newTrial(t, r, "b")
	stuck := w.wants(Call, 1)
	w.page("a")
	w.fails(w.wants(Call, 2))
	for lsn := int64(3); lsn < 16; lsn++ {
		w.page("c")
		w.succeeds(w.wants(Call, lsn))
	}
	w.page("a") // it is forgotten
	w.succeeds(stuck)
	if n := w.Notes(); len(n.Aside) != 1 || n.Aside[0].LSN != 2 || n.Aside[0].Covered != 16 || !n.Aside[0].Passed {
		t.Errorf("the position is %v, and the lease says %+v", w.Position(), n.Aside)
	}
}
