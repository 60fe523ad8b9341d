// Package mirror keeps a picture of the records of a store: the last listing, with all that was written and heard of
// since, and the store's clock.
package mirror

import (
	"slices"
	"sync"
	"time"
)

// Mirror is the picture of records of type R, by their ids. It may be used by several goroutines.
//
// A listing takes time, and news may come while it is on its way. Such news stays, because the
// listing may be older, unless the listing shows a later write of the same record.
type Mirror[R any] struct {
	written func(R) time.Time // by the store's clock

	mu         sync.Mutex
	records    map[string]R
	news       map[string]time.Time // when a record was last written by us, or heard of
	clock      time.Time            // the store's time ...
	answered   time.Time            // ... when we got that; from then on our monotonic clock counts
	listed     time.Time            // when the last listing was asked for; zero is stale
	distrusted time.Time            // last
}

// New makes an empty mirror of records that say when the store has taken them.
func New[R any](written func(R) time.Time) *Mirror[R] {
	return &Mirror[R]{written: written, records: map[string]R{}, news: map[string]time.Time{}}
}

// Replace applies a listing, and keeps it, that was asked for at a time of ours and that the
// store gave at a time of its own.
func (m *Mirror[R]) Replace(listing map[string]R, now, asked time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, at := range m.news {
		record, alive := m.records[id]
		shown, isListed := listing[id]
		switch {
		case at.Before(asked) || alive && isListed && m.written(shown).After(m.written(record)):
		case alive:
			listing[id] = record
		default:
			delete(listing, id)
		}
	}
	if !m.distrusted.Before(asked) {
		asked = time.Time{}
	}
	m.records, m.news = listing, map[string]time.Time{}
	m.listed, m.clock, m.answered = asked, now, time.Now()
}

// Listed is when the listing was asked for; zero when there is none, or when the picture was
// distrusted since then.
func (m *Mirror[R]) Listed() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed
}

// Distrust notes that something has contradicted the picture, so that it must be listed anew.
func (m *Mirror[R]) Distrust() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed, m.distrusted = time.Time{}, time.Now()
}

// Put puts a record that was written or heard of in the place of the one that is known.
func (m *Mirror[R]) Put(id string, replace func(old R, known bool) R) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.records[id]
	m.records[id], m.news[id] = replace(old, known), time.Now()
}

// Drop forgets a record that is gone.
func (m *Mirror[R]) Drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, id)
	m.news[id] = time.Now()
}

// Get returns the record with an id.
func (m *Mirror[R]) Get(id string) (R, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	record, known := m.records[id]
	return record, known
}

// Where lists the records for which a condition holds, by their ids.
func (m *Mirror[R]) Where(holds func(id string, record R) bool) (found []R) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []string
	for id, record := range m.records {
		if holds(id, record) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		found = append(found, m.records[id])
	}
	return found
}

// Answered notes that the store has answered, and what time it was there.
func (m *Mirror[R]) Answered(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock, m.answered = now, time.Now()
}

// LastAnswer is when the store last answered, by our clock; zero before the first time.
func (m *Mirror[R]) LastAnswer() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answered
}

// Now is the store's time, by our own monotonic clock since the store last gave it.
func (m *Mirror[R]) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock.Add(time.Since(m.answered))
}
