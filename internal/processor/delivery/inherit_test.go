package delivery

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// What the next owner of a lease knows of its changes.

// after is the owner following another one, who has ended without a word if it has crashed.
func (w *trial) after(r Rules, crashed bool) *trial {
	at, n := w.Position(), w.Notes()
	n.First = w.Attempts()
	next := newTrial(w.t, r)
	next.now, next.lsn = w.now, at.(int64)
	next.Begin(at)
	next.Restore(n, next.now)
	if crashed {
		next.Tell(OwnerCrashed{Suspect: n.Suspect}, next.now)
	}
	return next
}

// A frequent change of owners must not make a bad change live for ever.
func TestMaxAgeGoesOnUnderTheNextOwner(t *testing.T) {
	r := Rules{MaxAge: 20 * time.Second, CanPark: true}
	w := newTrial(t, r, "a", "b")
	w.fails(w.wants(Call, 1, 2))
	for range 3 {
		w.wait(6 * time.Second)
		w = w.after(r, false)
		w.page("a", "b")
		if b := w.wants(Call, 1, 2); b.Failing() != time.Unix(1000, 0) {
			t.Fatalf("failing since %v, want since the first owner", b.Failing())
		}
	}
	w.wait(2 * time.Second)
	w = w.after(r, false)
	w.page("a", "b")
	w.fails(w.wants(Call, 1, 2))
	w.fails(w.wants(Call, 1))
	w.wants(Park, 1)
}

func TestMaxAgeGoesOnForAKeyThatIsReadAgain(t *testing.T) {
	r := Rules{Concurrency: 2, MaxAttempts: 1, MaxAge: 20 * time.Second, CanReadKeys: true, MaxAside: 1, KeyPages: 1}
	w := newTrial(t, r, "a")
	w.fails(w.wants(Call, 1))
	w.wait(15 * time.Second)
	next := w.after(r, false)
	if n := next.Notes(); len(n.Aside) != 1 || len(n.Aside[0].Tried) != 1 || n.Aside[0].Tried[0].Failing != 1000 {
		t.Fatalf("the lease says %+v", n.Aside)
	}
	next.wants(ReadKey)
	next.Tell(KeyRead{Key: "a", Next: int64(1), Head: 0, Changes: 1, Meta: func(int) Meta {
		return Meta{LSN: 1, Key: "a", Size: 100}
	}}, next.now)
	if b := next.wants(Call, 1); b.Failing() != time.Unix(1000, 0) {
		t.Errorf("failing since %v", b.Failing())
	}
}

// A change ending the process is found by MaxAge alone, too.
func TestAChangeThatEndsTheProcessIsParkedWhenItIsTooOld(t *testing.T) {
	r := Rules{MaxAge: 20 * time.Second, CanPark: true}
	w := newTrial(t, r, "a", "b").after(r, true) // the first end leaves no note
	w.page("a", "b")
	for range 2 {
		if n := w.Notes(); n.Suspect != nil {
			t.Fatalf("nothing is in the handler, and the lease says %+v", n.Suspect)
		}
		w.wants(Call, 1, 2)
		if n := w.Notes(); n.Suspect == nil || n.Suspect.First().Failing != 1000 {
			t.Fatalf("the lease says %+v", n.Suspect)
		}
		w.wait(5 * time.Second)
		w = w.after(r, true)
		w.page("a", "b")
	}
	w.wait(10 * time.Second)
	w.wants(Call, 1, 2)
	w = w.after(r, true) // it is old, so one of two is to be told apart
	w.page("a", "b")
	w.wants(Call, 1)
	w = w.after(r, true)
	w.page("a", "b")
	if b := w.wants(Park, 1); b.Err != ErrCrashed {
		t.Errorf("parked because of %v", b.Err)
	}
}

// Attempts of an outage do not count against a change when its process ends.
func TestCallsOfAnOutageDoNotMakeACrash(t *testing.T) {
	r := Rules{MaxAttempts: 3, CanPark: true}
	w := newTrial(t, r, "a")
	for range 5 {
		w.Tell(Failed{Batch: w.wants(Call, 1), Failure: Failure{Err: errTrial, Outage: true}}, w.now)
		w.wait(time.Minute)
	}
	w.wants(Call, 1)
	w = w.after(r, true)
	w.page("a")
	if b := w.wants(Call, 1); b.Attempt() != 7 || b.failures() != 1 {
		t.Errorf("attempt %d with %d failures, want 7 and 1", b.Attempt(), b.failures())
	}
}

// The changes of other batches are between those of the batch that may have ended the process.
func TestNobodyInheritsTheCallsOfOthers(t *testing.T) {
	r := Rules{Concurrency: 2, MaxAttempts: 3, CanPark: true}
	w := newTrial(t, r, "a", "b", "a", "b")
	a := w.wants(Call, 1, 3)
	w.wants(Call, 2, 4)
	w.fails(a)
	w.wait(time.Second)
	w.wants(Call, 1, 3)
	want := []notes.Run{{Key: "a", From: 1, To: 3, Calls: 2, Failures: 2, Failing: 1000}}
	if n := w.Notes(); n.Suspect == nil || !reflect.DeepEqual(n.Suspect.Tried, want) {
		t.Fatalf("the lease says %+v, want %v", n.Suspect, want)
	}
	w = w.after(r, true)
	w.page("a", "b", "a", "b")
	a = w.wants(Call, 1, 3) // the engine is careful: one batch at a time
	if a.Attempt() != 3 {
		t.Errorf("attempt %d, want 3", a.Attempt())
	}
	w.succeeds(a)
	if b := w.wants(Call, 2, 4); b.Attempt() != 1 {
		t.Errorf("attempt %d, want 1", b.Attempt())
	}
}

// Several keys are in one call: only runs of the feed without anything of others are noted.
func TestACallOfSeveralKeysIsNotedInRuns(t *testing.T) {
	r := Rules{Concurrency: 2, MaxAttempts: 2, CanPark: true}
	w := newTrial(t, r)
	w.Tell(OwnerCrashed{}, w.now) // careful
	w.width.lanes = 2
	w.page("a", "b", "c", "c", "a", "b", "c", "c")
	w.wants(Call, 1, 5, 2, 6)
	want := []notes.Run{
		{From: 1, To: 2, Calls: 1, Failures: 1, Failing: 1000},
		{From: 5, To: 6, Calls: 1, Failures: 1, Failing: 1000},
	}
	if n := w.Notes(); n.Suspect == nil || !reflect.DeepEqual(n.Suspect.Tried, want) || n.Suspect.Letter != "1.0" ||
		n.Suspect.Changes != 4 {
		t.Errorf("the lease says %+v, want %v", n.Suspect, want)
	}
}

func TestALeaseHasRoomForSoManyBytesOfKeysThatAreSetAside(t *testing.T) {
	r := Rules{
		Concurrency: 3, MaxAttempts: 1, CanReadKeys: true, MaxAside: 10, KeyPages: 1, MaxAsideBytes: 20,
		AsideBytes: func(key string) int { return len(key) },
	}
	w := newTrial(t, r, "a long key", "another one", "short")
	first, second, third := w.wants(Call, 1), w.wants(Call, 2), w.wants(Call, 3)
	w.fails(first)
	w.fails(second)
	w.fails(third)
	if w.Counts().SetAside != 2 || w.lanes.own["another one"].aside.state != notAside {
		t.Errorf("%d keys are set aside, want those of 10 and 5 bytes", w.Counts().SetAside)
	}
	if got := w.News(); !slices.Equal(got, []KeyNews{{"a long key", BecameAside}, {"short", BecameAside}}) {
		t.Errorf("news %v", got)
	}
	w.wait(time.Second)
	w.succeeds(w.wants(Call, 1))
	w.wants(ReadKey)
	w.Tell(KeyRead{Key: "a long key", Next: int64(3), Head: 0, Changes: 0}, w.now)
	if got := w.News(); !slices.Equal(got, []KeyNews{{"a long key", CaughtUp}}) || w.asides.bytes != 5 {
		t.Errorf("news %v, %d bytes", got, w.asides.bytes)
	}
}

// The leases of a process share its breaker, and one probe is enough for all.
func TestOneLeaseProbes(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true}, "a", "b")
	other := newTrial(t, Rules{MaxAttempts: 1, CanPark: true}, "a", "b")
	other.breaker = w.breaker
	openBreaker(w.breaker, w.now)
	w.wait(time.Minute)
	other.now = w.now
	w.wants(Call, 1, 2)
	other.wantsNothing(2 * time.Second)
}

// A letter handed over again has been in the handler before.
func TestALetterKnowsItsCalls(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true, HasBox: true})
	q := &Request{Token: "1", Key: "a", Letter: "1.0"}
	w.Tell(RequestMade{Request: q}, w.now)
	w.wants(FindLetter)
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1, Calls: 2, Size: 100}}, w.now)
	if b := w.wants(Call, 1); b.Attempt() != 3 {
		t.Errorf("attempt %d, want 3", b.Attempt())
	}
}

func TestAKeyThatIsHeldAndReleasedIsNews(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true, HasBox: true, HoldKeys: true}, "a", "b")
	w.fails(w.wants(Call, 1, 2))
	w.fails(w.wants(Call, 1))
	w.succeeds(w.wants(Call, 2))
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	if got := w.News(); !slices.Equal(got, []KeyNews{{"a", BecameHeld}}) {
		t.Errorf("news %v", got)
	}
	next := w.after(Rules{MaxAttempts: 1, CanPark: true, HasBox: true, HoldKeys: true}, false)
	if got := next.News(); next.Counts().Held != 1 || len(got) > 0 {
		t.Errorf("%d keys are held by the next owner, for which it is no news: %v", next.Counts().Held, got)
	}
	q := &Request{Token: "1", Key: "a"}
	w.Tell(RequestMade{Request: q}, w.now)
	w.wants(ListLetters)
	w.Tell(LettersListed{Request: q, Failed: false}, w.now)
	if got := w.News(); !slices.Equal(got, []KeyNews{{"a", BecameFree}}) {
		t.Errorf("news %v", got)
	}
}

// A change parked just before an outage returns under the next owner, also if nothing else comes whose success would
// show the end of the outage.
func TestARecallNeedsNoOtherChange(t *testing.T) {
	r := Rules{MaxAttempts: 2, CanPark: true, HasBox: true}
	w := newTrial(t, r)
	w.Restore(Notes{Outage: true, Recalls: []notes.Recall{{Key: "a", Letter: "1.0"}, {Key: "b", Letter: "2.0"}}}, w.now)
	w.wantsNothing(time.Second)
	w.wait(time.Second)
	recall := func(key string) *Batch {
		do, _ := w.Next(w.now)
		if do.Kind != FindLetter || do.Request.Key != key {
			t.Fatalf("effect %+v, want the letter of %s", do, key)
		}
		w.Tell(LetterFound{Request: do.Request, Letter: &Letter{LSN: 1, Size: 100, Calls: 2}}, w.now)
		return w.wants(Call, 1)
	}
	w.fails(recall("a")) // the outage goes on, so no letter is rewritten
	w.wants(Answer)
	w.wantsNothing(2 * time.Second)
	w.wait(2 * time.Second)
	b := recall("b")
	w.succeeds(b)
	w.wants(Remove)
	w.succeeds(recall("a"))
}

func TestABadChangeIsNotRecalledForEver(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true, HasBox: true})
	w.Restore(Notes{Outage: true, Recalls: []notes.Recall{{Key: "a", Letter: "1.0"}}}, w.now)
	for n := range 2 {
		w.wait(time.Second << n)
		do, _ := w.Next(w.now)
		if do.Kind != FindLetter {
			t.Fatalf("try %d: effect %+v", n, do)
		}
		w.Tell(LetterFound{Request: do.Request, Letter: &Letter{LSN: 1, Size: 100}}, w.now)
		w.fails(w.wants(Call, 1))
		w.wants(Answer)
	}
	w.wait(time.Hour)
	w.wantsNothing(Never)
	if n := w.Notes(); len(n.Recalls) != 1 {
		t.Errorf("recalls %v: the next success may show that it was an outage", n.Recalls)
	}
}

// A letter handed over again when its owner ended without a word may be the reason, so it stays where it is. If it is
// gone, it was handled.
func TestARecallThatEndsTheProcessIsNotRepeated(t *testing.T) {
	for _, there := range []bool{true, false} {
		r := Rules{MaxAttempts: 2, CanPark: true, HasBox: true, HoldKeys: true}
		w := newTrial(t, r)
		w.Restore(Notes{
			Outage: true, Held: []notes.HeldKey{{Key: "a", Since: 1}},
			Recalls: []notes.Recall{{Key: "a", Letter: "1.0"}},
		}, w.now)
		w.wait(time.Second)
		do, _ := w.Next(w.now)
		w.Tell(LetterFound{Request: do.Request, Letter: &Letter{LSN: 1, Size: 100}}, w.now)
		if do, _ = w.Next(w.now); do.Kind != Call || !do.Note {
			t.Fatalf("effect %+v, want a call that is noted first", do)
		}
		if n := w.Notes(); len(n.Recalls) != 1 || !n.Recalls[0].InHand {
			t.Fatalf("the lease says %+v", n.Recalls)
		}
		w = w.after(r, true)
		do, _ = w.Next(w.now)
		if do.Kind != FindLetter {
			t.Fatalf("effect %+v, want a look for the letter", do)
		}
		if there {
			w.Tell(LetterFound{Request: do.Request, Letter: &Letter{LSN: 1, Size: 100}}, w.now)
		} else {
			w.Tell(LetterFound{Request: do.Request}, w.now)
			w.wants(ListLetters)
			w.Tell(LettersListed{Request: do.Request, Failed: false}, w.now)
		}
		w.wants(Answer)
		w.wantsNothing(Never)
		if n := w.Notes(); len(n.Recalls) > 0 || len(n.Held) > 0 != there {
			t.Errorf("letter there %v: the lease says %+v", there, n)
		}
	}
}

// One change was parked, and nothing has succeeded since: it may be the first of an outage, or bad. If the next owner
// recognizes an outage, the change returns at the end of it.
func TestAParkedChangeCountsForTheNextOwner(t *testing.T) {
	r := Rules{MaxAttempts: 1, CanPark: true, HasBox: true}
	w := newTrial(t, r, "a")
	w.fails(w.wants(Call, 1))
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	w = w.after(r, false)
	w.wantsNothing(Never)
	w.page("b", "c")
	w.fails(w.wants(Call, 2, 3))
	w.fails(w.wants(Call, 2))
	w.fails(w.wants(Call, 3))
	if _, _ = w.Next(w.now); !w.breaker.IsOpen() {
		t.Fatal("three keys have failed, and there is no outage")
	}
	w.wait(time.Minute)
	w.succeeds(w.wants(Call, 2))
	do, _ := w.Next(w.now)
	if do.Kind != FindLetter || do.Request.Letter != "1.0" {
		t.Errorf("effect %+v, want the letter of the parked change", do)
	}
}

// A key read again may be ahead of the feed. What is settled of it then is not told by the position.
func TestAKeyThatIsAheadOfTheFeedIsNoted(t *testing.T) {
	r := Rules{Concurrency: 2, MaxAttempts: 1, CanReadKeys: true, MaxAside: 1, KeyPages: 1}
	w := newTrial(t, r, "a")
	a := w.wants(Call, 1)
	w.fails(a)
	w.wait(time.Second)
	w.succeeds(w.wants(Call, 1))
	w.wants(ReadKey)
	w.Tell(KeyRead{Key: "a", Next: int64(5), Head: 5, Changes: 2, Meta: func(i int) Meta {
		return Meta{LSN: int64(4 + i), Key: "a", Size: 100}
	}}, w.now)
	w.succeeds(w.wants(Call, 4, 5))
	if n := w.Notes(); len(n.Aside) != 1 || n.Aside[0].LSN != 6 {
		t.Errorf("the lease says %+v, want that the key continues after 5", n.Aside)
	}
	w.lsn = 1
	w.page("b", "b", "a", "a", "b")
	w.succeeds(w.wants(Call, 2, 3, 6))
	w.wantsNothing(Never)
	if n := w.Notes(); len(n.Aside) > 0 {
		t.Errorf("the feed has come as far, and the lease says %+v", n.Aside)
	}
}

// In a unit shared with another kind of processor the position waits before a key set aside. What is done behind it
// does not come again under the next owner.
func TestWhatIsDoneBehindAPositionThatWaitsIsNoted(t *testing.T) {
	r := Rules{Concurrency: 2, MaxAttempts: 1, CanReadKeys: true, MaxAside: 1, KeyPages: 1}
	w := newTrial(t, r)
	w.Share(true)
	w.page("a", "b", "b")
	w.fails(w.wants(Call, 1))
	w.succeeds(w.wants(Call, 2, 3))
	w.page("b", "b")
	w.succeeds(w.wants(Call, 4, 5))
	if at, n := w.Position().(int64), w.Notes(); at != 0 || n.Through != 5 {
		t.Errorf("at %d: through %d, want 5; %+v", at, n.Through, n)
	}
}

// A key is read again a page at a time. The calls of its later changes are known all the same.
func TestCallsOfChangesBehindAPageOfAKeyAreKept(t *testing.T) {
	r := Rules{Concurrency: 2, MaxAttempts: 9, CanPark: true, CanReadKeys: true, MaxAside: 1, KeyPages: 1}
	w := newTrial(t, r)
	w.Restore(Notes{Aside: []Aside{{From: int64(0), AsideKey: notes.AsideKey{
		Key: "a", LSN: 1, Last: 4,
		Tried: []notes.Run{{From: 1, To: 4, Calls: 3, Failures: 3}},
	}}}}, w.now)
	w.wants(ReadKey)
	w.Tell(KeyRead{Key: "a", Next: int64(2), Head: 4, Changes: 2, Meta: func(i int) Meta {
		return Meta{LSN: int64(1 + i), Key: "a", Size: 100}
	}}, w.now)
	w.limit.items = 1 // the second change of the page waits, and is forgotten
	first := w.wants(Call, 1)
	w.MakeRoom(0, -time.Second, w.now)
	want := []notes.Run{
		{From: 1, To: 1, Calls: 3, Failures: 3},
		{From: 2, To: 2, Calls: 3, Failures: 3},
		{From: 2, To: 4, Calls: 3, Failures: 3},
	}
	if n := w.Notes(); len(n.Aside) != 1 || !reflect.DeepEqual(n.Aside[0].Tried, want) {
		t.Errorf("the lease says %+v, want %v", n.Aside, want)
	}
	w.limit.items = 0
	w.succeeds(first)
	w.wants(ReadKey)
	w.Tell(KeyRead{Key: "a", Next: int64(2), Head: 4, Changes: 1, Meta: func(int) Meta {
		return Meta{LSN: 2, Key: "a", Size: 100}
	}}, w.now)
	if b := w.wants(Call, 2); b.Attempt() != 4 {
		t.Errorf("attempt %d of 2, want 4", b.Attempt())
	} else {
		w.succeeds(b)
	}
	w.wants(ReadKey)
	w.Tell(KeyRead{Key: "a", Next: int64(4), Head: 4, Changes: 2, Meta: func(i int) Meta {
		return Meta{LSN: int64(3 + i), Key: "a", Size: 100}
	}}, w.now)
	if b := w.wants(Call, 3, 4); b.Attempt() != 4 {
		t.Errorf("attempt %d of 3, want 4", b.Attempt())
	}
}

// The handler is done with a change of a key, and not with two before it. The second of these is read again by key, and
// the change behind it is not handed over again.
func TestWhatIsDoneBehindAFailureIsNotReadAgain(t *testing.T) {
	r := Rules{Concurrency: 2, MaxAttempts: 1, CanReadKeys: true, MaxAside: 1, KeyPages: 1}
	w := newTrial(t, r, "a", "a", "a", "a")
	w.Tell(Failed{
		Batch: w.wants(Call, 1, 2, 3, 4),
		Failure: Failure{Left: []*Part{
			{Changes: []int{0}, Err: errTrial},
			{Changes: []int{1}, Err: errTrial},
			{Changes: []int{3}, Untried: true},
		}},
	}, w.now)
	w.wait(time.Second)
	w.succeeds(w.wants(Call, 1))
	w.wants(ReadKey)
	w.Tell(KeyRead{Key: "a", Next: int64(4), Head: 4, Changes: 3, Meta: func(i int) Meta {
		return Meta{LSN: int64(2 + i), Key: "a", Size: 100}
	}}, w.now)
	b := w.wants(Call, 2)
	w.succeeds(b)
	if b = w.wants(Call, 4); b.Attempt() != 1 {
		t.Errorf("attempt %d of what the handler has not had", b.Attempt())
	}
	w.succeeds(b)
	w.wantsNothing(Never)
	if w.Counts().Items != 0 || len(w.lanes.own) > 0 {
		t.Errorf("%d items, lanes %v", w.Counts().Items, w.lanes.own)
	}
}

// A call ending because the work on the lease ends in order is no attempt.
func TestACallThatIsCutIsNoAttempt(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true}, "a")
	w.fails(w.wants(Call, 1))
	w.wait(time.Second)
	w.Tell(Cut{Batch: w.wants(Call, 1)}, w.now)
	if b := w.wants(Call, 1); b.Attempt() != 2 || b.failures() != 1 {
		t.Errorf("attempt %d with %d failures after one failure and a stop, want 2 with 1", b.Attempt(), b.failures())
	}
}

// One of two changes of a transaction has failed alone. Its attempts stay with it under any number of owners.
func TestAttemptsStayWithTheirChangeOfATransaction(t *testing.T) {
	r := Rules{MaxAttempts: 9, CanPark: true}
	w := newTrial(t, r, "a", "+a")
	w.Tell(Failed{Batch: w.wants(Call, 1, 1), Failure: Failure{
		Err:  errTrial,
		Left: []*Part{{Changes: []int{0}, Err: errTrial}, {Changes: []int{1}, Untried: true}},
	}}, w.now)
	for range 3 {
		w = w.after(r, false)
		w.lsn = 0
		w.page("a", "+a")
		if n := w.Notes(); len(n.Tried) != 1 || !slices.Equal(n.Tried[0].Letters, []string{"1.0"}) ||
			n.Tried[0].Failures != 1 {
			t.Fatalf("the lease says %+v", n.Tried)
		}
	}
}

// After a merge of partitions nobody knows how far a key set aside goes. The first page of the key does not tell.
func TestHowFarAKeyGoesIsUnknownUntilItsEnd(t *testing.T) {
	r := Rules{Concurrency: 2, MaxAttempts: 1, CanReadKeys: true, MaxAside: 1, KeyPages: 1}
	w := newTrial(t, r)
	w.Restore(Notes{Aside: []Aside{{From: int64(0), AsideKey: notes.AsideKey{Key: "a", Passed: true}}}}, w.now)
	w.wants(ReadKey)
	w.Tell(KeyRead{Key: "a", Next: int64(2), Head: 9, Changes: 2, Meta: func(i int) Meta {
		return Meta{LSN: int64(1 + i), Key: "a", Size: 100}
	}}, w.now)
	n := w.Notes()
	if len(n.Aside) != 1 || n.Aside[0].Last != 0 || !n.Aside[0].Passed {
		t.Fatalf("the lease says %+v, want no last LSN, and that the position has passed the key", n.Aside)
	}
	next := newTrial(t, r)
	next.Restore(n, w.now)
	next.wants(ReadKey)
	next.Tell(KeyRead{Key: "a", Next: int64(2), Head: 9, Changes: 2, Meta: func(i int) Meta {
		return Meta{LSN: int64(1 + i), Key: "a", Size: 100}
	}}, next.now)
	next.succeeds(next.wants(Call, 1, 2))
	next.wants(ReadKey) // and on
}

// What was read by key was deleted before the feed came as far. Then the feed never gives it, and the key is not noted
// for ever.
func TestAKeyIsForgottenThoughTheFeedNeverGivesItsLastChange(t *testing.T) {
	r := Rules{Concurrency: 2, MaxAttempts: 1, CanReadKeys: true, MaxAside: 1, KeyPages: 1}
	w := newTrial(t, r, "a")
	w.fails(w.wants(Call, 1))
	w.wait(time.Second)
	w.succeeds(w.wants(Call, 1))
	w.wants(ReadKey)
	w.Tell(KeyRead{Key: "a", Next: int64(5), Head: 5, Changes: 1, Meta: func(int) Meta {
		return Meta{LSN: 5, Key: "a", Size: 100}
	}}, w.now)
	w.succeeds(w.wants(Call, 5))
	for n := range 3 {
		w.wantsNothing(Never)
		if got := len(w.Notes().Aside); got != map[bool]int{true: 1, false: 0}[n < 2] {
			t.Errorf("after %d reads that have found nothing %d keys are noted", n, got)
		}
		w.Tell(FeedPassed{Next: int64(6 + n)}, w.now)
	}
}

// An operator has dropped the letter. Its key stays held, because nobody has asked for its release.
func TestARecallWhoseLetterWasDroppedLeavesItsKeyHeld(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true, HasBox: true, HoldKeys: true})
	w.Restore(Notes{
		Outage: true, Held: []notes.HeldKey{{Key: "a", Since: 1}},
		Recalls: []notes.Recall{{Key: "a", Letter: "1.0"}},
	}, w.now)
	w.wait(time.Second)
	do, _ := w.Next(w.now)
	w.Tell(LetterFound{Request: do.Request}, w.now)
	w.wants(Answer)
	w.wantsNothing(Never)
	if n := w.Notes(); len(n.Held) != 1 || len(n.Recalls) > 0 {
		t.Errorf("the lease says %+v", n)
	}
}

// The removal of a handled letter has no answer, and the owner ends. The next one finds no letter, and frees the key.
func TestARecallThatIsHandledFreesItsKeyThoughTheRemovalFails(t *testing.T) {
	r := Rules{MaxAttempts: 2, CanPark: true, HasBox: true, HoldKeys: true}
	w := newTrial(t, r)
	w.Restore(Notes{
		Outage: true, Held: []notes.HeldKey{{Key: "a", Since: 1}},
		Recalls: []notes.Recall{{Key: "a", Letter: "1.0"}},
	}, w.now)
	w.wait(time.Second)
	do, _ := w.Next(w.now)
	w.Tell(LetterFound{Request: do.Request, Letter: &Letter{LSN: 1, Size: 100}}, w.now)
	w.succeeds(w.wants(Call, 1))
	w.wants(Remove)
	w.Tell(RequestFailed{Request: do.Request, Err: errTrial}, w.now)
	w.wants(Answer)
	if n := w.Notes(); len(n.Recalls) != 1 || !n.Recalls[0].Done || n.Recalls[0].InHand {
		t.Fatalf("the lease says %+v", n.Recalls)
	}
	w = w.after(r, false)
	if do, _ = w.Next(w.now); do.Kind != FindLetter {
		t.Fatalf("effect %+v, want a look for the letter", do)
	}
	w.Tell(LetterFound{Request: do.Request}, w.now)
	w.wants(ListLetters)
	w.Tell(LettersListed{Request: do.Request, Failed: false}, w.now)
	w.wants(Answer)
	if n := w.Notes(); len(n.Held) > 0 {
		t.Errorf("the lease says %+v", n.Held)
	}
}

// The first change of a transaction is alone in the handler, because its key was held when it came again. Setting the
// key aside forgets nothing of the transaction: it would be read again as a whole.
func TestATransactionThatHasBegunIsNotForgotten(t *testing.T) {
	r := Rules{MaxAttempts: 9, CanPark: true, HasBox: true, HoldKeys: true, CanReadKeys: true, MaxAside: 1, KeyPages: 1}
	w := newTrial(t, r)
	w.Restore(Notes{Held: []notes.HeldKey{{Key: "a", Since: 5}}}, w.now)
	w.page("a", "+a", "a")
	first := w.wants(Call, 1)
	w.MakeRoom(0, -time.Second, w.now)
	if w.Counts().SetAside != 1 || w.Counts().Items != 2 {
		t.Fatalf("%d keys are set aside, %d items", w.Counts().SetAside, w.Counts().Items)
	}
	w.succeeds(first)
	w.succeeds(w.wants(Call, 1))
	do, _ := w.Next(w.now)
	if do.Kind != ReadKey || w.lanes.own["a"].aside.after != 1 {
		t.Errorf("effect %+v after %d", do, w.lanes.own["a"].aside.after)
	}
}

// The handler may report an outage for hours, while owners change.
func TestMaxAgeGoesOnThroughOutagesThatTheHandlerNames(t *testing.T) {
	r := Rules{MaxAge: 20 * time.Second, CanPark: true}
	w := newTrial(t, r, "a")
	w.Tell(Failed{Batch: w.wants(Call, 1), Failure: Failure{Err: errTrial, Outage: true}}, w.now)
	w.wait(15 * time.Second)
	w = w.after(r, false)
	w.page("a")
	if b := w.wants(Call, 1); b.Failing() != time.Unix(1000, 0) {
		t.Errorf("failing since %v, want since the first owner", b.Failing())
	}
}

// A key that has failed under the last owner is in no batch with keys that have not: they would have its age, and be
// parked for it.
func TestKeysShareABatchOnlyIfTheyHaveFailedAlike(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2, MaxAttempts: 2, MaxAge: time.Hour, CanPark: true})
	w.width.lanes = 3
	w.wait(2 * time.Hour)
	w.Restore(Notes{Tried: []notes.Run{{From: 1, To: 1, Calls: 1, Failures: 1, Failing: 1000}}}, w.now)
	w.page("a", "b", "c", "d", "e", "f")
	w.wants(Call, 1)
	if b := w.wants(Call, 2, 3, 4); !b.Failing().IsZero() {
		t.Errorf("a batch that has not failed fails since %v", b.Failing())
	}
}
