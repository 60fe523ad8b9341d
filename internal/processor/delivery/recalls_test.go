package delivery

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// What an outage has had parked returns, whatever comes between.

// A change was parked, and its lease has nothing else to do. If another lease of the instance detects the outage and
// its end, the change returns, so the driver of the engine must not have ended.
func TestAnEngineIsNotIdleWhileAnOutageMayRecallAChange(t *testing.T) {
	w := parkedAlone(t)
	if w.wantsNothing(Never); w.IsIdle() {
		t.Error("idle, although the change returns if an outage is detected")
	}
	w.outageBegins()
	w.wait(time.Minute)
	w.outageEnds()
	w.breaker.succeeded("of another lease", w.now)
	if w.IsIdle() {
		t.Error("idle, although an outage has ended that the engine has not heard of")
	}
	q := w.recalled("a")
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1, Name: "1.0"}}, w.now)
	w.handles(q, 1)
	w.wants(Answer)
	if !w.IsIdle() {
		t.Error("not idle, although the change has returned")
	}
}

func TestAnEngineIsIdleWhenASuccessShowsThatThereWasNoOutage(t *testing.T) {
	w := parkedAlone(t)
	w.wait(time.Second)
	w.breaker.succeeded("of another lease", w.now)
	if w.wantsNothing(Never); !w.IsIdle() {
		t.Error("not idle, although the change does not return")
	}
}

// A second letter is stored between the end of the outage and the engine's next step.
func TestALetterThatIsStoredWhenAnOutageEndsHidesNoRecall(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true, HasBox: true}, "a", "b")
	w.Tell(Failed{Batch: w.wants(Call, 1, 2), Failure: Failure{Left: []*Part{
		{Changes: []int{0}, Err: errTrial}, {Changes: []int{1}, Err: errTrial, Hopeless: true},
	}}}, w.now)
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	second := w.wants(Park, 2)
	w.outageBegins()
	w.wait(time.Second)
	w.outageEnds()
	w.breaker.succeeded("of another lease", w.now)
	second.blame = isCounted // it may return, too
	w.Tell(LetterStored{Batch: second}, w.now)
	w.recalled("a")
}

// heldChain is an engine that hands over again what is held behind a change which an outage has had parked. The change
// itself is handled, and its letter gone.
func heldChain(t *testing.T) (w *trial, q *Request) {
	w = newTrial(t, Rules{MaxAttempts: 1, CanPark: true, HasBox: true, HoldKeys: true}, "a", "a")
	w.fails(w.wants(Call, 1, 2))
	w.fails(w.wants(Call, 1))
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	w.Tell(LetterStored{Batch: w.wants(Park, 2)}, w.now)
	w.outageBegins()
	w.outageEnds()
	q = w.recalled("a")
	w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1, Name: "1.0"}}, w.now)
	w.handles(q, 1)
	w.wants(ListLetters)
	return w, q
}

// listsTheRest expects that the key is asked for again whose first letter is gone, and that its held letter follows.
func (w *trial) listsTheRest() {
	w.t.Helper()
	q := w.recalled("a")
	w.Tell(LetterFound{Request: q}, w.now)
	w.wants(ListLetters)
	w.Tell(LettersListed{Request: q, Letters: []*Letter{{LSN: 2, Name: "2.0"}}}, w.now)
	w.handles(q, 2)
	w.wants(ListLetters)
	w.Tell(LettersListed{Request: q}, w.now)
	if w.wants(Answer); w.Counts().Held != 0 {
		w.t.Error("the key is held, although all its letters are handled")
	}
}

func TestAChainThatReturnsGoesOnWhenTheLettersCanBeReadAgain(t *testing.T) {
	w, q := heldChain(t)
	for range 3 {
		w.Tell(RequestFailed{Request: q, Err: errTrial}, w.now)
		w.wants(Answer)
		w.wantsNothing(time.Second)
		w.wait(time.Second)
		q = w.recalled("a")
	}
	w.Tell(RequestFailed{Request: q, Err: errTrial}, w.now)
	w.wants(Answer)
	w.wait(time.Second)
	w.listsTheRest()
}

// The handler says for a held letter that there is an outage. The key waits for a success, and is not asked for without
// a pause.
func TestAChainThatReturnsGoesOnAfterAnOutageThatIsSaid(t *testing.T) {
	w, q := heldChain(t)
	w.Tell(LettersListed{Request: q, Letters: []*Letter{{LSN: 2, Name: "2.0"}}}, w.now)
	w.wait(time.Second)
	w.Tell(Failed{Batch: w.wants(Call, 2), Failure: Failure{Err: errTrial, Outage: true}}, w.now)
	w.wants(Answer)
	if do, wait := w.Next(w.now); do.Kind != Nothing || wait == 0 {
		t.Errorf("effect %+v, wait %v: want a pause", do, wait)
	}
	if n := w.Notes(); len(n.Recalls) != 1 || !n.Recalls[0].Done || !n.Recalls[0].Due {
		t.Errorf("the lease says %+v", n.Recalls)
	}
	w.wait(time.Second)
	w.page("b")
	w.succeeds(w.wants(Call, 3))
	w.listsTheRest()
}

// A held letter fails alone, and then the next outage is detected. The letter names what returns after it.
func TestAHeldLetterThatFailsInTheNextOutageReturnsAfterIt(t *testing.T) {
	w, q := heldChain(t)
	w.Tell(LettersListed{Request: q, Letters: []*Letter{{LSN: 2, Name: "2.0"}}}, w.now)
	w.wait(time.Second)
	w.fails(w.wants(Call, 2))
	w.wants(Rewrite)
	w.Tell(LetterRewritten{Request: q}, w.now)
	w.wants(Answer)
	w.outageBegins()
	w.outageEnds()
	if q = w.recalled("a"); q.Letter != "2.0" {
		t.Errorf("letter %s is recalled, want 2.0", q.Letter)
	}
}

func TestARecallThatFailsReturnsOnlyIfNothingHasSucceededSince(t *testing.T) {
	for _, succeeds := range []bool{false, true} {
		w := parkedAlone(t)
		w.outageBegins()
		w.outageEnds()
		q := w.recalled("a")
		w.Tell(LetterFound{Request: q, Letter: &Letter{LSN: 1, Name: "1.0"}}, w.now)
		w.wait(time.Second)
		w.fails(w.wants(Call, 1))
		w.wants(Rewrite)
		if succeeds {
			w.wait(time.Second)
			w.breaker.succeeded("of another lease", w.now)
		}
		w.Tell(LetterRewritten{Request: q}, w.now)
		w.wants(Answer)
		w.wait(time.Second)
		w.outageBegins()
		w.outageEnds()
		if succeeds {
			w.wantsNothing(Never)
		} else {
			w.recalled("a")
		}
	}
}

// The lease is written between the end of the outage and the engine's next step. The next owner must know that the
// change returns in any case: there is no outage any more that could end.
func TestTheNextOwnerRecallsWhatAnOutageThatHasJustEndedHadParked(t *testing.T) {
	for name, r := range map[string]Rules{
		"before the engine hears of the end": {MaxAttempts: 1, CanPark: true, HasBox: true},
		"while the letter is looked for":     {MaxAttempts: 1, CanPark: true, HasBox: true, HoldKeys: true},
	} {
		w := newTrial(t, r, "a")
		w.fails(w.wants(Call, 1))
		w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
		if n := w.Notes(); len(n.Recalls) != 1 || n.Recalls[0].Due {
			t.Fatalf("%s: before the outage the lease says %+v", name, n.Recalls)
		}
		w.outageBegins()
		w.wait(time.Second)
		w.outageEnds()
		w.breaker.succeeded("of another lease", w.now)
		if r.HoldKeys {
			w.recalled("a")
		}
		n := w.Notes()
		if len(n.Recalls) != 1 || n.Recalls[0] != (notes.Recall{Key: "a", Letter: "1.0", Due: true}) || n.Outage {
			t.Fatalf("%s: the lease says %+v", name, n.Recalls)
		}
		w = w.after(r, false)
		w.wait(time.Second)
		w.page("b")
		w.succeeds(w.wants(Call, 2))
		w.recalled("a")
	}
}

// A lease is split in an outage. The outage goes on as long as the instance has a part that may have what has failed.
func TestAnOutageEndsWhenTheLastPartThatMayHaveFailedLeaves(t *testing.T) {
	for _, c := range []struct {
		name  string
		other func(w *trial) // what becomes of the second part
		ends  bool
	}{
		{"has changes", func(w *trial) { w.page("a") }, false},
		{"is read to its end", func(w *trial) { w.Tell(FeedPassed{Next: int64(1), AtEnd: true}, w.now) }, true},
		{"has passed a page", func(w *trial) { w.Tell(FeedPassed{Next: int64(1)}, w.now) }, false},
		{"leaves", func(w *trial) { w.Tell(LeaseLeft{}, w.now) }, true},
	} {
		parent := newTrial(t, Rules{MaxAttempts: 1, CanPark: true})
		b := parent.breaker
		for n := range outage {
			b.failed(parent.number, b.outages(), "a", int64(n), parent.now)
		}
		if b.judge("a", b.outages(), parent.now, false, parent.now); !b.IsOpen() {
			t.Fatal("no outage")
		}
		part := func() *trial {
			w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true})
			w.Engine = New(w.rules, b)
			w.Begin(int64(0))
			w.Restore(Notes{Outage: true}, w.now)
			return w
		}
		first, second := part(), part()
		if parent.Tell(LeaseLeft{}, parent.now); !b.IsOpen() {
			t.Errorf("%s: the outage is over for the split", c.name)
		}
		first.Tell(LeaseLeft{}, first.now)
		if c.other(second); b.IsOpen() == c.ends {
			t.Errorf("the second part %s: outage %v", c.name, b.IsOpen())
		}
	}
}

// A lease comes from an instance that saw an outage. Here is none, and the next one is judged by what fails here.
func TestALeaseFromAnOutageBringsNoOutage(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true})
	w.Restore(Notes{Outage: true}, w.now)
	w.outageBegins()
	if w.breaker.leave(0, w.now); w.breaker.IsOpen() {
		t.Error("the outage lasts for a lease that came before it")
	}
	w.outageBegins()
	if w.Tell(FeedPassed{Next: int64(1), AtEnd: true}, w.now); !w.breaker.IsOpen() {
		t.Error("the outage is over because a lease that came before it has nothing")
	}
}
