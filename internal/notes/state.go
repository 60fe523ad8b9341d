package notes

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Run says how often the handler has received the unsettled changes of some LSNs.
type Run struct {
	Key      string `json:"key,omitempty"` // only changes of this key; empty is all keys
	From     int64  `json:"from"`          // LSNs, both included
	To       int64  `json:"to"`
	Calls    int    `json:"calls"`
	Failures int    `json:"failures,omitempty"` // failed calls that count against Options.MaxAttempts
	Failing  int64  `json:"failing,omitempty"`  // since when, in seconds since 1970; 0 if none has failed

	// Letters are the IDs of the changes' letters, if other changes of their transaction were tried differently; empty
	// is all changes.
	Letters []string `json:"letters,omitempty"`
}

// Has reports whether the run contains a change; letter returns the ID of the change's letter.
func (r Run) Has(key string, lsn int64, letter func() string) bool {
	return r.From <= lsn && lsn <= r.To && (r.Key == "" || r.Key == key) && (len(r.Letters) == 0 ||
		slices.Contains(r.Letters, letter()))
}

// IsLike reports whether the changes of two runs were received and have failed equally often, and since the same time.
func (r Run) IsLike(o Run) bool {
	return r.Key == o.Key && r.Calls == o.Calls && r.Failures == o.Failures && r.Failing == o.Failing
}

// FailingSince returns since when the changes fail; zero if they do not.
func (r Run) FailingSince() time.Time {
	if r.Failing == 0 {
		return time.Time{}
	}
	return time.Unix(r.Failing, 0)
}

// HeldKey is a held key.
type HeldKey struct {
	Key   string
	Since int64 // LSN of the change for which the key is held; 0 is unknown
}

// AsideKey is a key that is set aside: changes of the key from an LSN on are unsettled, although the position may have
// passed them.
type AsideKey struct {
	Key  string `json:"key"`
	From string `json:"from"` // token of a position before the change
	// start of this position: empty is that of the lease's position, [NoStart] is none
	Start string `json:"start,omitempty"`
	LSN   int64  `json:"lsn"` // of the first unsettled change
	// LSN of the last change of the key that the feed has delivered; 0 is unknown
	Last    int64 `json:"last,omitempty"`
	Covered int64 `json:"covered,omitempty"` // LSN of the last change before the lease's position; 0 is unknown
	Tried   []Run `json:"tried,omitempty"`   // the changes that the handler has received
	Passed  bool  `json:"passed,omitempty"`  // the position is after the change
}

// NoStart is the Start of an [AsideKey] whose position has none.
const NoStart = "none"

// Recall names a letter that must be handed over again when the handler works again.
type Recall struct {
	Key    string `json:"key"`
	Letter string `json:"letter"`
	// the handler has the letter: if the owner ends unexpectedly, this letter may be the cause
	InHand bool `json:"in_hand,omitempty"`
	// the handler is done with the letter: if the letter is gone, it no longer holds the key
	Done bool `json:"done,omitempty"`
	// the outage was detected: the letter is handed over again in any case, and otherwise only if an outage is detected
	Due bool `json:"due,omitempty"`
}

// Outage returns the text of the property of a lease whose owner sees an outage since a time: seconds since 1970 after
// a word, so that no program takes the text for a time or a number.
func Outage(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return "since " + strconv.FormatInt(since.Unix(), 10)
}

// ReadOutage reads the text of the property; the time is zero if there is no outage.
func ReadOutage(text string) time.Time {
	seconds, err := strconv.ParseInt(strings.TrimPrefix(text, "since "), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
