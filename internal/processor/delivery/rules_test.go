package delivery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

var errTrial = errors.New("bad")

// trial is an engine a test plays by hand. Each change has 100 bytes.
type trial struct {
	*Engine
	t   *testing.T
	now time.Time
	lsn int64 // of the last change
}

// newTrial makes an engine that pauses for a second after the first failure, for two after the second, up to 32.
func newTrial(t *testing.T, r Rules, keys ...string) *trial {
	r.Backoff = func(failures int) time.Duration { return time.Second << min(failures-1, 5) }
	if r.MaxHeld == 0 {
		r.MaxHeld, r.MaxHeldBytes = 100, 1000
	}
	r.HeldBytes = func(string) int { return 1 }
	r.Name = func(c *Change) string { return fmt.Sprintf("%d.%d", c.LSN, c.Place) }
	w := &trial{Engine: New(r, NewBreaker(r.Backoff)), t: t, now: time.Unix(1000, 0)}
	w.Begin(int64(0))
	if len(keys) > 0 {
		w.page(keys...)
	}
	return w
}

// page adds a page of changes of some keys. One with a plus is of the transaction before it.
func (w *trial) page(keys ...string) {
	var all []Meta
	for _, key := range keys {
		key, goesOn := strings.CutPrefix(key, "+")
		if !goesOn {
			w.lsn++
		}
		all = append(all, Meta{LSN: w.lsn, Key: key, Size: 100})
	}
	w.Tell(PageRead{Next: w.lsn, Changes: len(all), Meta: func(i int) Meta { return all[i] }}, w.now)
}

// wait lets time pass.
func (w *trial) wait(d time.Duration) { w.now = w.now.Add(d) }

// wants takes a batch and checks its handover now, and its changes.
func (w *trial) wants(kind EffectKind, lsns ...int64) *Batch {
	w.t.Helper()
	do, wait := w.Next(w.now)
	for do.Kind == Shed {
		do, wait = w.Next(w.now)
	}
	if do.Kind != kind || do.Batch != nil && !slices.Equal(lsnsOf(do.Batch), lsns) {
		w.t.Fatalf("effect %d with %v or a wait of %v, want effect %d with %v", do.Kind, lsnsOf(do.Batch), wait, kind,
			lsns)
	}
	return do.Batch
}

// wantsNothing checks that there is nothing to do for so long.
func (w *trial) wantsNothing(want time.Duration) {
	w.t.Helper()
	do, wait := w.Next(w.now)
	for do.Kind == Shed {
		do, wait = w.Next(w.now)
	}
	if do.Kind != Nothing || wait != want {
		w.t.Fatalf("effect %d with %v, or a wait of %v; want a wait of %v", do.Kind, lsnsOf(do.Batch), wait, want)
	}
}

func (w *trial) succeeds(b *Batch) { w.Tell(Succeeded{Batch: b, Quick: true}, w.now) }
func (w *trial) fails(b *Batch)    { w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial}}, w.now) }

// play does what the engine says for a while: the handler fails with what bad says.
func (w *trial) play(during time.Duration, bad func(*Batch) bool) (calls int, parked []int64) {
	w.t.Helper()
	for end := w.now.Add(during); w.now.Before(end); {
		switch do, wait := w.Next(w.now); {
		case do.Kind == Nothing && wait == Never:
			return calls, parked
		case do.Kind == Nothing:
			w.wait(min(wait, time.Minute))
		case do.Kind == Park:
			parked = append(parked, lsnsOf(do.Batch)...)
			w.Tell(LetterStored{Batch: do.Batch}, w.now)
		case do.Kind == Call && bad(do.Batch):
			calls++
			w.fails(do.Batch)
		case do.Kind == Call:
			calls++
			w.succeeds(do.Batch)
		}
	}
	return calls, parked
}

func lsnsOf(b *Batch) (all []int64) {
	if b != nil {
		for _, c := range b.Changes {
			all = append(all, c.LSN)
		}
	}
	return all
}

func has(lsn int64) func(*Batch) bool {
	return func(b *Batch) bool { return slices.Contains(lsnsOf(b), lsn) }
}

func always(*Batch) bool { return true }

func TestABatchHasItsLimits(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Rules
		keys string
		want string
	}{
		{"without limits all that waits", Rules{}, "a b a c", "[1 2 3 4]"},
		{"so many changes", Rules{MaxItems: 2}, "a b a c a", "[1 2] [3 4] [5]"},
		{"so many bytes", Rules{MaxBytes: 250}, "a b a c a", "[1 2] [3 4] [5]"},
		{"a limit that is met", Rules{MaxBytes: 200}, "a b a", "[1 2] [3]"},
		{"one that is too large alone", Rules{MaxBytes: 50}, "a b", "[1] [2]"},
		{"a transaction is not cut", Rules{MaxItems: 2}, "a b +b +b c d", "[1] [2 2 2] [3 4]"},
		{"nor because of its bytes", Rules{MaxBytes: 200}, "a b +b +b c", "[1] [2 2 2] [3]"},
		{"an LSN of two keys is two transactions", Rules{MaxItems: 2}, "a b +c d", "[1 2] [2 3]"},
		{"of each key in parallel", Rules{Concurrency: 9}, "a b a c b a", "[1 3] [2 5] [4]"}, // 6 is behind them
		{"a share of two keys", Rules{Concurrency: 2}, "a a a a b b", "[1 2 3] [5 6]"},
		{"a share rounded up", Rules{Concurrency: 2}, "a a a b b", "[1 2 3] [4 5]"},
		{"a share of as many places as there are", Rules{Concurrency: 2}, "a a a a b c", "[1 2 3] [5]"},
		{"a share that cuts no transaction", Rules{Concurrency: 2}, "a +a +a b", "[1 1 1] [2]"},
	} {
		w := newTrial(t, c.r, strings.Fields(c.keys)...)
		var got []string
		for do, _ := w.Next(w.now); do.Kind != Nothing; do, _ = w.Next(w.now) {
			if do.Kind == Shed {
				continue
			}
			got = append(got, fmt.Sprint(lsnsOf(do.Batch)))
			if do.Batch.IsCut() {
				t.Errorf("%s: %v is cut", c.name, lsnsOf(do.Batch))
			}
			if c.r.Concurrency == 0 {
				w.succeeds(do.Batch)
			}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: batches %s, want %s", c.name, got, c.want)
		}
	}
}

// All waiting changes are shared among the free places in the handler: the last one takes all, because the others are
// at work.
func TestEachFreePlaceInTheHandlerHasItsShare(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 2}, "a", "a", "a", "a", "b", "b", "b", "c")
	first := w.wants(Call, 1, 2, 3, 4)
	w.wants(Call, 5, 6, 7)
	w.wantsNothing(Never)
	w.succeeds(first)
	w.wants(Call, 8)
}

// What a batch has taken does not count for the share of the next one.
func TestAShareIsOfWhatStillWaits(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 3}, "a", "a", "b", "b", "b", "b", "b", "b", "c", "c", "c", "c")
	w.wants(Call, 1, 2)
	w.wants(Call, 3, 4, 5, 6, 7)
}

func TestABatchIsTheOnlyOneOfItsKeys(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 3, MaxItems: 1}, "a", "a", "b")
	a, b := w.wants(Call, 1), w.wants(Call, 3)
	w.wantsNothing(Never)
	w.fails(b)
	w.wantsNothing(time.Second)
	w.succeeds(a)
	w.wants(Call, 2)
	w.wait(time.Second)
	w.wants(Call, 3)
}

func TestABatchWaitsForMore(t *testing.T) {
	w := newTrial(t, Rules{MaxItems: 4, Wait: 10 * time.Second}, "a", "b")
	w.wait(time.Second)
	w.wantsNothing(9 * time.Second)
	w.wait(time.Second)
	w.page("c", "d", "e")
	w.succeeds(w.wants(Call, 1, 2, 3, 4)) // it is full
	w.wantsNothing(10 * time.Second)
	w.wait(10 * time.Second)
	w.wants(Call, 5)
}

// In parallel too a batch with room for several keys waits for as many changes as it may have.
func TestABatchOfAKeyWaitsForMore(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 4, MaxItems: 3, Wait: 10 * time.Second}, "a", "b")
	w.wantsNothing(10 * time.Second)
	w.page("a")
	w.wants(Call, 1, 3)
	w.wait(10 * time.Second)
	w.wants(Call, 2)
}

// A key is in one batch at a time, so what waits of a single key is not spared for the other places.
func TestOneKeyLeavesNothingForPlacesThatItCannotTake(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 4, MaxItems: 5}, "a", "a", "a", "a", "a", "a")
	w.wants(Call, 1, 2, 3, 4, 5)
}

func TestABatchThatFailsComesAgainAfterPauses(t *testing.T) {
	w := newTrial(t, Rules{}, "a", "a")
	for n := range 4 {
		b := w.wants(Call, 1, 2)
		if b.Attempt() != n+1 {
			t.Errorf("attempt %d, want %d", b.Attempt(), n+1)
		}
		w.fails(b)
		w.wantsNothing(time.Second << n)
		w.wait(time.Second << n)
	}
	b := w.wants(Call, 1, 2)
	// the handler asks for a longer pause
	w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, After: time.Hour}}, w.now)
	w.wantsNothing(time.Hour)
	if b.Failing() != time.Unix(1000, 0) {
		t.Errorf("failing since %v", b.Failing())
	}
}

// A failing key is told apart from the others of its batch, which go on.
func TestABatchOfSeveralKeysIsDividedByKey(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3, CanPark: true}, "a", "b", "a", "c")
	w.fails(w.wants(Call, 1, 2, 3, 4))
	w.page("d")
	w.succeeds(w.wants(Call, 5)) // a new page does not wait for them
	w.wait(time.Second)
	w.fails(w.wants(Call, 1, 3))
	w.succeeds(w.wants(Call, 2, 4))
	w.wait(2 * time.Second)
	w.succeeds(w.wants(Call, 1, 3))
	w.wantsNothing(Never)
}

// A change that always fails is found in a number of calls growing with the logarithm of its batch's size.
func TestABadChangeIsFoundInFewCalls(t *testing.T) {
	for _, c := range []struct{ changes, attempts, calls int }{
		{1, 3, 3},
		{2, 3, 5},
		{8, 3, 9},
		{100, 3, 17},
		{1000, 5, 25},
	} {
		w := newTrial(t, Rules{MaxAttempts: c.attempts, CanPark: true}, slices.Repeat([]string{"a"}, c.changes)...)
		bad := int64(c.changes*2/3 + 1)
		calls, parked := w.play(24*time.Hour, has(bad))
		if !slices.Equal(parked, []int64{bad}) || calls > c.calls || w.Counts().Items != 0 ||
			w.Counts().Unsaved != c.changes {
			t.Errorf("of %d changes %v are parked after %d calls, want %d after %d at most", c.changes, parked, calls,
				bad, c.calls)
		}
	}
}

// The changes of a transaction are told apart in the end only, and their handler is told of the others.
func TestATransactionIsCutLast(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true}, "a", "a", "+a", "+a", "a")
	w.fails(w.wants(Call, 1, 2, 2, 2, 3))
	w.succeeds(w.wants(Call, 1))
	w.fails(w.wants(Call, 2, 2, 2, 3))
	b := w.wants(Call, 2, 2, 2)
	if b.IsCut() {
		t.Error("the whole transaction is said to be a part of one")
	}
	w.fails(b)
	for _, want := range []int{1, 2} {
		if b = w.wants(Call, slices.Repeat([]int64{2}, want)...); !b.IsCut() {
			t.Errorf("%d changes of a transaction are said to be all of it", want)
		}
		w.succeeds(b)
	}
	if b = w.wants(Call, 3); b.IsCut() {
		t.Error("the change after the transaction is said to be of it")
	}
}

// The handler says which changes have failed, and why: what is done does not come again, what cannot be helped is
// parked, and what the handler has not had is as new.
func TestAHandlerSaysWhatIsLeft(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true}, "a", "a", "a", "a")
	b := w.wants(Call, 1, 2, 3, 4)
	w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, Left: []*Part{
		{Changes: []int{1}, Err: errTrial, Hopeless: true}, {Changes: []int{2, 3}, Untried: true},
	}}}, w.now)
	if w.Counts().Items != 3 || w.FirstOpen().LSN != 2 {
		t.Fatalf("%d items, the first of them %d", w.Counts().Items, w.FirstOpen().LSN)
	}
	w.Tell(LetterStored{Batch: w.wants(Park, 2)}, w.now)
	b = w.wants(Call, 3, 4)
	if b.Attempt() != 1 || !b.Failing().IsZero() {
		t.Errorf("attempt %d of what was not tried, failing since %v", b.Attempt(), b.Failing())
	}
	w.fails(b)
	w.wait(time.Second)
	w.fails(w.wants(Call, 3, 4))
	w.wants(Call, 3) // divided after two failures of its own
}

func TestAPartThatIsToldApartHasItsAttempts(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 3, CanPark: true}, "a", "b", "a")
	b := w.wants(Call, 1, 2, 3)
	w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, Left: []*Part{
		{Changes: []int{0}, Err: errTrial},
		{Changes: []int{2}, Untried: true},
	}}}, w.now)
	w.wait(time.Second)
	if b = w.wants(Call, 1); b.Attempt() != 2 {
		t.Errorf("attempt %d, want 2", b.Attempt())
	}
	w.fails(b)
	w.wait(2 * time.Second)
	w.fails(w.wants(Call, 1))
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now) // another key was handled meanwhile: 2
	w.succeeds(w.wants(Call, 3))
}

// A batch that took too long comes again in halves, and the next batches are as small, until they are quick again.
func TestABatchThatTookTooLongComesAgainInHalves(t *testing.T) {
	keys := slices.Repeat([]string{"a"}, 8)
	w := newTrial(t, Rules{}, keys...)
	w.Tell(Failed{Batch: w.wants(Call, 1, 2, 3, 4, 5, 6, 7, 8), Failure: Failure{Err: errTrial, Late: true}}, w.now)
	w.page(keys...)
	w.page(keys...)
	w.wait(time.Second)
	w.Tell(Succeeded{Batch: w.wants(Call, 1, 2, 3, 4), Quick: false}, w.now)
	w.Tell(Succeeded{Batch: w.wants(Call, 5, 6, 7, 8), Quick: false}, w.now)
	w.succeeds(w.wants(Call, 9, 10, 11, 12))
	// 8 is the size that took too long: no limit any more
	b := w.wants(Call, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
	w.Tell(Failed{Batch: b, Failure: Failure{Err: errTrial, Late: true}}, w.now)
	w.wait(time.Second)
	w.Tell(Failed{Batch: w.wants(Call, 13, 14, 15, 16, 17, 18), Failure: Failure{Err: errTrial, Late: true}}, w.now)
	w.wait(2 * time.Second)
	w.succeeds(w.wants(Call, 13, 14, 15))
}

// A transaction is what its handler is promised at once: only failures cut it, and no time.
func TestATransactionThatTookTooLongStaysWhole(t *testing.T) {
	w := newTrial(t, Rules{}, "a", "+a", "+a", "+a")
	for n := range 5 {
		w.Tell(Failed{Batch: w.wants(Call, 1, 1, 1, 1), Failure: Failure{Err: errTrial, Late: true}}, w.now)
		w.wait(time.Second << n)
	}
	w.succeeds(w.wants(Call, 1, 1, 1, 1))
}

func TestABatchFailsForSoLongAtMost(t *testing.T) {
	w := newTrial(t, Rules{MaxAge: 20 * time.Second, CanPark: true}, "a")
	begun := w.now
	calls, parked := w.play(time.Hour, always)
	if age := w.now.Sub(begun); len(parked) != 1 || age != 20*time.Second || calls < 4 {
		t.Errorf("%v is parked after %v and %d calls", parked, age, calls)
	}
}

// Without dead letters a failing change blocks its key, and no other.
func TestABadChangeBlocksItsKeyAlone(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1}, "a", "b", "a", "c")
	calls, _ := w.play(time.Minute, func(b *Batch) bool { return len(b.Changes) > 1 || b.Changes[0].Key == "a" })
	if through, open := w.feed.settledAfter(9); w.Counts().Items != 2 || through != 4 ||
		!slices.Equal(open, []int64{1, 3}) || calls < 5 {
		t.Errorf("%d items are left, %v through %d, %d calls", w.Counts().Items, open, through, calls)
	}
}

// A failure to store a letter is no failure of its change, and stops no other key.
func TestALetterThatIsRefusedIsStoredLater(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true}, "a", "a")
	w.fails(w.wants(Call, 1, 2))
	w.fails(w.wants(Call, 1))
	for n := range 4 {
		b := w.wants(Park, 1)
		w.Tell(LetterRefused{Batch: b}, w.now)
		w.page("b")
		w.succeeds(w.wants(Call, 3+int64(n)))
		w.wantsNothing(time.Second << n)
		w.wait(time.Second << n)
		if b.Changes[0].Calls() != 2 {
			t.Errorf("%d calls, want 2", b.Changes[0].Calls())
		}
	}
	w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
	w.succeeds(w.wants(Call, 2))
	if w.Counts().Parked != 1 || w.Counts().Items != 0 {
		t.Errorf("%d parked, %d items left", w.Counts().Parked, w.Counts().Items)
	}
}

// Held changes need nothing handlers need, so an outage is no reason for them to wait. Nor are they the probe to show
// whether the outage is over.
func TestHeldChangesAreParkedInAnOutage(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		w := newTrial(t, Rules{Concurrency: concurrency, MaxAttempts: 2, CanPark: true, HoldKeys: true})
		w.Restore(Notes{Held: []notes.HeldKey{{Key: "held", Since: 1}}}, w.now)
		w.page("held", "held", "other")
		openBreaker(w.breaker, w.now)
		for lsn := range int64(2) {
			b := w.wants(Park, lsn+1)
			if !b.IsHeld() {
				t.Fatalf("concurrency %d: %d is parked for itself", concurrency, lsn+1)
			}
			w.Tell(LetterStored{Batch: b}, w.now)
		}
		w.wait(time.Hour)
		w.wants(Call, 3)
	}
}

// The changes of a key wait behind a parked one, and are parked too if the key is held from then on.
func TestAKeyIsHeldFromItsLetterOn(t *testing.T) {
	for _, hold := range []bool{false, true} {
		w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true, HoldKeys: hold}, "a", "b", "a")
		w.Tell(Failed{
			Batch: w.wants(Call, 1, 2, 3),
			Failure: Failure{Err: errTrial, Left: []*Part{
				{Changes: []int{0}, Hopeless: true},
				{Changes: []int{2}, Untried: true},
			}},
		}, w.now)
		w.Tell(LetterStored{Batch: w.wants(Park, 1)}, w.now)
		if !hold {
			w.succeeds(w.wants(Call, 3))
		} else if b := w.wants(Park, 3); b.IsHeld() {
			w.Tell(LetterStored{Batch: b}, w.now)
		}
		if w.Counts().Held != map[bool]int{true: 1}[hold] || w.Counts().Items != 0 {
			t.Errorf("hold %v: %d keys are held, %d items are left", hold, w.Counts().Held, w.Counts().Items)
		}
	}
}

func TestAFreeKeyHasNoLaneOfItsOwn(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 2, CanPark: true}, "a", "b")
	w.fails(w.wants(Call, 1, 2))
	if len(w.lanes.own) != 2 {
		t.Errorf("%d keys have lanes, want those that failed", len(w.lanes.own))
	}
	w.wait(time.Second)
	w.succeeds(w.wants(Call, 1))
	w.succeeds(w.wants(Call, 2))
	if len(w.lanes.own) != 0 {
		t.Errorf("%d lanes are left", len(w.lanes.own))
	}
	w.page("a", "b")
	w.wants(Call, 3, 4)
}

func TestHandledChangesGiveTheirMemoryBack(t *testing.T) {
	w := newTrial(t, Rules{MaxItems: 1}, "a", "b", "c", "d", "e", "f", "g", "h")
	for i, want := range []int{800, 800, 800, 800, 800, 200, 200, 0} {
		w.succeeds(w.wants(Call, int64(i+1)))
		if w.Counts().Bytes != want {
			t.Errorf("%d bytes after %d of 8 changes, want %d", w.Counts().Bytes, i+1, want)
		}
		do, _ := w.Next(w.now)
		if do.Kind == Shed != (want == 200 && i == 5) {
			t.Fatalf("effect %d after %d of 8 changes", do.Kind, i+1)
		}
		if do.Kind == Shed {
			var kept []int
			do.Page.Kept(func(i int) { kept = append(kept, i) })
			if !slices.Equal(kept, []int{6, 7}) {
				t.Errorf("kept are %v", kept)
			}
		} else if do.Kind == Call { // taken to see what comes
			w.Tell(Cut{Batch: do.Batch}, w.now)
		}
	}
}

// A call cut short counts nothing: its batch comes again at once, and as it was.
func TestACallThatIsCutShortCountsNothing(t *testing.T) {
	w := newTrial(t, Rules{MaxAttempts: 1, CanPark: true}, "a", "b")
	b := w.wants(Call, 1, 2)
	w.Tell(Cut{Batch: b}, w.now)
	if again := w.wants(Call, 1, 2); again != b || b.Attempt() != 1 || !b.Failing().IsZero() {
		t.Errorf("attempt %d, failing since %v", b.Attempt(), b.Failing())
	}
}

// Two batches whose keys are not told apart are enough to try: if it is an outage, more calls do not help.
func TestNoMoreThanTwoBatchesFailBeforeTheyAreToldApart(t *testing.T) {
	w := newTrial(t, Rules{MaxItems: 4, MaxAttempts: 3, CanPark: true}, strings.Split("abcdefghijklmnop", "")...)
	first := 0
	for end := w.now.Add(time.Second / 2); w.now.Before(end); {
		do, wait := w.Next(w.now)
		if do.Kind == Nothing {
			w.wait(wait)
			continue
		}
		first++
		w.fails(do.Batch)
	}
	if first != 1 { // its two parts are unclear already
		t.Errorf("%d batches fail before the first comes again", first)
	}
}
