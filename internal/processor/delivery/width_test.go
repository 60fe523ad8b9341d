package delivery

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// mill is an engine with a feed that does not end, of some keys in turns, and a handler that takes virtual time.
type mill struct {
	e      *Engine
	keys   int64
	lsn    int64
	now    time.Time
	inHand []*Batch
	ends   []time.Time
}

func newMill(at int, keys int64) *mill {
	rules := Rules{Concurrency: at, Backoff: func(int) time.Duration { return time.Second }}
	m := &mill{e: New(rules, NewBreaker(rules.Backoff)), keys: keys, now: time.Unix(1000, 0)}
	m.e.Begin(0)
	return m
}

// run works for a while, and returns how many changes were handled, in how many calls.
func (m *mill) run(took func(changes []*Change) time.Duration, d time.Duration) (changes, calls int) {
	for end := m.now.Add(d); m.now.Before(end); {
		m.read()
		if do, _ := m.e.Next(m.now); do.Kind == Call {
			m.inHand, m.ends = append(m.inHand, do.Batch), append(m.ends, m.now.Add(took(do.Batch.Changes)))
			continue
		} else if do.Kind != Nothing {
			continue
		}
		first := 0
		for i, end := range m.ends {
			if end.Before(m.ends[first]) {
				first = i
			}
		}
		b := m.inHand[first]
		m.now = m.ends[first]
		m.inHand, m.ends = append(m.inHand[:first], m.inHand[first+1:]...), append(m.ends[:first], m.ends[first+1:]...)
		m.e.Tell(Succeeded{Batch: b, Quick: true}, m.now)
		changes, calls = changes+len(b.Changes), calls+1
	}
	return changes, calls
}

// read fills the buffer, of the size that is the default of the processor.
func (m *mill) read() {
	for m.e.Counts().Items < 4000 {
		before := m.lsn
		m.lsn += 1000
		m.e.Tell(PageRead{Next: m.lsn, Changes: 1000, Meta: func(i int) Meta {
			lsn := before + int64(i) + 1
			return Meta{LSN: lsn, Key: fmt.Sprint(lsn % m.keys), Size: 100}
		}}, m.now)
	}
}

// byCall and byKey are handlers whose calls cost as much for many changes as for one, and as much for each key.
func byCall([]*Change) time.Duration { return 5 * time.Millisecond }

func byKey(changes []*Change) (took time.Duration) {
	for i, c := range changes {
		if i == 0 || c.Key != changes[i-1].Key {
			took += 5 * time.Millisecond
		}
	}
	return took
}

func TestAHandlerReceivesManyKeysOnlyIfThatPays(t *testing.T) {
	for keys, least := range map[int64]int{500: 7, 2000: 25} {
		many, one := newMill(16, keys), newMill(16, keys)
		many.run(byCall, time.Second/2)
		one.run(byKey, time.Second/2)
		changes, calls := many.run(byCall, time.Second/2)
		slow, _ := one.run(byKey, time.Second/2)
		if changes < least*slow || one.e.width.lanes > 2 {
			t.Errorf("%d keys: %d changes in %d calls, and %d by key, with %d keys a batch", keys, changes, calls, slow,
				one.e.width.lanes)
		}
	}
}

// On a machine that does other work, too, some calls take longer. A handler whose nature changes is followed.
func TestTheNumberOfKeysFollowsAHandlerInSpiteOfNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noisy := func(took func([]*Change) time.Duration) func([]*Change) time.Duration {
		return func(changes []*Change) time.Duration {
			if random.Float64() < 0.2 {
				return took(changes) + time.Duration(random.ExpFloat64()*float64(8*time.Millisecond))
			}
			return took(changes)
		}
	}
	m := newMill(16, 500)
	m.run(noisy(byCall), time.Second/2)
	if changes, calls := m.run(noisy(byCall), 2*time.Second); changes/calls < 100 {
		t.Errorf("%d changes in %d calls", changes, calls)
	}
	m.run(noisy(byKey), 4*time.Second)
	if changes, calls := m.run(noisy(byKey), time.Second); changes/calls > 60 {
		t.Errorf("by key: %d changes in %d calls", changes, calls)
	}
}

// A call of few keys says nothing of many. So many in a row narrow a batch, because there are no more keys, and a call
// of many keys begins the row anew, also a quick one.
func TestCallsOfFewKeysNarrowABatchIfTheyAreInARow(t *testing.T) {
	var w width
	w.to(3, false)
	few := func(calls int) {
		for range calls {
			w.observe(1, 1, widthQuick)
		}
	}
	for range 3 {
		few(widthRest - 1)
		w.observe(8, 8, widthQuick/2)
	}
	if w.lanes != 8 {
		t.Errorf("%d lanes, want 8: calls of many keys were between those of few", w.lanes)
	}
	if few(widthRest); w.lanes != 4 {
		t.Errorf("%d lanes after %d calls of few keys, want 4", w.lanes, widthRest)
	}
}
