package notes

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"time"
)

// How a request is asked, served and answered
//
//  1. The caller writes a record of kind request in the state live, with the properties of a [Request] and a TTL, so that
//     the store removes the record when the caller has died.
//  2. The owner of the key's range serves it. As long as it cannot, the record stays live, and WaitsProperty says why.
//  3. When it has served it, the owner writes the [Outcome] into the record and makes its state retired, on condition of
//     the ETag. A retired request is never served again. Its TTL is [OutcomeTTL].
//  4. The caller reads the outcome and deletes the record. Without the right to delete, the record stays retired. Who asks
//     the same again makes it live again, without the outcome.
//
// A caller whose context ends withdraws its request: it deletes the record or, if an owner has begun with it or without the
// right to delete, makes it retired without an outcome. Owners that follow the store read of that, and not of deletes.

// The actions of a request.
const (
	Retry   = "retry"   // hand a letter to the handler again
	Release = "release" // let a held key go on
)

// Request is what the owner of a key's range is asked for, by whoever writes it as a record among the leases.
type Request struct {
	Action string // another than these is of a newer version
	EPK    string // the effective partition key, by which its owner is found
	Key    string // the partition key
	Letter string // to be handed over again
	Tries  int    // how often it was begun to serve it
}

// The properties of a request.
const (
	actionProperty = "changefeed.action"
	epkProperty    = "changefeed.epk"
	keyProperty    = "changefeed.key"
	letterProperty = "changefeed.letter"
	triesProperty  = "changefeed.tries"

	WaitsProperty  = "changefeed.waits"  // of a live request: why its owner cannot serve it
	UnsureProperty = "changefeed.unsure" // of a live request: the ID of a letter that counts as handled, and may be there still
)

// The properties of an outcome.
const (
	OutcomeProperty = "changefeed.outcome" // [Handled], [Failed] or [Nothing]
	CauseProperty   = "changefeed.cause"   // text of the error, if it failed
	CountProperty   = "changefeed.count"   // how many letters were handled, held ones included
	LeftProperty    = "changefeed.left"    // how many held letters of the key are left; missing when unknown
)

// The results of a request that was served.
const (
	Handled = "handled" // all that was asked for is done
	Failed  = "failed"  // the handler has failed on a letter
	Nothing = "nothing" // there was nothing to do: no such letter, or the key is not held
)

const (
	OutcomeTTL = 15 * time.Minute // of a request that was served, from then on
	MaxCause   = 1 << 10          // bytes of the texts in CauseProperty and WaitsProperty
)

// Token is the token of the record: the same for who asks the same, so that it is served once.
func (q Request) Token() string {
	// Keys may share an effective partition key, and may be longer than an id.
	sum := sha256.Sum256([]byte(q.Key))
	return q.Action + "." + q.EPK + "." + hex.EncodeToString(sum[:8]) + "." + q.Letter
}

// Properties are the properties of the record, beside others that it has.
func (q Request) Properties(others map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, others)
	maps.Copy(all, map[string]string{
		actionProperty: q.Action, epkProperty: plainID(q.EPK), keyProperty: q.Key, letterProperty: plainID(q.Letter),
		triesProperty: PlainNumber(int64(q.Tries)),
	})
	return all
}

// Anew are the properties of a record that asks again: without what was written while the request was served before.
func (q Request) Anew(others map[string]string) map[string]string {
	all := q.Properties(others)
	for _, name := range []string{OutcomeProperty, CauseProperty, CountProperty, LeftProperty, WaitsProperty, UnsureProperty} {
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

// SetWaits returns properties that say why a request is not served, in a copy.
func SetWaits(properties map[string]string, why string) map[string]string {
	return Set(properties, WaitsProperty, clip(why))
}

// Outcome is what became of a request that was served.
type Outcome struct {
	Result string // [Handled], [Failed] or [Nothing]
	Cause  string // text of the error, if it failed; [MaxCause] bytes at most
	Count  int    // letters that were handled, held ones included
	Left   int    // held letters of the key that are left; [UnknownLeft] when unknown
}

// UnknownLeft is the number of held letters that nobody has counted.
const UnknownLeft = -1

// Properties are the properties of the record, beside others that it has.
func (o Outcome) Properties(others map[string]string) map[string]string {
	left := ""
	if o.Left >= 0 {
		left = PlainNumber(int64(o.Left))
	}
	all := maps.Clone(others)
	for name, text := range map[string]string{
		OutcomeProperty: o.Result, CauseProperty: clip(o.Cause), CountProperty: PlainNumber(int64(o.Count)), LeftProperty: left, WaitsProperty: "",
		UnsureProperty: "",
	} {
		all = Set(all, name, text)
	}
	return all
}

// ReadOutcome reads the properties of a record; ok is false when it has no outcome.
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

// clip cuts a text that is too long.
func clip(text string) string {
	const end = "…"
	if len(text) <= MaxCause {
		return text
	}
	return strings.ToValidUTF8(text[:MaxCause-len(end)], "") + end
}
