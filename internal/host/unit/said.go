package unit

import (
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// What a lease says beside its position.

// clock is a time of the last day, or a time with its date.
func clock(t, now time.Time) string {
	if now.Sub(t) < 24*time.Hour {
		return t.UTC().Format(time.TimeOnly)
	}
	return t.UTC().Format(time.DateTime)
}

// Held are the partition keys whose changes are parked until they are released, as a lease says.
func Held(record feed.Record) []string {
	held, _ := notes.ReadHeld(record.Properties[notes.HeldProperty], notes.Place{Position: record.Position.Token}) // what does not hold any more has no keys
	return held.Keys
}

// firstOf names the first keys of a list, because there may be a thousand.
func firstOf(keys []string) string {
	const most, length = 3, 40
	var named []string
	for _, key := range keys[:min(most, len(keys))] {
		if r := []rune(key); len(r) > length {
			key = string(r[:length]) + "…"
		}
		named = append(named, key)
	}
	if len(keys) > most {
		named = append(named, "…")
	}
	return strings.Join(named, " ")
}

// setAside are the partition keys whose changes are read again by key, as a lease says.
func setAside(record feed.Record) []notes.AsideKey {
	aside, _ := notes.ReadAside(record.Properties[notes.AsideProperty], notes.Place{Position: record.Position.Token}) // what does not hold any more has no keys
	return aside.Keys
}

// outage is since when the owner of a lease sees an outage; zero if it sees none. A lease without an owner of ours may have
// the property still, which nobody keeps up to date.
func outage(record feed.Record) time.Time {
	if record.Epoch == "" {
		return time.Time{}
	}
	return notes.ReadOutage(record.Properties[notes.OutageProperty])
}
