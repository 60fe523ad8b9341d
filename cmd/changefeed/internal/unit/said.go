package unit

import (
	"cmp"
	"encoding/json"
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

// tried returns how often the handler has received the changes that are not done. The partitions of the source are not
// known here, and nobody compares the LSNs with others.
func tried(record feed.Record) []notes.Run {
	var done notes.Done
	var aside notes.Aside
	at, properties := record.Position.Token, record.Properties
	text := cmp.Or(properties[notes.DoneProperty], properties[notes.FailingProperty])
	if json.Unmarshal([]byte(text), &done) != nil || done.At != at {
		done.Tried = nil
	}
	runs := done.Tried
	if json.Unmarshal([]byte(properties[notes.AsideProperty]), &aside) == nil && aside.At == at {
		for _, key := range aside.Keys {
			runs = append(runs, key.Tried...)
		}
	}
	return runs
}

// outage returns since when the owner of a lease sees an outage; zero if there is none. If a lease has no owner of
// ours, the property may be outdated.
func outage(record feed.Record) time.Time {
	if record.Epoch == "" {
		return time.Time{}
	}
	return notes.ReadOutage(record.Properties[notes.OutageProperty])
}
