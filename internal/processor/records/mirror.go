package records

import (
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A picture of a store's records
//
// A listing takes time, and news may come while it is on its way. Such news stays, because the
// listing may be older, unless the listing shows a later write of the same record.

// replace applies a listing, and keeps it, that was asked for at a time of ours and that the
// store gave at a time of its own.
func (v *View) replace(listing map[string]feed.Record, now, asked time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, at := range v.news {
		record, alive := v.records[id]
		shown, isListed := listing[id]
		switch {
		case at.Before(asked) || alive && isListed && shown.Updated.After(record.Updated):
		case alive:
			listing[id] = record
		default:
			delete(listing, id)
		}
	}
	if !v.distrusted.Before(asked) {
		asked = time.Time{}
	}
	v.records, v.news = listing, map[string]time.Time{}
	v.listed, v.clock, v.answered = asked, now, time.Now()
}

// Listed is when the listing was asked for; zero when there is none, or when the picture was
// distrusted since then.
func (v *View) Listed() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.listed
}

// Distrust notes that something has contradicted the picture, so that it must be listed anew.
func (v *View) Distrust() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.listed, v.distrusted = time.Time{}, time.Now()
}

// change puts a record that was written or heard of in the place of the one that is known.
func (v *View) change(id string, with func(old feed.Record, known bool) feed.Record) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old, known := v.records[id]
	v.records[id], v.news[id] = with(old, known), time.Now()
}

// Drop forgets a record that is gone.
func (v *View) Drop(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.records, id)
	v.news[id] = time.Now()
}

// Get returns the record with an id.
func (v *View) Get(id string) (feed.Record, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	record, known := v.records[id]
	return record, known
}

// Where lists the records for which a condition holds, by their ids.
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

// answeredAt notes that the store has answered, and what time it was there.
func (v *View) answeredAt(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clock, v.answered = now, time.Now()
}

// LastAnswer is when the store last answered, by our clock; zero before the first time.
func (v *View) LastAnswer() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.answered
}

// Now is the store's time, by our own monotonic clock since the store last gave it.
func (v *View) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.clock.Add(time.Since(v.answered))
}
