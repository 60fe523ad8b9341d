package meter

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *bucket
		b := none.withRate(100)
		for _, step := range []struct {
			pass time.Duration
			take float64
			wait time.Duration // afterwards
		}{
			{0, 99, 0},
			{0, 1, time.Millisecond}, // all of it used
			{time.Millisecond, 0, 0},
			{time.Hour, 100, time.Millisecond}, // no more than a second is saved up
			{100 * time.Millisecond, 0, 0},     // 10 units
			{0, 60, 501 * time.Millisecond},    // 50 below
			{500 * time.Millisecond, 0, time.Millisecond},
			{time.Millisecond, 0, 0},
		} {
			time.Sleep(step.pass)
			b.take(step.take, time.Now())
			if got := b.emptyFor(time.Now()); got != step.wait {
				t.Errorf("after %v and %v units: wait %v, want %v", step.pass, step.take, got, step.wait)
			}
		}
		if b.withRate(1000) != b {
			t.Error("another rate makes another bucket")
		}
		time.Sleep(time.Second)
		b.take(999, time.Now())
		if got := b.emptyFor(time.Now()); got != 0 {
			t.Errorf("wait %v at the higher rate", got)
		}
	})
}

func TestTheTimeBeforeAChangeCountsAtTheOldRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *bucket
		b := none.withRate(100)
		b.take(100, time.Now())
		time.Sleep(100 * time.Millisecond) // 10 units
		b.withRate(1000).take(20, time.Now())
		if got, want := b.emptyFor(time.Now()), 11*time.Millisecond; got != want { // 10 below
			t.Errorf("wait %v, want %v", got, want)
		}
	})
}
