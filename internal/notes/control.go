package notes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Requests about whole ranges
//
// A pause is a lasting request: while its record is live, nothing of its range is delivered. An owner gives up each
// lease overlapping the range, and marks the lease with PausedProperty. Nobody takes a lease with the mark, because a
// taker may not have read the request, but its write is conditional on the ETag of the record with the mark. To resume,
// the caller makes the request retired, and then removes the marks. A mark can be left: the caller dies between the
// two, or an instance gives a lease up for a pause over by then. Instances remove marks without a request. A new pause
// writes old marks anew, so that the write of an instance that has seen an old one is refused.
//
// A reset is served once, like a request about a key. The owner gives the lease up with the new position. ResetProperty
// names the caller then, so that the next owner does not carry the reset out again if the outcome was not written. A
// request for another position replaces one not served yet.

// The actions of a request about a range.
const (
	Pause       = "pause"  // deliver nothing of the range
	Reset       = "reset"  // continue a lease at another position
	SkipChanges = "skip"   // count some changes as done
	Replay      = "replay" // deliver the changes of a key again
)

// The properties of a paused or reset lease.
const (
	PausedProperty = "changefeed.paused" // since when, in the form of [Outage]
	ResetProperty  = "changefeed.reset"  // the text of a [LastReset]
)

// The properties of a request about a range.
const (
	rangeProperty   = "changefeed.range"
	toProperty      = "changefeed.to"
	onProperty      = "changefeed.on"
	byProperty      = "changefeed.by"
	whyProperty     = "changefeed.why"
	changesProperty = "changefeed.changes"
	// the key of a replay, which is no request about a key as a retry is
	replayedProperty = "changefeed.replayed"
)

// Control is a request about the leases of a range.
type Control struct {
	Action   string // [Pause], [Reset], [SkipChanges] or [Replay]
	Min, Max string // effective partition keys; of all but a pause those of a single lease
	To       Target // of a reset or a replay
	On       int64  // of a reset: see [LastReset]
	Key      string // of a replay
	Changes  []Skip // of a skip
	By       string // who asks
	Why      string // why
}

// Target is a position in a request.
type Target struct {
	Token string `json:"token,omitempty"`
	Start string `json:"start,omitempty"` // in the text of a start; used if there is no token
}

// LastReset is the last reset of a lease, or of the lease it came from by a split.
type LastReset struct {
	// On orders the resets of a unit: a later one has a higher number, and all leases reset by one call have the same,
	// unless another call resets some of them meanwhile. On is milliseconds since 1970 by the store's clock, or more if
	// the clock was set back. 0 is never.
	On     int64
	Caller string // of the request; empty if the caller has written the lease
}

// String returns the text of [ResetProperty].
func (r LastReset) String() string {
	if r.On == 0 && r.Caller == "" {
		return ""
	}
	return strings.TrimSpace(PlainNumber(r.On) + " " + r.Caller)
}

// ReadLastReset reads the text of [ResetProperty].
func ReadLastReset(text string) LastReset {
	number, caller, _ := strings.Cut(text, " ")
	on, _ := ParseNumber(number)
	return LastReset{On: max(on, 0), Caller: caller}
}

// IsControl reports whether a request is about a range.
func IsControl(properties map[string]string) bool {
	switch properties[actionProperty] {
	case Pause, Reset, SkipChanges, Replay:
		return true
	}
	return false
}

// Token returns the token of the record: the same for requests about one range, so they exclude each other. Skips of
// other changes and replays of other keys do not.
func (c Control) Token() string {
	token := c.Action + "." + c.Min + "-" + c.Max
	switch c.Action {
	case SkipChanges:
		return token + "." + shortHash(text(c.Changes))
	case Replay:
		return token + "." + shortHash(c.Key)
	}
	return token
}

// Properties returns the properties of the record, added to its other properties.
func (c Control) Properties(others map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, others)
	all[actionProperty], all[rangeProperty] = c.Action, plainID(c.Min+"-"+c.Max)
	for name, text := range map[string]string{byProperty: c.By, whyProperty: c.Why} {
		all = Set(all, name, plainText(text))
	}
	if c.To != (Target{}) {
		all[toProperty] = text(c.To)
	}
	if c.On > 0 {
		all[onProperty] = PlainNumber(c.On)
	}
	if c.Key != "" {
		all[replayedProperty] = c.Key
	}
	if len(c.Changes) > 0 {
		all[changesProperty] = text(c.Changes)
	}
	return all
}

// ReadControl reads the properties of a record.
func ReadControl(properties map[string]string) (c Control, err error) {
	c = Control{
		Action: properties[actionProperty], By: textOf(properties[byProperty]), Why: textOf(properties[whyProperty]),
		On: Number(properties, onProperty), Key: properties[replayedProperty],
	}
	keys := idOf(properties[rangeProperty])
	var ok bool
	if c.Min, c.Max, ok = strings.Cut(keys, "-"); !ok || c.Max == "" {
		return c, fmt.Errorf("range of the request is %q: want min-max", keys)
	}
	if to := properties[toProperty]; to != "" {
		if err := json.Unmarshal([]byte(to), &c.To); err != nil {
			return c, fmt.Errorf("position of the request is %q: %w", to, err)
		}
	}
	if changes := properties[changesProperty]; changes != "" {
		if err := json.Unmarshal([]byte(changes), &c.Changes); err != nil {
			return c, fmt.Errorf("changes of the request are %q: %w", clip(changes), err)
		}
	}
	return c, nil
}

// Asks reports whether a record asks for the same as c, whoever asks, and why.
func (c Control) Asks(properties map[string]string) bool {
	old, err := ReadControl(properties)
	return err == nil && old.Action == c.Action && old.Min == c.Min && old.Max == c.Max && old.To == c.To &&
		old.Key == c.Key && slices.Equal(old.Changes, c.Changes)
}

// plainText returns a free text in the stored form: after a word, so that no program takes the text for a time or a
// number.
func plainText(free string) string {
	if free == "" {
		return ""
	}
	return textPrefix + clip(free)
}

// textPrefix precedes a free text.
const textPrefix = "text "

// textOf returns the argument of plainText from the result.
func textOf(stored string) string { return strings.TrimPrefix(stored, textPrefix) }

// Paused returns the text of [PausedProperty] for a lease paused since a time.
func Paused(since time.Time) string { return "since " + strconv.FormatInt(since.Unix(), 10) }

// PausedSince reads the text of [PausedProperty].
func PausedSince(text string) time.Time { return ReadOutage(text) }

// Anew returns the properties of a record repeating a request: without those of an earlier outcome.
func (c Control) Anew(others map[string]string) map[string]string {
	all := c.Properties(others)
	for _, name := range []string{
		OutcomeProperty, CauseProperty, CountProperty, LeftProperty, WaitsProperty, UnknownProperty,
	} {
		delete(all, name)
	}
	return all
}
