package lanes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// small makes lanes with rules, their breaker, and a page of changes of these keys, whose LSNs count from 1.
func small(r Rules[doc], keys ...string) (*Lanes[doc, int], *Breaker, time.Time) {
	r = rulesOf(r)
	breaker := NewBreaker(r.Backoff)
	l, now := New[doc, int](r, breaker), time.Unix(1000, 0)
	l.Add(0, page(1, keys...), 0, now)
	return l, breaker, now
}

func page(from int64, keys ...string) (all []doc) {
	for i, key := range keys {
		all = append(all, doc{key, from + int64(i), i})
	}
	return all
}

// lsns are those of a batch, none without one.
func lsns(b *Batch[doc, int]) (all []int64) {
	if b != nil {
		for _, c := range b.Changes {
			all = append(all, c.LSN)
		}
	}
	return all
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
		b := NewBreaker(func(int) time.Duration { return time.Second })
		b.troubled(begun)
		for i := range c.before {
			b.succeeded(fmt.Sprint("before", i), begun.Add(time.Second))
		}
		for i := range c.after {
			b.succeeded(fmt.Sprint("after", i), failing.Add(time.Second))
		}
		for i := range c.fail {
			b.failed(fmt.Sprint("bad", i), failing.Add(2*time.Second))
		}
		now := failing.Add(3 * time.Second)
		park := b.judge("", failing, c.others, now)
		open, _ := b.admit(now)
		failed, opened := b.Opened()
		if park != c.park || open != c.open || opened != c.open || c.open && failed != c.fail {
			t.Errorf("%s: parked %v, open %v after %d keys, said %v", c.name, park, open, failed, opened)
		}
		if _, again := b.Opened(); again {
			t.Errorf("%s: an outage is said twice", c.name)
		}
		b.close()
		if open, _ = b.admit(now.Add(time.Hour)); open || b.outages() != map[bool]int{true: 1}[c.open] {
			t.Errorf("%s: closed, and it is open: %v, %d outages over", c.name, open, b.outages())
		}
	}
}

// A suspect may wait for hours until something else is handled. After that, nothing of an ordinary day is remembered.
func TestSuccessesCountFromAFailureOn(t *testing.T) {
	b := NewBreaker(func(int) time.Duration { return time.Second })
	now := time.Unix(1000, 0)
	count := func(after time.Duration, key string, remembered int) {
		t.Helper()
		if b.succeeded(key, now.Add(after)); len(b.recent) != remembered {
			t.Errorf("%v after the failure %d results are remembered, want %d", after, len(b.recent), remembered)
		}
	}
	count(-time.Minute, "before", 0)
	b.failed("bad", now)
	count(time.Second, "soon", 2)
	count(time.Minute, "then", 3)
	count(time.Hour, "late", 4)
	count(time.Hour, "later", 4)
	if !b.judge("bad", now.Add(30*time.Minute), true, now.Add(2*time.Hour)) {
		t.Error("a change of another key was handled since, and the suspect waits")
	}
	b.troubled(now.Add(3 * time.Hour))
	count(3*time.Hour+time.Second, "again", 5)
}

// opened is a breaker in an outage.
func opened(now time.Time) *Breaker {
	b := NewBreaker(func(n int) time.Duration { return time.Second << n })
	trip(b, now)
	return b
}

func trip(b *Breaker, now time.Time) {
	for i := range outage {
		b.failed(fmt.Sprint(i), now)
	}
	b.judge("", now, false, now)
}

func TestABreakerWakesThoseWhoWatch(t *testing.T) {
	now := time.Unix(1000, 0)
	b := opened(now)
	woken := 0
	stop := b.Watch(func() { woken++ })
	b.close()
	b.close() // it is closed already
	if woken != 1 {
		t.Errorf("woken %d times by the end of an outage", woken)
	}
	stop()
	trip(b, now)
	if b.close(); woken != 1 || b.outages() != 2 {
		t.Errorf("woken %d times, though the watch was stopped; %d outages", woken, b.outages())
	}
}

func TestABreakerProbesLessAndLess(t *testing.T) {
	now := time.Unix(1000, 0)
	b := opened(now)
	for n := 1; n < 5; n++ {
		for _, c := range []struct{ after, wait time.Duration }{{0, time.Second << n}, {time.Second<<n - 1, 1}, {time.Second << n, 0}} {
			if open, wait := b.admit(now.Add(c.after)); !open || wait != c.wait {
				t.Fatalf("probe %d, after %v: open %v, wait %v, want %v", n, c.after, open, wait, c.wait)
			}
		}
		now = now.Add(time.Second << n)
	}
}

// What one owner has done, and no more, is left out by the next, however little room the lease has; and he can say the
// same again before he has read that far.
func TestALedgerSaysWhatIsDone(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var keys []string
		for i := range 1 + rng.IntN(20) {
			keys = append(keys, fmt.Sprint("k", i))
		}
		l, _, now := small(Rules[doc]{Concurrency: 99}, keys...)
		done := map[int64]bool{}
		for b, _ := l.Next(now); b != nil; b, _ = l.Next(now) {
			if rng.IntN(3) > 0 {
				done[b.Changes[0].LSN] = true
				l.Succeed(b, true, now)
			}
		}
		most := 1 + rng.IntN(8)
		through, open := l.Ledger.Done(most)
		if len(open) > most {
			t.Fatalf("seed %d: %d are open, with room for %d", seed, len(open), most)
		}
		next, _, _ := small(Rules[doc]{Concurrency: 99})
		next.Ledger.Restore(through, open)
		for at := int64(0); at <= through && at < int64(len(keys)); { // in pages
			if again, still := next.Ledger.Done(99); again != through || !slices.Equal(still, open) {
				t.Fatalf("seed %d: restored through %d but for %v, says %d but for %v", seed, through, open, again, still)
			}
			n := min(1+rng.IntN(5), len(keys)-int(at))
			next.Add(0, page(at+1, keys[at:at+int64(n)]...), 0, now)
			at += int64(n)
		}
		left := map[int64]bool{}
		for b, _ := next.Next(now); b != nil; b, _ = next.Next(now) {
			left[b.Changes[0].LSN] = true
		}
		for lsn := int64(1); lsn <= min(through, next.Ledger.last); lsn++ {
			if left[lsn] == done[lsn] {
				t.Fatalf("seed %d: through %d but for %v: LSN %d is done: %v, and comes again: %v", seed, through, open, lsn, done[lsn], left[lsn])
			}
		}
		for lsn := through + 1; lsn <= next.Ledger.last; lsn++ {
			if !left[lsn] {
				t.Fatalf("seed %d: through %d: LSN %d is left out", seed, through, lsn)
			}
		}
	}
}

func TestAConfirmedBatchTakesInWhatCameBefore(t *testing.T) {
	l, _, now := small(Rules[doc]{MaxItems: 2, ByHand: true}, "a", "b", "c", "d", "e", "f")
	first, _ := l.Next(now)
	l.Succeed(first, true, now)
	second, _ := l.Next(now)
	l.Succeed(second, true, now)
	if through, open := l.Ledger.Done(99); through != 6 || len(open) != 6 {
		t.Errorf("done through %d but for %v before a word of the handler", through, open)
	}
	l.Next(now)
	l.Ledger.Confirm(second)
	if through, open := l.Ledger.Done(99); through != 6 || !slices.Equal(open, []int64{5, 6}) {
		t.Errorf("done through %d but for %v, want 5 and 6", through, open)
	}
}

func TestAConfirmedBatchLeavesOutWhatHasFailed(t *testing.T) {
	l, _, now := small(Rules[doc]{MaxItems: 1, ByHand: true}, "a", "b")
	first, _ := l.Next(now)
	l.Fail(first, Failure{Err: errPoison, Hopeless: true}, now) // without a place for it, it is tried for ever, and others pass
	second, _ := l.Next(now)
	l.Succeed(second, true, now)
	l.Ledger.Confirm(second)
	if _, open := l.Ledger.Done(99); !slices.Equal(open, []int64{1}) || !slices.Equal(lsns(second), []int64{2}) {
		t.Errorf("with %v confirmed, %v are open, want 1", lsns(second), open)
	}
}

// What a handler has not had is as new, also where its batch has failed before.
func TestWhatWasNotTriedHasNotFailed(t *testing.T) {
	l, _, now := small(Rules[doc]{MaxAttempts: 2, CanPark: true}, "a", "b", "c")
	b, _ := l.Next(now)
	l.Fail(b, Failure{Err: errBad}, now)
	now = now.Add(time.Minute)
	b, _ = l.Next(now)
	l.Fail(b, Failure{Err: errPoison, Left: []*Part{{Changes: []int{1}, Err: errPoison, Hopeless: true}, {Changes: []int{2}, Untried: true}}}, now)
	if b, _ = l.Next(now); !slices.Equal(lsns(b), []int64{2}) || !b.Park {
		t.Fatalf("%v comes first, want the poison, to be parked", lsns(b))
	}
	l.Succeed(b, true, now)
	if b, _ = l.Next(now); !slices.Equal(lsns(b), []int64{3}) || b.Park || b.Failures != 0 || !b.Failing.IsZero() {
		t.Errorf("%+v comes then, want 3 as if for the first time", b)
	}
}

func TestHandledChangesGiveTheirMemoryBack(t *testing.T) {
	r := rulesOf(Rules[doc]{MaxItems: 1})
	detached := 0
	r.Detach = func(*doc) { detached++ }
	l, now := New[doc, int](r, NewBreaker(r.Backoff)), time.Unix(1000, 0)
	l.Add(0, page(1, "a", "b", "c", "d", "e", "f", "g", "h"), 0, now)
	for i, want := range []int{800, 800, 800, 800, 800, 200, 200, 0} {
		b, _ := l.Next(now)
		l.Succeed(b, true, now)
		if l.Bytes() != want {
			t.Errorf("%d bytes after %d of 8 changes, want %d", l.Bytes(), i+1, want)
		}
	}
	if detached != 2 {
		t.Errorf("%d changes were given memory of their own, want 2", detached)
	}
}

func TestALimitGrowsBack(t *testing.T) {
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	l, _, now := small(Rules[doc]{}, keys...)
	b, _ := l.Next(now)
	l.Fail(b, Failure{Err: errBad, Late: true}, now)
	l.Add(0, page(9, keys...), 0, now)
	l.Add(0, page(17, keys...), 0, now)
	for _, want := range []int{4, 4, 16} {
		now = now.Add(time.Minute)
		if b, _ = l.Next(now); len(lsns(b)) != want {
			t.Fatalf("a batch of %v, want %d", lsns(b), want)
		}
		l.Succeed(b, true, now)
	}
}

func TestABatchWaitsForMore(t *testing.T) {
	l, _, now := small(Rules[doc]{MaxItems: 4, Wait: 10 * time.Second}, "a", "b")
	if b, wait := l.Next(now.Add(time.Second)); b != nil || wait != 9*time.Second {
		t.Errorf("a batch of %v, wait %v", lsns(b), wait)
	}
	l.Add(0, page(3, "c", "d", "e"), 0, now.Add(2*time.Second))
	if b, _ := l.Next(now.Add(2 * time.Second)); len(lsns(b)) != 4 {
		t.Errorf("a batch of %v, want one that is full", lsns(b))
	} else {
		l.Succeed(b, true, now)
	}
	if b, wait := l.Next(now.Add(3 * time.Second)); b != nil || wait != 9*time.Second {
		t.Errorf("a batch of %v, wait %v", lsns(b), wait)
	}
	if b, _ := l.Next(now.Add(12 * time.Second)); len(lsns(b)) != 1 {
		t.Errorf("a batch of %v, want what there is", lsns(b))
	}
}

func TestABatchFailsForSoLongAtMost(t *testing.T) {
	l, _, now := small(Rules[doc]{MaxAge: 20 * time.Second, CanPark: true}, "a")
	begun := now
	for calls := 0; ; calls++ {
		b, wait := l.Next(now)
		switch {
		case b == nil:
			now = now.Add(wait)
			continue
		case b.Park:
			if age := now.Sub(begun); age < 20*time.Second || age > time.Minute || calls < 3 {
				t.Errorf("parked after %v and %d calls", age, calls)
			}
			return
		case now.Sub(begun) > time.Hour:
			t.Fatal("not parked after an hour")
		}
		l.Fail(b, Failure{Err: errBad}, now)
	}
}

func TestAnOutageUsesUpNoAttempts(t *testing.T) {
	l, breaker, now := small(Rules[doc]{Concurrency: 4, MaxAttempts: 3, CanPark: true}, "a", "b", "c", "d", "e")
	for end := now.Add(time.Hour); now.Before(end); {
		b, wait := l.Next(now)
		if b == nil {
			now = now.Add(wait)
			continue
		}
		if b.Park || b.Failures > 3 {
			t.Fatalf("in an outage %v has failed %d times, parked %v", lsns(b), b.Failures, b.Park)
		}
		l.Fail(b, Failure{Err: errBad}, now)
	}
	if failed, said := breaker.Opened(); !said || failed < outage {
		t.Errorf("an outage of %d keys, said %v", failed, said)
	}
}

func TestWhatIsParkedIsNoEvidence(t *testing.T) {
	l, breaker, now := small(Rules[doc]{MaxAttempts: 1, CanPark: true}, "a")
	b, _ := l.Next(now)
	l.Fail(b, Failure{Err: errBad}, now)
	if b, _ = l.Next(now); b == nil || !b.Park {
		t.Fatalf("%+v is not parked", b)
	}
	l.Succeed(b, true, now)
	if len(breaker.recent) != 1 || breaker.recent[0].ok {
		t.Errorf("the breaker knows %+v of a key that was parked", breaker.recent)
	}
}

func TestARedrivenChangeGoesFirstAndAlone(t *testing.T) {
	l, _, now := small(Rules[doc]{Concurrency: 4, MaxItems: 1}, "k", "k")
	first, _ := l.Next(now)
	l.Redrive("k", doc{"k", 77, 0})
	if b, _ := l.Next(now); b != nil {
		t.Fatalf("%v is handed over beside %v of its key", lsns(b), lsns(first))
	}
	l.Succeed(first, true, now)
	again, _ := l.Next(now)
	if !slices.Equal(lsns(again), []int64{77}) || !again.Redriven {
		t.Fatalf("%v comes after %v, want the letter", lsns(again), lsns(first))
	}
	if b, _ := l.Next(now); b != nil {
		t.Fatalf("%v is handed over beside a letter of its key", lsns(b))
	}
	l.Fail(again, Failure{Err: errBad}, now) // it had its try
	if b, _ := l.Next(now); !slices.Equal(lsns(b), []int64{2}) {
		t.Errorf("%v comes after the letter, want 2", lsns(b))
	}
}

// Held changes need nothing that handlers need, so an outage is no reason for them to wait; nor do
// they cost a probe, which would leave the outage unknown to be over.
func TestHeldChangesAreParkedInAnOutage(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		l, breaker, now := small(Rules[doc]{Concurrency: concurrency, MaxAttempts: 2, CanPark: true}, "held", "held", "other")
		l.Hold("held")
		trip(breaker, now)
		for want := range int64(2) {
			b, wait := l.Next(now)
			if b == nil || !b.Held || !slices.Equal(lsns(b), []int64{want + 1}) {
				t.Fatalf("concurrency %d: next is %+v or a wait of %v, want LSN %d to be parked", concurrency, b, wait, want+1)
			}
			l.Succeed(b, true, now)
		}
		now = now.Add(time.Hour)
		if b, wait := l.Next(now); b == nil || b.Held || !slices.Equal(lsns(b), []int64{3}) {
			t.Errorf("concurrency %d: next is %+v or a wait of %v, want LSN 3 as the probe", concurrency, b, wait)
		}
	}
}

func TestAFreeKeyHasNoLaneOfItsOwn(t *testing.T) {
	l, _, _ := small(Rules[doc]{})
	l.Hold("k")
	if l.Free("k"); len(l.lanes) != 0 {
		t.Errorf("%d lanes are left", len(l.lanes))
	}
}

// Without a place for it, a change that fails blocks its key, and no other.
func TestABadChangeBlocksItsKeyAlone(t *testing.T) {
	l, _, now := small(Rules[doc]{MaxAttempts: 1}, "a", "b", "a", "c")
	done := map[int64]bool{}
	for end := now.Add(time.Minute); now.Before(end); {
		b, wait := l.Next(now)
		switch {
		case b == nil:
			now = now.Add(wait)
		case b.Changes[0].Key == "a" || len(b.Changes) > 1:
			l.Fail(b, Failure{Err: errBad}, now)
		default:
			done[b.Changes[0].LSN] = true
			l.Succeed(b, true, now)
		}
	}
	if !done[2] || !done[4] || len(done) != 2 {
		t.Errorf("done are %v, want 2 and 4", done)
	}
}

// That a letter cannot be kept is no failure of its change, which may have to be handled after all.
func TestALetterThatCannotBeKeptCountsNoAttempt(t *testing.T) {
	l, _, now := small(Rules[doc]{Concurrency: 1, MaxAttempts: 1, CanPark: true}, "a")
	l.Hold("a")
	for range 3 {
		b, _ := l.Next(now)
		if b == nil || !b.Park || !b.Held {
			t.Fatalf("got %+v, want the change of the held key to be parked", b)
		}
		l.Fail(b, Failure{}, now)
		now = now.Add(time.Hour)
	}
	b, _ := l.Next(now)
	l.Handle(b)
	if b, _ = l.Next(now); b == nil || b.Park || b.Failures != 0 {
		t.Errorf("got %+v, want it to be handled for the first time", b)
	}
}

// A handler that says that its changes are not at fault has them tried again, more and more rarely, and by age alone parked.
func TestAnOutageThatIsSaidCountsNoAttempt(t *testing.T) {
	for _, age := range []time.Duration{0, 10 * time.Minute} {
		l, _, now := small(Rules[doc]{Concurrency: 1, MaxAttempts: 2, MaxAge: age, CanPark: true}, "a", "a")
		begun, calls, parked := now, 0, time.Duration(0)
		for now.Before(begun.Add(time.Hour)) && parked == 0 {
			b, wait := l.Next(now)
			switch {
			case b == nil:
				now = now.Add(min(wait, time.Minute))
			case b.Park:
				parked = now.Sub(begun)
			default:
				calls++
				l.Fail(b, Failure{Err: errBad, Outage: true}, now)
			}
		}
		if (parked > 0) != (age > 0) || parked < age || calls < 5 || calls > 200 {
			t.Errorf("MaxAge %v: parked after %v and %d calls", age, parked, calls)
		}
	}
}

// What has failed in an outage is tried as often after it as if there had been none, because that it failed says nothing.
func TestAfterAnOutageAttemptsBeginAnew(t *testing.T) {
	l, _, now := small(Rules[doc]{Concurrency: 4, MaxAttempts: 3, CanPark: true}, "a", "b", "c", "d", "e")
	calls, over := 0, now.Add(time.Hour)
	for end := over.Add(time.Hour); now.Before(end); {
		b, wait := l.Next(now)
		if b == nil {
			now = now.Add(min(wait, time.Minute))
			continue
		}
		bad := b.Changes[0].Key == "a"
		switch {
		case b.Park:
			if !bad || calls < 3 {
				t.Errorf("%v is parked, bad %v, after %d calls since the outage", lsns(b), bad, calls)
			}
			l.Succeed(b, true, now)
			continue
		case now.Before(over) || bad:
			l.Fail(b, Failure{Err: errBad}, now)
		default:
			l.Succeed(b, true, now)
		}
		if bad && l.breaker.outages() > 0 {
			calls++
		}
	}
	if l.Items() != 0 || calls < 3 {
		t.Errorf("%d items are left, %d calls since the outage", l.Items(), calls)
	}
}

// So does each part of what was bisected in the outage, also one that was not called since.
func TestAfterAnOutageThePartsOfABatchBeginAnew(t *testing.T) {
	keys := strings.Split("aaaabbbbccccdddd", "")
	l, _, now := small(Rules[doc]{Concurrency: 4, MaxAttempts: 3, CanPark: true}, keys...)
	failed := map[int64]bool{} // after the outage
	for over := now.Add(time.Hour); l.Items() > 0 && now.Before(over.Add(24*time.Hour)); {
		b, wait := l.Next(now)
		if b == nil {
			now = now.Add(min(wait, time.Minute))
			continue
		}
		first := b.Changes[0].LSN
		switch {
		case b.Park:
			t.Fatalf("%v is parked because of the outage and one failure since", lsns(b))
		case now.Before(over):
			l.Fail(b, Failure{Err: errBad}, now)
		case l.breaker.outages() > 0 && !failed[first]: // each batch fails once more
			failed[first] = true
			l.Fail(b, Failure{Err: errBad}, now)
		default:
			l.Succeed(b, true, now)
		}
	}
	if l.Items() != 0 || len(failed) < 4 {
		t.Errorf("%d items are left, %d batches failed after the outage", l.Items(), len(failed))
	}
}

// A call that was begun before a change failed says nothing of that change when it succeeds.
func TestASuccessCountsFromItsBeginning(t *testing.T) {
	now := time.Unix(1, 0)
	rules := rulesOf(Rules[doc]{Concurrency: 3, MaxAttempts: 1, CanPark: true})
	l := New[doc, int](rules, NewBreaker(rules.Backoff))
	l.Add(0, []doc{{"a", 1, 0}, {"b", 2, 1}, {"c", 3, 2}, {"b", 4, 3}}, 0, now)
	a, _ := l.Next(now)
	b, _ := l.Next(now)
	l.Next(now) // c is in hand, so there are others to wait for
	now = now.Add(time.Second)
	l.Fail(a, Failure{Err: errBad}, now)
	now = now.Add(time.Second)
	l.Succeed(b, false, now)
	if got, _ := l.Next(now); got != nil {
		t.Errorf("%v is taken, to be parked: %v", got.Changes[0].Value, got.Park)
	}
	l.Add(0, []doc{{"b", 5, 4}}, 0, now)
	b, _ = l.Next(now)
	l.Succeed(b, false, now)
	if got, _ := l.Next(now); got == nil || !got.Park || got.Changes[0].Key != "a" {
		t.Errorf("%+v, want the change that failed, to be parked", got)
	}
}
