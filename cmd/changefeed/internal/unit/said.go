package unit

import (
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// The notes of a lease beside the position.

// clock returns a time of the last day without the date, and any other time with the date.
func clock(t, now time.Time) string {
	if now.Sub(t) < 24*time.Hour {
		return t.UTC().Format(time.TimeOnly)
	}
	return t.UTC().Format(time.DateTime)
}

// Held returns the partition keys whose changes are parked until they are released, from a lease.
func Held(record feed.Record) []string {
	// an outdated note has no keys
	held, _ := notes.ReadHeld(record.Properties[notes.HeldProperty], notes.Place{Position: record.Position.Token})
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

// setAside returns the partition keys whose changes are read again by key, from a lease.
func setAside(record feed.Record) []notes.AsideKey {
	// an outdated note has no keys
	aside, _ := notes.ReadAside(record.Properties[notes.AsideProperty], notes.Place{Position: record.Position.Token})
	return aside.Keys
}

// outage returns since when the owner of a lease sees an outage; zero if there is none. If a lease has no owner of
// ours, the property may be outdated.
func outage(record feed.Record) time.Time {
	if record.Epoch == "" {
		return time.Time{}
	}
	return notes.ReadOutage(record.Properties[notes.OutageProperty])
}
