package records

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
	"github.com/millrace/changefeed/internal/notes"
)

// keys is how many keys the key space of the model has.
const keys = 8

func cell(from, to int) feed.Range {
	edge := func(n int) string {
		switch n {
		case 0:
			return ""
		case keys:
			return "FF"
		}
		return fmt.Sprintf("%02X", n)
	}
	return feed.Range{Min: edge(from), Max: edge(to)}
}

func position(n int) feed.Position { return feed.At(strconv.Quote(strconv.Itoa(n))) }

// made is a lease as this processor makes it.
func made(r feed.Range, at, generation int) feed.Record {
	l := feed.Record{
		Kind: feed.KindLease, Version: 1, ID: r.String(), Token: r.String(), Range: r,
		Position: position(at),
	}
	SetGeneration(&l, generation)
	return l
}

// model is a unit whose leases advance and split, whose creates arrive late, and in which
// every owner removes what it thinks redundant, each by a view of its own.
type model struct {
	rng     *rand.Rand
	leases  map[string]feed.Record
	created []feed.Record // every create that was ever sent
	steered bool          // operators reset leases
	resets  int64
	seen    map[string][]feed.Record // every state that a lease ever had
	removed int
}

func (m *model) put(l feed.Record) {
	m.leases[l.ID] = l
	m.seen[l.ID] = append(m.seen[l.ID], l)
}

func (m *model) create(l feed.Record) {
	m.created = append(m.created, l)
	if _, taken := m.leases[l.ID]; !taken {
		m.put(l)
	}
}

// counted is a source whose tokens are LSNs in quotes.
type counted struct{ feed.Source }

func (counted) TokenLSN(token string) (lsn int64, ok bool) { return service.LSN(token) }
func (counted) TokenAfter(lsn int64) string                { return service.Token(lsn) }

func (m *model) any() feed.Record {
	ids := slices.Sorted(maps.Keys(m.leases))
	return m.leases[ids[m.rng.IntN(len(ids))]]
}

func (m *model) at(l feed.Record) int {
	n, _ := service.LSN(l.Position.Token)
	return int(n)
}

// split makes the children and then removes the parent, as worker.replaceByParts does.
func (m *model) split(l feed.Record) {
	var inside []int
	for n := 1; n < keys; n++ {
		if e := cell(n, keys).Min; l.Range.Min < e && e < l.Range.Max {
			inside = append(inside, n)
		}
	}
	if len(inside) == 0 {
		return
	}
	cut := cell(inside[m.rng.IntN(len(inside))], keys).Min
	for _, r := range []feed.Range{{Min: l.Range.Min, Max: cut}, {Min: cut, Max: l.Range.Max}} {
		if old, taken := m.leases[r.String()]; taken && NewView(nil, counted{}).Ranking()(l, old) {
			return // tried again when that one has gone
		}
		child := made(r, m.at(l), GenerationOf(l)+1)
		SetProperty(&child, notes.ResetProperty, l.Properties[notes.ResetProperty])
		m.create(child)
	}
	delete(m.leases, l.ID)
}

// look is a view that is up to date for one lease. Each other is as it was at some time,
// if it was there at all.
func (m *model) look(l feed.Record) *View {
	v := NewView(nil, counted{})
	for id, states := range m.seen {
		if n := m.rng.IntN(len(states) + 1); n < len(states) {
			v.Put(states[n])
		} else {
			v.Put(states[len(states)-1])
		}
		if id == l.ID {
			v.Put(l)
		}
	}
	return v
}

// progress is where a key is: a later reset is further than any position before it.
type progress struct {
	reset int64
	at    int
}

func (p progress) compare(q progress) int {
	return cmp.Or(cmp.Compare(p.reset, q.reset), cmp.Compare(p.at, q.at))
}

// furthest is, for each key, the furthest progress of the leases that cover it; -1 is none.
func (m *model) furthest() (all [keys]progress) {
	for n := range all {
		all[n].at = -1
		for _, l := range m.leases {
			if p := (progress{LastReset(l).On, m.at(l)}); l.Range.Contains(cell(n, n+1)) && p.compare(all[n]) > 0 {
				all[n] = p
			}
		}
	}
	return all
}

// reset sends some of the leases back, as one call.
func (m *model) reset(leases []feed.Record) {
	m.resets++
	at := position(m.rng.IntN(5))
	for _, l := range leases {
		ResetTo(&l, at, notes.LastReset{On: m.resets})
		m.put(l)
	}
}

func (m *model) step() {
	l := m.any()
	switch m.rng.IntN(7) {
	case 0, 1:
		l.Expiration, l.Position = time.Minute, position(m.at(l)+m.rng.IntN(3)) // by who has taken it
		m.put(l)
	case 2:
		m.split(l)
	case 3:
		m.create(m.created[m.rng.IntN(len(m.created))]) // late
	case 4:
		if m.steered && m.rng.IntN(4) == 0 {
			m.reset(slices.Collect(maps.Values(m.leases)))
		} else if m.steered {
			m.reset([]feed.Record{l})
		}
	default:
		if m.look(l).IsRedundant(l) {
			m.removed++
			delete(m.leases, l.ID)
		}
	}
}

// However old the views are by which leases are removed, and however late creates arrive,
// no key is left without a lease, and the furthest position of each key stays, or that of its last reset.
func TestRemovalsOfRedundantLeasesNeverMeet(t *testing.T) {
	removed := 0
	for seed := range uint64(300) {
		m := &model{
			rng: rand.New(rand.NewPCG(seed, 5)), leases: map[string]feed.Record{},
			seen: map[string][]feed.Record{}, steered: seed%2 == 1,
		}
		m.create(made(cell(0, keys/2), 0, 0))
		m.create(made(cell(keys/2, keys), 0, 0))
		m.created = append(m.created, made(cell(1, 5), 0, 0)) // of an attempt under other partitions
		for range 60 {
			before := m.furthest()
			m.step()
			for n, now := range m.furthest() {
				if now.compare(before[n]) < 0 {
					t.Fatalf("seed %d: key %d fell from %v to %v; %d removals", seed, n, before[n], now, m.removed)
				}
			}
		}
		removed += m.removed
	}
	if removed < 100 {
		t.Errorf("%d removals: the test shows little", removed)
	}
}

// A lease that was made for a hole, and so begins at a time, covers one of the unit's
// beginning that a late create has made: if that time is when the unit began.
func TestALeaseOfAHoleCoversALateOne(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, origin string
		start        time.Time
		late         int // where the late one is
		want         bool
	}{
		{"before it", feed.FromTime(began).String(), began, 0, true},
		{"before it, from another time", feed.FromTime(began).String(), began.Add(time.Hour), 0, false},
		{"after it", feed.FromTime(began).String(), began, 300, false},
		{"before it, of a unit from the beginning", feed.FromBeginning().String(), began, 0, false},
	} {
		v := NewView(nil, counted{})
		v.Put(feed.Record{
			ID: "unit.info", Kind: feed.KindInfo,
			Properties: map[string]string{notes.OriginProperty: c.origin},
		})
		hole, late := made(cell(0, keys), 200, 0), made(cell(0, keys/2), c.late, 0)
		hole.Position.Start = feed.FromTime(c.start)
		v.Put(hole)
		v.Put(late)
		if got := v.IsRedundant(late); got != c.want {
			t.Errorf("%s: redundant %v, want %v", c.name, got, c.want)
		}
	}
}

// A lease is late only as its maker has left it: who has had it since, also another kind of
// processor, which keeps properties and writes timestamps of its own, has made it a lease.
func TestALeaseIsLateOnlyAsItsMakerLeftIt(t *testing.T) {
	due := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	for _, c := range []struct {
		name string
		edit func(*feed.Record)
		late bool
	}{
		{"as it was made", func(*feed.Record) {}, true},
		{"in time", func(l *feed.Record) { l.Updated = due }, false},
		{"without a due", func(l *feed.Record) { SetProperty(l, notes.DueProperty, "") }, false},
		{"with a due that is none", func(l *feed.Record) { SetProperty(l, notes.DueProperty, "soon") }, false},
		{"had by one of us", func(l *feed.Record) { l.Expiration = time.Minute }, false},
		{"owned by its maker", func(l *feed.Record) { l.Owner, l.Epoch, l.Expiration = "a", "e", time.Minute }, true},
		{"owned by its maker, in time", func(l *feed.Record) { l.Owner, l.Epoch, l.Updated = "a", "e", due }, false},
		{"renewed by its maker", func(l *feed.Record) { l.Owner, l.Epoch, l.Timestamp = "a", "e", due }, false},
		{"owned by another kind", func(l *feed.Record) { l.Owner = "net" }, false},
		{"freed by another kind", func(l *feed.Record) { l.Timestamp = due.Add(time.Hour) }, false},
		{"a child of it", func(l *feed.Record) { BeginTerm(l) }, false},
	} {
		l := made(cell(0, keys), 1, 0)
		l.Timestamp, l.Updated = due.Add(-20*time.Second+100), due.Add(time.Second)
		SetProperty(&l, notes.DueProperty, notes.Due{By: due, Sent: l.Timestamp}.String())
		c.edit(&l)
		if got := IsLate(l); got != c.late {
			t.Errorf("%s: late %v, want %v", c.name, got, c.late)
		}
		if gone := withJudgement(l).State == feed.StateRetired; gone != c.late {
			t.Errorf("%s: gone %v, want %v", c.name, gone, c.late)
		}
	}
}

// A lease of another kind of processor has no rank: it may go back, and it may be removed in favour of ours.
func TestALeaseIsNotRedundantBesideThatOfAnotherKind(t *testing.T) {
	ours, foreign := made(cell(0, keys/2), 1, 0), made(cell(0, keys), 5, 0)
	for name, c := range map[string]struct {
		edit func(*feed.Record)
		want bool
	}{
		"ours":                        {func(*feed.Record) {}, true},
		"made by another kind":        {func(l *feed.Record) { l.Properties = nil }, false},
		"owned by another kind":       {func(l *feed.Record) { l.Owner = "net" }, false},
		"a document that is no lease": {func(l *feed.Record) { l.Err = feed.ErrBadLease }, false},
	} {
		v, other := NewView(nil, counted{}), foreign
		c.edit(&other)
		v.Put(ours)
		v.Put(other)
		if got := v.IsRedundant(ours); got != c.want {
			t.Errorf("beside a lease %s: redundant %v, want %v", name, got, c.want)
		}
	}
}
