package lanes

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// doc is a change of the tests.
type doc struct {
	key string
	lsn int64
	n   int // of all changes
}

var (
	errBad    = errors.New("bad")
	errPoison = errors.New("poison")
)

func rulesOf(r Rules[doc]) Rules[doc] {
	r.Backoff = func(failures int) time.Duration { return time.Second << min(failures, 5) }
	r.Key = func(d *doc) string { return d.key }
	r.LSN = func(d *doc) int64 { return d.lsn }
	r.Size = func(*doc) int { return 100 }
	r.Detach = func(*doc) {}
	return r
}

// model plays lanes at random and checks what they promise, by what it has seen itself.
type model struct {
	t     *testing.T
	rng   *rand.Rand
	rules Rules[doc]
	lanes *Lanes[doc, int]
	hold  bool
	now   time.Time
	all   []doc
	bad   map[int]bool // changes that always fail
	down  time.Time    // the end of an outage
	state map[int]string
	hand  []*call
	held  map[string]bool
}

type call struct {
	batch *Batch[doc, int]
	docs  []doc
}

// add adds a page, in which one change of so many is bad.
func (m *model) add(of int) {
	var page []doc
	for range 1 + m.rng.IntN(12) {
		key, size := fmt.Sprint("k", m.rng.IntN(8)), 1
		if of == math.MaxInt {
			key = fmt.Sprint("new", len(m.all)+len(page))
		}
		if m.rng.IntN(4) == 0 {
			size = 1 + m.rng.IntN(5) // a transaction
		}
		lsn := int64(1)
		if len(page) > 0 {
			lsn = page[len(page)-1].lsn + 1
		} else if len(m.all) > 0 {
			lsn = m.all[len(m.all)-1].lsn + 1
		}
		for range size {
			d := doc{key, lsn, len(m.all) + len(page)}
			m.bad[d.n] = m.rng.IntN(of) == 0
			page = append(page, d)
		}
	}
	m.all = append(m.all, page...)
	m.lanes.Add(0, page, 0, m.now)
}

// take takes a batch and checks that it may be had now.
func (m *model) take() (wait time.Duration) {
	b, wait := m.lanes.Next(m.now)
	if b == nil {
		return wait
	}
	c := &call{batch: b}
	for _, change := range b.Changes {
		d := change.Value
		c.docs = append(c.docs, d)
		if m.state[d.n] != "" {
			m.t.Fatalf("%v is taken, though it is %s", d, m.state[d.n])
		}
		for n := range d.n { // what is earlier of its key must be over, or in the same batch before it
			if m.all[n].key == d.key && m.state[n] != "done" && m.state[n] != "parked" && !slices.Contains(c.docs, m.all[n]) {
				m.t.Fatalf("%v is taken before %v", d, m.all[n])
			}
		}
		if m.held[d.key] && !b.Park || b.Held && !m.held[d.key] {
			m.t.Fatalf("%+v lane %q %+v; %v is taken with held %v, but its key is held %v", m.rules, b.lane.key, b, d, b.Held, m.held[d.key])
		}
	}
	if b.Park && len(b.Changes) != 1 {
		m.t.Fatalf("%d changes to park at once", len(b.Changes))
	}
	whole := m.rules.Concurrency == 1 || slices.IndexFunc(c.docs, func(d doc) bool { return d.key != c.docs[0].key }) < 0
	if !whole {
		m.t.Fatalf("a batch of several keys: %v", c.docs)
	}
	if last := c.docs[len(c.docs)-1]; !b.IsCut() && !b.Park && last.n+1 < len(m.all) && m.all[last.n+1].lsn == last.lsn && m.state[last.n+1] == "" {
		m.t.Fatalf("a transaction is cut after %v, and the batch does not say so", last)
	}
	for _, d := range c.docs {
		m.state[d.n] = "in hand"
	}
	m.hand = append(m.hand, c)
	if len(m.hand) > m.rules.Concurrency {
		m.t.Fatalf("%d batches in hand", len(m.hand))
	}
	return 0
}

// end ends a call in hand in one of the ways that it may end.
func (m *model) end() {
	i := m.rng.IntN(len(m.hand))
	c := m.hand[i]
	m.hand = slices.Delete(m.hand, i, i+1)
	set := func(docs []doc, state string) {
		for _, d := range docs {
			m.state[d.n] = state
		}
	}
	outage := m.now.Before(m.down)
	switch fails := slices.ContainsFunc(c.docs, func(d doc) bool { return m.bad[d.n] }); {
	case c.batch.Park && m.rng.IntN(3) == 0:
		set(c.docs, "")
		m.lanes.Fail(c.batch, Failure{Err: c.batch.Err}, m.now)
	case c.batch.Park:
		if !m.bad[c.docs[0].n] && !c.batch.Held && m.down.IsZero() {
			m.t.Fatalf("%v is parked", c.docs[0])
		}
		set(c.docs, "parked")
		if m.hold && !c.batch.Held {
			m.held[c.docs[0].key] = true
			m.lanes.Hold(c.docs[0].key)
		}
		m.lanes.Succeed(c.batch, true, m.now)
	case m.rng.IntN(20) == 0:
		set(c.docs, "")
		m.lanes.Return(c.batch)
	case outage:
		set(c.docs, "")
		m.lanes.Fail(c.batch, Failure{Err: errBad}, m.now)
	case !fails:
		set(c.docs, "done")
		m.lanes.Succeed(c.batch, m.rng.IntN(2) == 0, m.now)
	default:
		m.fail(c, set)
	}
}

// fail fails a call, with more or fewer words.
func (m *model) fail(c *call, set func([]doc, string)) {
	f := Failure{Err: errBad}
	first := slices.IndexFunc(c.docs, func(d doc) bool { return m.bad[d.n] })
	set(c.docs, "")
	switch m.rng.IntN(5) {
	case 0:
		done := m.rng.IntN(first + 1)
		f.Left = []*Part{{Err: errBad}}
		for i := range c.docs[done:] {
			f.Left[0].Changes = append(f.Left[0].Changes, done+i)
		}
		set(c.docs[:done], "done")
	case 1:
		open := false // the last part takes more
		for i, d := range c.docs {
			hopeless := m.rng.IntN(2) == 0
			switch {
			case !m.bad[d.n]:
				set(c.docs[i:i+1], "done")
				continue
			case hopeless:
				f.Left = append(f.Left, &Part{Err: errPoison, Hopeless: true})
			case !open:
				f.Left = append(f.Left, &Part{Err: errBad})
			}
			last := f.Left[len(f.Left)-1]
			last.Changes, open = append(last.Changes, i), !hopeless
		}
	case 2:
		f.Late = true
	case 3: // something is said of some, those after it of their keys are not tried, and the call failed on the others
		call := &Part{Err: errBad, Hopeless: m.rng.IntN(2) == 0}
		broken, fails := map[string]bool{}, false
		var rest []*Part
		for i, d := range c.docs {
			switch {
			case m.bad[d.n] && m.rng.IntN(2) == 0:
				broken[d.key] = true
				rest = append(rest, &Part{Changes: []int{i}, Err: errPoison, Hopeless: true})
			case broken[d.key]:
				rest = append(rest, &Part{Changes: []int{i}, Untried: true})
			default:
				call.Changes, fails = append(call.Changes, i), fails || m.bad[d.n]
			}
		}
		if fails {
			f.Left = append(f.Left, call)
		} else {
			for _, i := range call.Changes {
				set(c.docs[i:i+1], "done")
			}
		}
		f.Left = append(f.Left, rest...)
	}
	m.lanes.Fail(c.batch, f, m.now)
}

// over reports whether every change is done, parked, or stuck because nothing can be parked.
func (m *model) over() bool {
	for _, d := range m.all {
		if s := m.state[d.n]; s != "done" && s != "parked" {
			return false
		}
	}
	return true
}

func TestLanesKeepTheirPromises(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, seed) })
	}
}

func play(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	rules := rulesOf(Rules[doc]{Concurrency: 1 + rng.IntN(5)*rng.IntN(2), MaxItems: rng.IntN(3) * 4, MaxBytes: rng.IntN(2) * 450, MaxAttempts: 1 + rng.IntN(3), CanPark: true})
	breaker := NewBreaker(rules.Backoff)
	m := &model{
		t: t, rng: rng, rules: rules, lanes: New[doc, int](rules, breaker), hold: rng.IntN(3) == 0,
		now: time.Unix(1, 0), bad: map[int]bool{}, state: map[int]string{}, held: map[string]bool{},
	}
	if rng.IntN(3) == 0 {
		m.down = m.now.Add(time.Duration(rng.IntN(200)) * time.Second)
	}
	for step := range 6000 {
		if step < 200 && rng.IntN(20) == 0 || step == 0 {
			m.add(12)
		}
		if step > 2000 && step%100 == 0 { // else it may look like an outage to the end
			m.add(math.MaxInt)
		}
		wait := m.take()
		switch {
		case wait == 0:
		case len(m.hand) > 0:
			m.end()
		case wait == Never && m.over():
			m.check()
			if step > 200 {
				return
			}
		case wait == Never:
			t.Fatalf("step %d: nothing is in hand, nothing will be, and not all is over: %v", step, m.state)
		default:
			m.now = m.now.Add(wait)
		}
	}
	t.Fatalf("not over after 6000 steps: %v", m.state)
}

func (m *model) check() {
	if m.lanes.Items() != 0 || m.lanes.Bytes() != 0 || m.lanes.InHand() != 0 || len(m.lanes.Ledger.order) != 0 || len(m.lanes.pending)+len(m.lanes.suspect)+len(m.lanes.ready) != 0 {
		m.t.Fatalf("empty lanes hold %d items, %d bytes, %d in hand, %d in order", m.lanes.Items(), m.lanes.Bytes(), m.lanes.InHand(), len(m.lanes.Ledger.order))
	}
	if through, open := m.lanes.Ledger.Done(10); len(open) != 0 || through != m.all[len(m.all)-1].lsn {
		m.t.Fatalf("done through %d but for %v", through, open)
	}
	if m.down.IsZero() {
		for n, bad := range m.bad {
			held := m.held[m.all[n].key]
			if got := m.state[n]; bad && got != "parked" || !bad && got != "done" && !held {
				m.t.Fatalf("%v is bad: %v, and %s", m.all[n], bad, got)
			}
		}
	}
	for name, at := range m.lanes.lanes {
		if name != shared && !at.held {
			m.t.Fatalf("lane %q is left", name)
		}
	}
}

// A checkpoint by hand of a batch that is confirmed already says nothing of those after it.
func TestALateCheckpointConfirmsNothingNew(t *testing.T) {
	now := time.Unix(1, 0)
	rules := rulesOf(Rules[doc]{Concurrency: 4, MaxItems: 1, ByHand: true})
	l := New[doc, int](rules, NewBreaker(rules.Backoff))
	l.Add(0, []doc{{"k", 1, 0}, {"k", 2, 1}, {"k", 3, 2}, {"k", 4, 3}}, 0, now)
	var batches []*Batch[doc, int]
	for range 3 {
		b, _ := l.Next(now)
		l.Succeed(b, false, now)
		batches = append(batches, b)
	}
	l.Ledger.Confirm(batches[1])
	for _, b := range []*Batch[doc, int]{batches[0], batches[1], batches[0]} {
		l.Ledger.Confirm(b)
		if through, open := l.Ledger.Done(10); through != 4 || !slices.Equal(open, []int64{3, 4}) {
			t.Errorf("done through %d but for %v", through, open)
		}
	}
	l.Ledger.Confirm(batches[2])
	if _, open := l.Ledger.Done(10); !slices.Equal(open, []int64{4}) {
		t.Errorf("open are %v", open)
	}
}
