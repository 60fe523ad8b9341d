package delivery

import (
	"fmt"
	"testing"
	"time"
)

func newTestEngine(r Rules, b *Breaker) *Engine {
	r.Backoff, r.HeldBytes = second, func(string) int { return 1 }
	r.Name = func(c *Change) string { return letterName(c.LSN, c.Place) }
	e := New(r, b)
	e.Begin(int64(0))
	return e
}

// addKeys adds a page with one change of each of so many keys.
func addKeys(e *Engine, keys int, now time.Time) {
	e.Tell(PageRead{Next: int64(keys), Changes: keys, Meta: func(i int) Meta {
		return Meta{LSN: int64(i + 1), Key: fmt.Sprint(i), Size: 1}
	}}, now)
}

func TestAFailureAfterTheEndOfItsOutageDoesNotCount(t *testing.T) {
	b := NewBreaker(second)
	e := newTestEngine(Rules{Concurrency: 4, MaxAttempts: 1, CanPark: true}, b)
	addKeys(e, 4, start)
	var calls []*Batch
	for range 4 {
		do, _ := e.Next(start)
		calls = append(calls, do.Batch)
	}
	slow := calls[3]
	now := start
	for _, c := range calls[:3] {
		now = now.Add(time.Millisecond)
		e.Tell(Failed{Batch: c, Failure: Failure{Err: errHandler}}, now)
	}
	if !b.IsOpen() {
		t.Fatal("three keys have failed, and there is no outage")
	}
	b.close(now.Add(time.Second)) // a call of another lease has succeeded
	now = now.Add(2 * time.Second)
	e.Next(now)
	e.Tell(Failed{Batch: slow, Failure: Failure{Err: errHandler}}, now)
	if slow.State != ToCall || slow.Changes[0].failures != 0 {
		t.Errorf("state %d with %d failures: want another try", slow.State, slow.Changes[0].failures)
	}
}

// Leases share a breaker, and each has a goroutine of its own: the outage may end at any moment of a step.
func TestAnOutageThatEndsWhileAFailureIsJudgedParksNothing(t *testing.T) {
	b := NewBreaker(second)
	e := newTestEngine(Rules{MaxAttempts: 1, CanPark: true}, b)
	addKeys(e, 1, start)
	do, _ := e.Next(start)
	openBreaker(b, start)
	now := start.Add(time.Second)
	e.rules.Backoff = func(failures int) time.Duration {
		b.close(now) // a probe of another lease has succeeded
		b.succeeded("another", now)
		return second(failures)
	}
	e.Tell(Failed{Batch: do.Batch, Failure: Failure{Err: errHandler}}, now)
	if s := do.Batch.State; s == ToPark {
		t.Error("the change is parked for a call that began before the end of the outage")
	}
	for i := range outage - 1 {
		b.failed(1, b.outages(), fmt.Sprint("other ", i), 1, now)
	}
	if b.judge("other 0", b.outages(), now, true, now); b.IsOpen() {
		t.Error("the change is a sign of the next outage")
	}
	e.rules.Backoff = second
	e.Next(now)
	if do, _ = e.Next(now.Add(time.Second)); do.Kind != Call {
		t.Fatalf("%+v, want another try", do)
	}
}

func TestAnEngineThatHasNotHeardOfTheEndOfAnOutageParksNothing(t *testing.T) {
	b := newTrialBreaker()
	heard := b.outages()
	openBreaker(b, start)
	b.close(start.Add(time.Second))
	b.succeeded("probe", start.Add(time.Second))
	if b.judge("failing 0", heard, start, true, start.Add(time.Second)) {
		t.Error("parked before it heard of the end")
	}
	if !b.judge("failing 0", b.outages(), start, true, start.Add(time.Second)) {
		t.Error("not parked although others are handled")
	}
}

// The worlds of the search are too small for this: three other keys must fail while the batch waits.
func TestAnOldBatchIsDividedInAnOutage(t *testing.T) {
	b := NewBreaker(second)
	e := newTestEngine(Rules{MaxAttempts: 2, MaxAge: 3 * time.Second, CanPark: true}, b)
	e.Tell(PageRead{Next: int64(1), Changes: 2, Meta: func(int) Meta { return Meta{LSN: 1, Key: "a", Size: 1} }}, start)
	do, _ := e.Next(start)
	e.Tell(Failed{Batch: do.Batch, Failure: Failure{Err: errHandler}}, start)
	for i := range outage { // keys of another lease
		b.failed(0, b.outages(), fmt.Sprint(i), 1, start)
	}
	if b.judge("0", b.outages(), start, true, start); !b.IsOpen() {
		t.Fatal("no outage")
	}
	b.beginProbe(start.Add(time.Hour)) // no probe goes from here
	if do, wait := e.Next(start.Add(2 * time.Second)); do.Kind != Nothing || wait != time.Second {
		t.Fatalf("before MaxAge: %+v, wait %v", do, wait)
	}
	now := start.Add(3 * time.Second)
	for range 2 { // each change has one try, and is parked
		do, _ := e.Next(now)
		if do.Kind != Call || len(do.Batch.Changes) != 1 {
			t.Fatalf("after MaxAge: %+v", do)
		}
		e.Tell(Failed{Batch: do.Batch, Failure: Failure{Err: errHandler}}, now)
		if do, _ = e.Next(now); do.Kind != Park {
			t.Fatalf("after its try: %+v", do)
		}
		e.Tell(LetterStored{Batch: do.Batch}, now)
	}
	if e.Counts().Items != 0 || !b.IsOpen() {
		t.Errorf("%d changes are left, outage %v", e.Counts().Items, b.IsOpen())
	}
}
