package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func newTrialBreaker() *Breaker {
	return NewBreaker(func(failures int) time.Duration { return time.Second << failures })
}

// openBreaker has as many keys fail as make an outage.
func openBreaker(b *Breaker, now time.Time) {
	for i := range outage {
		b.failed(0, b.outages(), fmt.Sprint("failing ", i), int64(i), now)
	}
	b.judge("failing 0", b.outages(), now, false, now)
}

func TestABreakerJudges(t *testing.T) {
	begun := time.Unix(1000, 0)
	failing := begun.Add(time.Minute)
	for _, c := range []struct {
		name                string
		before, after, fail int // keys that succeed before the change began to fail, and since; keys that fail
		others, park, open  bool
	}{
		{"one alone", 0, 0, 1, false, true, false},
		{"one, and others can be tried", 0, 0, 1, true, false, false},
		{"one, and others were handled", 0, 1, 1, true, true, false},
		{"two alone", 0, 0, 2, false, true, false},
		{"three", 0, 0, 3, false, false, true},
		{"three, and three were handled", 0, 3, 3, true, true, false},
		{"three, and two were handled", 0, 2, 3, true, false, true},
		{"what was handled before is no evidence", 9, 0, 3, true, false, true},
		{"nor for one", 9, 0, 1, true, false, false},
	} {
		b := newTrialBreaker()
		b.troubled(begun)
		for i := range c.before {
			b.succeeded(fmt.Sprint("before", i), begun.Add(time.Second))
		}
		for i := range c.after {
			b.succeeded(fmt.Sprint("after", i), failing.Add(time.Second))
		}
		for i := range c.fail {
			b.failed(0, b.outages(), fmt.Sprint("bad", i), int64(i), failing.Add(2*time.Second))
		}
		now := failing.Add(3 * time.Second)
		park := b.judge("bad0", b.outages(), failing, c.others, now)
		open, _ := b.admit(now)
		if park != c.park || open != c.open || b.IsOpen() != c.open {
			t.Errorf("%s: parked %v, open %v", c.name, park, open)
		}
		b.close(now.Add(time.Minute))
		var want []Outage
		if c.open {
			want = []Outage{{Since: now, Changes: c.fail}, {Since: now, Ended: now.Add(time.Minute), Changes: c.fail}}
		}
		if news := b.News(); !slices.Equal(news, want) || b.News() != nil {
			t.Errorf("%s: news %v, want %v, and each once", c.name, news, want)
		}
		if open, _ = b.admit(now.Add(time.Hour)); open || b.outages() != len(want)/2 {
			t.Errorf("%s: closed, and it is open: %v, %d outages over", c.name, open, b.outages())
		}
	}
}

// A suspect may wait for hours until something else is handled. After that, nothing of an ordinary day is remembered.
func TestSuccessesCountFromAFailureOn(t *testing.T) {
	b := newTrialBreaker()
	now := time.Unix(1000, 0)
	count := func(after time.Duration, key string, remembered int) {
		t.Helper()
		if b.succeeded(key, now.Add(after)); len(b.recent) != remembered {
			t.Errorf("%v after the failure %d results are remembered, want %d", after, len(b.recent), remembered)
		}
	}
	count(-time.Minute, "before", 0)
	b.failed(0, b.outages(), "bad", 1, now)
	count(time.Second, "soon", 2)
	count(time.Minute, "then", 3)
	count(time.Hour, "late", 4)
	count(time.Hour, "later", 4)
	if !b.judge("bad", b.outages(), now.Add(30*time.Minute), true, now.Add(2*time.Hour)) {
		t.Error("a change of another key was handled since, and the suspect waits")
	}
	b.troubled(now.Add(3 * time.Hour))
	count(3*time.Hour+time.Second, "again", 5)
}

// A call that was begun before a change failed shows nothing about that failure when it succeeds.
func TestASuccessCountsFromItsBeginning(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 3, MaxItems: 1, MaxAttempts: 1, CanPark: true}, "a", "b", "c", "b")
	a, b := w.wants(Call, 1), w.wants(Call, 2)
	w.wants(Call, 3) // it is in hand, so there are others to wait for
	w.wait(time.Second)
	w.fails(a)
	w.wait(time.Second)
	w.succeeds(b)
	w.succeeds(w.wants(Call, 4))
	w.wants(Park, 1)
}

// A call that was begun before an outage may succeed in the midst of it. It is no evidence, and takes none away.
func TestASlowSuccessHidesNoFailures(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 4, MaxItems: 1, MaxAttempts: 1, CanPark: true}, "a", "b", "c", "d")
	a, b, c, slow := w.wants(Call, 1), w.wants(Call, 2), w.wants(Call, 3), w.wants(Call, 4)
	w.wait(time.Second)
	w.fails(a)
	w.fails(b)
	w.succeeds(slow)
	w.fails(c)
	if !w.breaker.IsOpen() {
		t.Error("three keys have failed since the call of a fourth one was begun, and there is no outage")
	}
}

// What was parked just before an outage is part of it, unless something succeeds that was begun after its failure.
func TestASlowSuccessLeavesWhatWasParkedAmongTheFailures(t *testing.T) {
	b := newTrialBreaker()
	now := time.Unix(1000, 0)
	b.troubled(now)
	for lsn, key := range []string{"a", "b"} {
		b.failed(0, b.outages(), key, int64(lsn), now.Add(2*time.Second))
		b.settled(key)
	}
	b.succeeded("slow", now.Add(time.Second))
	b.failed(0, b.outages(), "c", 3, now.Add(3*time.Second))
	if b.judge("c", b.outages(), now, false, now.Add(3*time.Second)); !b.IsOpen() {
		t.Error("three keys have failed, two of them are parked, and there is no outage")
	}
}

func TestABreakerWakesThoseWhoWatch(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newTrialBreaker()
	openBreaker(b, now)
	woken := 0
	stop := b.Watch(func() { woken++ })
	b.close(now)
	b.close(now) // it is closed already
	if woken != 1 {
		t.Errorf("woken %d times by the end of an outage", woken)
	}
	stop()
	openBreaker(b, now)
	if b.close(now); woken != 1 || b.outages() != 2 {
		t.Errorf("woken %d times, though the watch was stopped; %d outages", woken, b.outages())
	}
}

func TestABreakerProbesLessAndLess(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newTrialBreaker()
	openBreaker(b, now)
	for n := 1; n < 5; n++ {
		for _, c := range []struct{ after, wait time.Duration }{
			{0, time.Second << n},
			{time.Second<<n - 1, 1},
			{time.Second << n, 0},
		} {
			if open, wait := b.admit(now.Add(c.after)); !open || wait != c.wait {
				t.Fatalf("probe %d, after %v: open %v, wait %v, want %v", n, c.after, open, wait, c.wait)
			}
		}
		now = now.Add(time.Second << n)
		b.beginProbe(now)
	}
}

func TestWhatIsParkedIsNoEvidence(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true}, "a")
	w.fails(w.wants(Call, 1))
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	if recent := w.breaker.recent; len(recent) != 1 || recent[0].ok || !recent[0].parked {
		t.Errorf("the breaker knows %+v of a key that was parked", recent)
	}
}

func TestAnOutageUsesUpNoAttempts(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		w := newTrial(t, Rules{Concurrency: concurrency, MaxAttempts: 3, CanPark: true}, "a", "b", "c", "d", "e")
		calls, parked := w.play(time.Hour, always)
		if news := w.breaker.News(); len(parked) > 0 || len(news) != 1 || news[0].Changes < outage || calls > 200 {
			t.Errorf("concurrency %d: %v are parked, outages %v, %d calls", concurrency, parked, news, calls)
		}
		if _, parked = w.play(time.Hour, has(1)); !slices.Equal(parked, []int64{1}) || w.Counts().Items != 0 {
			t.Errorf("concurrency %d: after the outage %v are parked, %d items are left", concurrency, parked,
				w.Counts().Items)
		}
	}
}

// A handler that says that its changes are not at fault has them tried again, more and more rarely, and by age alone
// parked.
func TestAnOutageThatIsSaidCountsNoAttempt(t *testing.T) {
	for _, age := range []time.Duration{0, 10 * time.Minute} {
		w := newTrial(t, Rules{MaxAttempts: 2, MaxAge: age, CanPark: true}, "a")
		begun, calls, parked := w.now, 0, time.Duration(0)
		for w.now.Before(begun.Add(time.Hour)) && parked == 0 {
			switch do, wait := w.Next(w.now); do.Kind {
			case Park:
				parked = w.now.Sub(begun)
			case Call:
				calls++
				w.Tell(Failed{Batch: do.Batch, Failure: Failure{Err: errTrial, Outage: true}}, w.now)
			default:
				w.wait(wait)
			}
		}
		if parked != age || calls < 5 || calls > 200 {
			t.Errorf("MaxAge %v: parked after %v and %d calls", age, parked, calls)
		}
	}
}

// The handler may name in the same failure what is left of the batch.
func TestAPartOfAnExcusedFailureIsExcused(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true}, "a", "a")
	w.fails(w.wants(Call, 1, 2)) // no attempt is left, so each half has one try
	half := w.wants(Call, 1)
	w.Tell(Failed{Batch: half, Failure: Failure{
		Err: errTrial, Outage: true,
		Left: []*Part{{Changes: []int{0}, Err: errTrial}},
	}}, w.now)
	w.wantsNothing(2 * time.Second)
	w.wait(2 * time.Second)
	w.wants(Call, 1)
}

// What has failed in an outage is tried as often after it as if there had been none.
func TestAfterAnOutageAttemptsBeginAnew(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 4, MaxAttempts: 3, CanPark: true}, "a", "b", "c", "d", "e")
	w.play(time.Hour, always)
	calls, over := 0, false
	_, parked := w.play(time.Hour, func(b *Batch) bool {
		bad := b.Changes[0].Key == "a"
		if over = over || w.breaker.outages() > 0; bad && over {
			calls++
		}
		return bad
	})
	if !slices.Equal(parked, []int64{1}) || calls < 3 || w.Counts().Items != 0 {
		t.Errorf("%v is parked after %d calls since the outage, %d items are left", parked, calls, w.Counts().Items)
	}
}

// So does each part of what was divided in the outage, also a part that was not called since.
func TestAfterAnOutageThePartsOfABatchBeginAnew(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		w := newTrial(t, Rules{Concurrency: concurrency, MaxAttempts: 3, CanPark: true},
			strings.Split("aaaabbbbccccdddd", "")...)
		w.play(time.Hour, always)
		failed := map[int64]bool{} // after the outage
		_, parked := w.play(24*time.Hour, func(b *Batch) bool {
			first := b.Changes[0].LSN
			if w.breaker.outages() == 0 || failed[first] { // each batch fails once more
				return false
			}
			failed[first] = true
			return true
		})
		if len(parked) > 0 || w.Counts().Items != 0 || len(failed) < 4 {
			t.Errorf("concurrency %d: %v are parked, %d items are left, %d batches failed after the outage",
				concurrency, parked, w.Counts().Items, len(failed))
		}
	}
}
