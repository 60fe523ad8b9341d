package records

import (
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A picture of a store's records
//
// A listing takes time, and news may arrive during the listing. Such news stays, because the listing may be older,
// unless the listing shows a later write of the same record. What came before the request of the listing is older than
// the listing. A count of the news says which is which, because a clock may show one time for both.

// replaceRecords applies a listing and keeps it. asked is our time of the request, and events is the count of events
// then; now is the store's time of its answer.
func (v *View) replaceRecords(listing map[string]feed.Record, now, asked time.Time, events uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, at := range v.news {
		record, alive := v.records[id]
		shown, isListed := listing[id]
		switch {
		case at <= events || alive && isListed && shown.Updated.After(record.Updated):
		case alive:
			listing[id] = record
		default:
			delete(listing, id)
		}
	}
	if v.distrusted > events {
		asked = time.Time{}
	}
	v.records, v.news = listing, map[string]uint64{}
	v.listed, v.clock, v.answered = asked, now, time.Now()
}

// countEvents returns how many events there were so far.
func (v *View) countEvents() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.events
}

// Listed returns when the listing was requested; zero if there is none, or if the picture was distrusted since then.
func (v *View) Listed() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.listed
}

// Distrust notes a contradiction to the picture: the records must be listed anew.
func (v *View) Distrust() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.events++
	v.listed, v.distrusted = time.Time{}, v.events
}

// changeRecord replaces a known record by a version written by us or received from a follower.
func (v *View) changeRecord(id string, with func(old feed.Record, known bool) feed.Record) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old, known := v.records[id]
	v.events++
	v.records[id], v.news[id] = with(old, known), v.events
}

// Drop forgets a deleted record.
func (v *View) Drop(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.records, id)
	v.events++
	v.news[id] = v.events
}

// Get returns the record with an id.
func (v *View) Get(id string) (feed.Record, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	record, known := v.records[id]
	return record, known
}

// Where returns the records for which holds is true, by their ids.
func (v *View) Where(holds func(id string, record feed.Record) bool) (found []feed.Record) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var ids []string
	for id, record := range v.records {
		if holds(id, record) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		found = append(found, v.records[id])
	}
	return found
}

// answeredAt notes an answer of the store, and the store's time.
func (v *View) answeredAt(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clock, v.answered = now, time.Now()
}

// LastAnswer returns when the store last answered, by our clock; zero before the first answer.
func (v *View) LastAnswer() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.answered
}

// Now returns the store's time, by our own monotonic clock since the store's last answer.
func (v *View) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.clock.Add(time.Since(v.answered))
}
