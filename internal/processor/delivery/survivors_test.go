package delivery

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var walks = flag.Int("walks", 1000, "how many random walks TestRandomWalksKeepTheirPromises takes")

// walk is an engine in a small random world: a feed whose handler fails for some changes, and for all of them during an
// outage, whose letters and reads by key may be refused, and whose owner changes now and then.
type walk struct {
	*testing.T
	rng    *rand.Rand
	rules  Rules
	e      *Engine
	b      *Breaker
	now    time.Time
	keys   []string // of the changes, by LSN - 1
	bad    map[int64]bool
	done   map[int64]bool // handled or parked
	here   map[int64]bool // handled by this owner
	letter map[string][]int64
	held   map[string]int64 // the first letter of a key
	hand   []Effect
	outage time.Time // until then
	failed int       // letters, reads and requests that were refused
}

const after = time.Second

func newWalk(t *testing.T, seed uint64) *walk {
	rng := rand.New(rand.NewPCG(seed, 7))
	back := func(failures int) time.Duration { return after * time.Duration(min(failures, 8)) }
	w := &walk{
		T: t, rng: rng, b: NewBreaker(back), now: time.Unix(1e6, 0), bad: map[int64]bool{}, done: map[int64]bool{},
		here:   map[int64]bool{},
		letter: map[string][]int64{}, held: map[string]int64{},
		rules: Rules{
			Concurrency: 1 + rng.IntN(3), MaxItems: rng.IntN(4), MaxAttempts: 1 + rng.IntN(3), CanPark: true,
			HoldKeys: rng.IntN(2) == 0,
			HasBox:   true, CanReadKeys: rng.IntN(3) > 0, MaxAside: 1 + rng.IntN(3), KeyPages: 1 + rng.IntN(2),
			MaxHeld: 100, MaxHeldBytes: 1000,
			HeldBytes: func(string) int {
				return 1
			}, Backoff: back, Name: func(c *Change) string { return fmt.Sprint(c.LSN) },
		},
	}
	bad := 0
	for lsn := range int64(10 + rng.IntN(30)) {
		w.keys = append(w.keys, string(rune('a'+rng.IntN(5))))
		if w.bad[lsn+1] = bad < 2 && rng.IntN(8) == 0; w.bad[lsn+1] { // three would be an outage for ever
			bad++
		}
	}
	w.begin(int64(0), Notes{})
	return w
}

func (w *walk) begin(at Position, n Notes) {
	w.e, w.hand, w.here = New(w.rules, w.b), nil, map[int64]bool{}
	w.e.Begin(at)
	w.e.Restore(n, w.now)
}

// restart has another owner go on from what the lease says.
func (w *walk) restart() {
	at, n := w.e.Position(), w.e.Notes()
	n.Suspect = nil
	w.begin(at, n)
}

// check compares what the lease says with what is done.
func (w *walk) check() {
	n, at := w.e.Notes(), w.e.Position().(int64)
	for i, key := range w.keys {
		lsn := int64(i + 1)
		isAside := slices.ContainsFunc(n.Aside, func(a Aside) bool {
			return a.Key == key && a.LSN <= lsn && a.From.(int64) < lsn
		})
		if w.done[lsn] || isAside {
			continue
		}
		if lsn <= at || lsn <= n.Through && !slices.Contains(n.Open, lsn) {
			w.Fatalf("%d of %s is not done, at %d with %+v", lsn, key, at, n)
		}
	}
	if w.e.Counts().InHand > w.rules.Concurrency || w.e.Counts().Items < 0 || w.e.Counts().Bytes < 0 {
		w.Fatalf("%d in hand, %d items, %d bytes", w.e.Counts().InHand, w.e.Counts().Items, w.e.Counts().Bytes)
	}
}

// called checks the order of a batch that goes to the handler or to the letters.
func (w *walk) called(b *Batch) {
	for _, other := range w.hand {
		for _, c := range b.Changes {
			if other.Batch != nil && slices.ContainsFunc(other.Batch.Changes, func(o *Change) bool {
				return o.Key == c.Key
			}) {
				w.Fatalf("%s is in hand twice", c.Key)
			}
		}
	}
	if b.IsRedriven() {
		return
	}
	mine := map[int64]bool{}
	for _, c := range b.Changes {
		if w.here[c.LSN] {
			w.Fatalf("%d comes again", c.LSN)
		}
		for lsn := int64(1); lsn < c.LSN; lsn++ {
			if w.keys[lsn-1] == c.Key && !w.done[lsn] && !mine[lsn] {
				w.Fatalf("%d of %s before %d", c.LSN, c.Key, lsn)
			}
		}
		if first := w.held[c.Key]; first > 0 && c.LSN > first && b.State == Calling {
			w.Fatalf("%d of %s, which is held since %d", c.LSN, c.Key, first)
		}
		mine[c.LSN] = true
	}
}

// fails reports whether the handler fails with a batch.
func (w *walk) fails(b *Batch) bool {
	return w.now.Before(w.outage) || slices.ContainsFunc(b.Changes, func(c *Change) bool { return w.bad[c.LSN] })
}

// answer ends something that is in hand.
func (w *walk) answer(do Effect) {
	refused := do.Kind != Call && do.Kind != Answer && w.failed < 5 && w.rng.IntN(6) == 0
	if refused {
		w.failed++
	}
	switch do.Kind {
	case Call:
		w.answerCall(do.Batch)
	case Park:
		c := do.Batch.Changes[0]
		if refused {
			w.e.Tell(LetterRefused{Batch: do.Batch}, w.now)
			return
		}
		if !w.bad[c.LSN] && !do.Batch.IsHeld() && w.outage.IsZero() {
			w.Fatalf("%d is parked", c.LSN)
		}
		w.done[c.LSN], w.here[c.LSN] = true, true
		if !slices.Contains(w.letter[c.Key], c.LSN) {
			w.letter[c.Key] = append(w.letter[c.Key], c.LSN)
		}
		if w.rules.HoldKeys && w.held[c.Key] == 0 {
			w.held[c.Key] = c.LSN
		}
		w.e.Tell(LetterStored{Batch: do.Batch}, w.now)
	case ReadKey:
		w.readKey(do, refused)
	default:
		w.answerRequest(do, refused)
	}
}

func (w *walk) answerCall(b *Batch) {
	switch {
	case w.fails(b):
		w.e.Tell(Failed{Batch: b, Failure: Failure{Err: errors.New("no")}}, w.now)
	case w.rng.IntN(10) == 0:
		w.e.Tell(Cut{Batch: b}, w.now)
		w.restart() // the work on the lease ends
	default:
		for _, c := range b.Changes {
			w.done[c.LSN], w.here[c.LSN] = true, w.here[c.LSN] || !b.IsRedriven()
		}
		w.e.Tell(Succeeded{Batch: b, Quick: true}, w.now)
	}
}

func (w *walk) readKey(do Effect, refused bool) {
	if refused {
		w.e.Tell(KeyFailed{Key: do.Key}, w.now)
		return
	}
	var found []Meta
	next, end := do.From.(int64), int64(len(w.keys))
	for lsn := next + 1; lsn <= end && len(found) < 2; lsn++ {
		if next = lsn; w.keys[lsn-1] == do.Key {
			found = append(found, Meta{lsn, do.Key, 1})
		}
	}
	w.e.Tell(KeyRead{Key: do.Key, Next: next, Head: end, Changes: len(found), Meta: func(i int) Meta {
		return found[i]
	}}, w.now)
}

func (w *walk) answerRequest(do Effect, refused bool) {
	q := do.Request
	if refused {
		w.e.Tell(RequestFailed{Request: q, Err: errors.New("no box")}, w.now)
		return
	}
	switch do.Kind {
	case FindLetter:
		var found *Letter
		for i, lsn := range w.letter[q.Key] {
			if fmt.Sprint(lsn) == q.Letter && (i == 0 || lsn == w.held[q.Key]) {
				found = &Letter{LSN: lsn, Size: 1}
			}
		}
		w.e.Tell(LetterFound{Request: q, Letter: found}, w.now)
	case ListLetters:
		var held []*Letter
		for _, lsn := range w.letter[q.Key] {
			if lsn != w.held[q.Key] || w.rules.HoldKeys && q.Letter == "" {
				held = append(held, &Letter{LSN: lsn, Size: 1})
			}
		}
		if len(held) == 0 {
			delete(w.held, q.Key)
		}
		w.e.Tell(LettersListed{Request: q, Letters: held[:min(len(held), 2)], Failed: false}, w.now)
	case Remove:
		w.letter[q.Key] = slices.DeleteFunc(w.letter[q.Key], func(lsn int64) bool { return lsn == q.Current.LSN })
		w.e.Tell(LetterRemoved{Request: q}, w.now)
	case Rewrite:
		w.e.Tell(LetterRewritten{Request: q}, w.now)
	}
}

// step does what the engine says, or lets something happen.
func (w *walk) step(quiet bool) (over bool) {
	do, wait := w.e.Next(w.now)
	switch do.Kind {
	case Shed, TooManyHeld:
		return false
	case Nothing:
	default:
		if do.Kind == Call || do.Kind == Park {
			w.called(do.Batch)
		}
		w.hand = append(w.hand, do)
		return false
	}
	w.check()
	read := w.e.ReadFrom().(int64)
	switch what := w.rng.IntN(12); {
	case what == 0 && !quiet:
		w.restart()
	case what == 1 && !quiet:
		w.e.Tell(RequestMade{Request: &Request{Token: fmt.Sprint(w.rng.IntN(9)), Key: w.keys[w.rng.IntN(len(w.keys))]}},
			w.now)
	case what == 2 && !quiet && w.outage.IsZero():
		w.outage = w.now.Add(20 * after)
	case what < 6 && int(read) < len(w.keys):
		w.readFeed(read)
	case len(w.hand) > 0:
		i := w.rng.IntN(len(w.hand))
		do := w.hand[i]
		w.hand = slices.Delete(w.hand, i, i+1)
		w.answer(do)
	case wait < Never:
		w.now = w.now.Add(wait)
	default:
		return int(read) == len(w.keys)
	}
	return false
}

func (w *walk) readFeed(read int64) {
	n := 1 + w.rng.IntN(min(4, len(w.keys)-int(read)))
	w.e.Tell(PageRead{Next: read + int64(n), Changes: n, Meta: func(i int) Meta {
		return Meta{read + int64(i) + 1, w.keys[int(read)+i], 1}
	}}, w.now)
	if w.rng.IntN(4) == 0 {
		w.e.MakeRoom(0, after, w.now)
	}
}

func TestRandomWalksKeepTheirPromises(t *testing.T) {
	for seed := range uint64(*walks) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWalk(t, seed)
			for range 200 {
				w.step(false)
			}
			for i := 0; !w.step(true); i++ {
				if i > 3000 && w.b.IsOpen() { // nothing healthy is left to show that the outage is over
					clear(w.bad)
				}
				if i > 10000 {
					t.Fatalf("no end: %d items, at %v of %d, %+v", w.e.Counts().Items, w.e.Position(), len(w.keys),
						w.e.Notes())
				}
			}
			if w.e.Counts().Items != 0 || w.e.Counts().Bytes != 0 || w.e.Position() != int64(len(w.keys)) {
				t.Fatalf("%d items, %d bytes, at %v of %d, %+v", w.e.Counts().Items, w.e.Counts().Bytes, w.e.Position(),
					len(w.keys), w.e.Notes())
			}
		})
	}
}
