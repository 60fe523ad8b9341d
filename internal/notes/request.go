package notes

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"time"
)

// How a request is written, served and answered
//
//   1. The caller writes a record of kind request in the state live, with the properties of a [Request] and a TTL, so
//     that the store removes the record if the caller has died.
//   2. The owner of the key's range serves the request. Until the owner can serve the request, the record stays live,
//     and WaitsProperty says why.
//   3. When the owner has served the request, it writes the [Outcome] into the record and sets the state to retired,
//     conditional on the ETag. A retired request is never served again. The TTL is then [OutcomeTTL].
//   4. The caller reads the outcome and deletes the record. If the caller lacks the right to delete, the record stays
//     retired. A caller with the same request makes the record live again, without the outcome.
//
// If a caller's context ends, the caller withdraws the request by deleting the record. If an owner has begun with the
// request, or the caller lacks the right to delete, the caller makes the record retired without an outcome. Owners that
// follow the store read this write, but would not notice a delete.

// An owner of an older version leaves a request alone whose action it does not know: it may misread the properties, so
// it adds UnknownProperty and WaitsProperty, once, and changes nothing else. A caller whose time ends then says so.

// The actions of a request.
const (
	Retry   = "retry"   // pass a letter to the handler again
	Release = "release" // let a held key go on
)

// Request is a request to the owner of a key's range, which a caller writes as a record among the leases.
type Request struct {
	Action string // any other action belongs to a newer version
	EPK    string // the effective partition key, which determines the owner
	Key    string // the partition key
	Letter string // the letter to hand over again
	Tries  int    // how often an owner has begun to serve the request
}

// The properties of a request.
const (
	actionProperty = "changefeed.action"
	epkProperty    = "changefeed.epk"
	keyProperty    = "changefeed.key"
	letterProperty = "changefeed.letter"
	triesProperty  = "changefeed.tries"

	CallerProperty = "changefeed.caller" // who has written the request; a repeated request has another caller
	// epoch of the instance that has begun last; it stays if the request is repeated
	BegunProperty = "changefeed.begun"
	WaitsProperty = "changefeed.waits" // of a live request: why the owner cannot serve it
	// of a live request: the ID of a letter which counts as handled, but may still exist
	UnsureProperty = "changefeed.unsure"
	// of a live request: "yes" if the owner does not know the action, which belongs to a newer version
	UnknownProperty = "changefeed.unknown"
)

// The properties of an outcome.
const (
	OutcomeProperty = "changefeed.outcome" // [Handled], [Failed] or [Nothing]
	CauseProperty   = "changefeed.cause"   // text of the error, if it failed
	CountProperty   = "changefeed.count"   // how many letters were handled, including held letters
	LeftProperty    = "changefeed.left"    // how many held letters of the key remain; missing if unknown
)

// The results of a served request.
const (
	Handled = "handled" // the whole request is done
	Failed  = "failed"  // the handler has failed on a letter
	Nothing = "nothing" // no letter was handled: the letter is missing, or the key is not held
)

const (
	OutcomeTTL = 15 * time.Minute // of a served request, from then on
	MaxCause   = 1 << 10          // bytes of the texts in CauseProperty and WaitsProperty
)

// Token returns the token of the record: the same for equal requests, so that they are served once.
func (q Request) Token() string {
	// Keys may share an effective partition key, and may be longer than an id.
	sum := sha256.Sum256([]byte(q.Key))
	return q.Action + "." + q.EPK + "." + hex.EncodeToString(sum[:8]) + "." + q.Letter
}

// Properties returns the properties of the record, added to its other properties.
func (q Request) Properties(others map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, others)
	maps.Copy(all, map[string]string{
		actionProperty: q.Action, epkProperty: plainID(q.EPK), keyProperty: q.Key, letterProperty: plainID(q.Letter),
		triesProperty: PlainNumber(int64(q.Tries)),
	})
	return all
}

// HasBegun reports whether an instance has begun with the request, or with the request that this one repeats: the
// instance may still serve it, and follows writes only.
func HasBegun(properties map[string]string) bool {
	return properties[BegunProperty] != "" || ReadRequest(properties).Tries > 0
}

// Anew returns the properties of a record that repeats a request: without the properties from when the request was
// served before.
func (q Request) Anew(others map[string]string) map[string]string {
	all := q.Properties(others)
	for _, name := range []string{
		OutcomeProperty, CauseProperty, CountProperty, LeftProperty, WaitsProperty,
		UnsureProperty, UnknownProperty,
	} {
		delete(all, name)
	}
	return all
}

// ReadRequest reads the properties of a record.
func ReadRequest(properties map[string]string) Request {
	return Request{
		Action: properties[actionProperty], EPK: idOf(properties[epkProperty]), Key: properties[keyProperty],
		Letter: idOf(properties[letterProperty]), Tries: int(Number(properties, triesProperty)),
	}
}

// SetUnknown returns a copy of the properties that says that the owner does not know the action, and why.
func SetUnknown(properties map[string]string, why string) map[string]string {
	return Set(SetWaits(properties, why), UnknownProperty, "yes")
}

// SetWaits returns a copy of the properties that says why a request is not served.
func SetWaits(properties map[string]string, why string) map[string]string {
	return Set(properties, WaitsProperty, clip(why))
}

// Outcome is the outcome of a served request.
type Outcome struct {
	Result string // [Handled], [Failed] or [Nothing]
	Cause  string // text of the error, if it failed; [MaxCause] bytes at most
	Count  int    // handled letters, including held letters
	Left   int    // remaining held letters of the key; [UnknownLeft] if unknown
}

// UnknownLeft is the number of held letters if they were not counted.
const UnknownLeft = -1

// Properties returns the properties of the record, added to its other properties.
func (o Outcome) Properties(others map[string]string) map[string]string {
	left := ""
	if o.Left >= 0 {
		left = PlainNumber(int64(o.Left))
	}
	all := maps.Clone(others)
	for name, text := range map[string]string{
		OutcomeProperty: o.Result, CauseProperty: clip(o.Cause), CountProperty: PlainNumber(int64(o.Count)),
		LeftProperty: left, WaitsProperty: "",
		UnsureProperty: "", UnknownProperty: "",
	} {
		all = Set(all, name, text)
	}
	return all
}

// ReadOutcome reads the properties of a record; ok is false if there is no outcome.
func ReadOutcome(properties map[string]string) (o Outcome, ok bool) {
	left, err := ParseNumber(properties[LeftProperty])
	if err != nil || left < 0 {
		left = UnknownLeft
	}
	o = Outcome{
		Result: properties[OutcomeProperty], Cause: properties[CauseProperty],
		Count: int(Number(properties, CountProperty)), Left: int(left),
	}
	return o, o.Result != ""
}

// clip shortens a long text.
func clip(text string) string { return clipTo(text, MaxCause) }

// clipTo shortens a text with more than a number of bytes.
func clipTo(text string, most int) string {
	const end = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(end)], "") + end
}
