package delivery

import (
	"fmt"
	"testing"
	"time"
)

// The smallest round: a page is read, handed over, and done.
func TestAPageIsHandedOverAndDone(t *testing.T) {
	now := time.Unix(1000, 0)
	e := New(Rules{MaxAttempts: 2, CanPark: true, Backoff: func(int) time.Duration {
		return time.Second
	}, Name: func(c *Change) string {
		return fmt.Sprint(c.LSN)
	}, HeldBytes: func(string) int { return 1 }}, NewBreaker(func(int) time.Duration { return time.Second }))
	e.Begin("0")
	e.Tell(PageRead{Next: "9", Changes: 3, Meta: func(i int) Meta {
		return Meta{LSN: int64(i + 1), Key: fmt.Sprint(i), Size: 10}
	}}, now)
	do, _ := e.Next(now)
	if do.Kind != Call || len(do.Batch.Changes) != 3 || e.Position() != "0" {
		t.Fatalf("%+v at %v", do, e.Position())
	}
	e.Tell(Succeeded{Batch: do.Batch, Quick: true}, now)
	if do, wait := e.Next(now); do.Kind != Nothing || wait != Never || e.Position() != "9" || e.Counts().Items != 0 ||
		e.Counts().Bytes != 0 || e.Counts().Unsaved != 3 {
		t.Errorf("%+v, %v, at %v", do, wait, e.Position())
	}
}

func TestABadChangeIsFoundAndParked(t *testing.T) {
	now := time.Unix(1000, 0)
	e := New(Rules{MaxAttempts: 2, CanPark: true, Backoff: func(int) time.Duration {
		return time.Second
	}, Name: func(c *Change) string {
		return fmt.Sprint(c.LSN)
	}, HeldBytes: func(string) int { return 1 }}, NewBreaker(func(int) time.Duration { return time.Second }))
	e.Begin("0")
	e.Tell(PageRead{Next: "9", Changes: 8, Meta: func(i int) Meta {
		return Meta{LSN: int64(i + 1), Key: fmt.Sprint(i), Size: 10}
	}}, now)
	calls, parked := 0, 0
	for range 100 {
		do, wait := e.Next(now)
		switch do.Kind {
		case Nothing:
			if wait == Never {
				break
			}
			now = now.Add(wait)
		case Call:
			calls++
			bad := false
			for _, c := range do.Batch.Changes {
				bad = bad || c.LSN == 5
			}
			if bad {
				e.Tell(Failed{Batch: do.Batch, Failure: Failure{Err: fmt.Errorf("bad")}}, now)
			} else {
				e.Tell(Succeeded{Batch: do.Batch, Quick: true}, now)
			}
		case Park:
			parked++
			e.Tell(LetterStored{Batch: do.Batch}, now)
		}
	}
	if e.Position() != "9" || parked != 1 {
		t.Errorf("position %v, %d calls, %d parked", e.Position(), calls, parked)
	}
	t.Log(calls)
}
