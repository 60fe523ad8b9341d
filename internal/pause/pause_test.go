package pause

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever is interrupted says why.
func TestAPauseThatIsCutShortSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		if err := For(ctx, time.Hour); err != nil {
			t.Errorf("a pause to its end: %v", err)
		}
		interrupted := errors.New("interrupted")
		end(interrupted)
		if err := For(ctx, time.Hour); err != interrupted {
			t.Errorf("got %v, want the cause of the end", err)
		}
	})
}

// However small, large or many, pauses double up to the largest and stay there.
func TestPausesStayWithinTheirBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, b := range []Backoff{
		{100 * time.Millisecond, 30 * time.Second},
		{10 * time.Second, 20 * time.Second},
		{9 * time.Hour, 1000 * time.Hour},
		{1, 2},
	} {
		for failures := range 200 {
			d := b.After(rng, failures+1)
			low := b.Min / 2
			if failures > 30 {
				low = b.Max / 2
			}
			if d < low || d > b.Max || failures == 0 && d > b.Min {
				t.Fatalf("pause %d of %v to %v is %v", failures+1, b.Min, b.Max, d)
			}
		}
	}
}

func TestDoubledIsExactUpToTheMost(t *testing.T) {
	const most = 1 << 62
	for times, want := range map[int]time.Duration{-1: 3, 0: 3, 1: 6, 60: 3 << 60, 61: most, 62: most, 1000: most} {
		if got := Doubled(3, times, most); got != want && !(times == 60 && got == most) {
			t.Errorf("3, doubled %d times, is %d, want %d", times, got, want)
		}
	}
	if got := Doubled(5*time.Millisecond, 10, time.Second); got != time.Second {
		t.Errorf("above the most it is %v", got)
	}
}

// Whatever is asked for, the pause is within the bounds and a Min more.
func TestAnAskedPauseIsBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := Backoff{Min: time.Second, Max: time.Minute}
	for asked, least := range map[time.Duration]time.Duration{
		0: b.Min, 10 * time.Second: 10 * time.Second,
		time.Hour: b.Max,
	} {
		for range 100 {
			if d := b.Asked(rng, asked); d < least || d >= least+b.Min {
				t.Fatalf("asked for %v, pause %v", asked, d)
			}
		}
	}
}

func TestJitterIsATenth(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		d := Jitter(rng, time.Second)
		least, most = min(least, d), max(most, d)
	}
	if least < 900*time.Millisecond || least > 910*time.Millisecond || most < 1090*time.Millisecond ||
		most > 1100*time.Millisecond {
		t.Errorf("a second is from %v to %v", least, most)
	}
}

// A write that was begun may go on for a while after the end, and no longer.
func TestAWriteLingersBeyondTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		lingering, cancel := Linger(ctx, 10*time.Second, time.Minute)
		defer cancel()
		end()
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		if lingering.Err() != nil {
			t.Errorf("the write ended too soon: %v", lingering.Err())
		}
		time.Sleep(1 * time.Nanosecond)
		synctest.Wait()
		if lingering.Err() == nil {
			t.Error("the write goes on")
		}
	})
}
