package notes

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Skipped changes and replayed keys
//
// Both requests are served once, like a reset: the owner gives the lease up in good order, with another note in it, and
// the next owner goes on from there. So an operator can do the same with a lease that nobody owns. ServedProperty names
// the callers, so that the next owner does not carry a request out again if its outcome was not written.
//
// A skip adds names to SkipsProperty. An owner that reads a change with such a name counts the change as done, without
// a call of the handler. A name stays until the position has passed its change. A replay makes a key one that is set
// aside, at an earlier position: see [Aside].

// The properties of a lease of which changes were skipped, or a key was replayed.
const (
	SkipsProperty  = "changefeed.skips"  // a [Skips]
	ServedProperty = "changefeed.served" // the last callers whose request was carried out, newest last
)

// maxServed is how many callers ServedProperty names.
const maxServed = 8

// Skip names a change that is not to be handled. Changes of one item in a transaction are skipped together.
type Skip struct {
	Key    string `json:"key"`
	LSN    int64  `json:"lsn"`
	ID     string `json:"id"`               // of the item
	Letter string `json:"letter,omitempty"` // ID that the letter of the change would have
}

// Skips names the changes of a lease that were skipped and may come again.
type Skips struct {
	Form

	Partition string `json:"partition"` // text of Name: LSNs are valid there
	Changes   []Skip `json:"changes"`
}

// String returns the text of the property, empty if there are no changes.
func (s Skips) String() string {
	if len(s.Changes) == 0 {
		return ""
	}
	return text(s)
}

// ReadSkips reads the text of a property. If LSNs of its partition are not valid any more, the error is [ErrMoved].
func ReadSkips(text string, in Place) (s Skips, err error) {
	if text == "" {
		return s, nil
	}
	if err := decode(text, &s, &s.Form); err != nil {
		return Skips{}, err
	}
	if !in.counts(s.Partition) {
		return Skips{}, ErrMoved
	}
	return s, nil
}

// AddServed returns the text of [ServedProperty] with one more caller.
func AddServed(text, caller string) string {
	all := append(strings.Fields(text), caller)
	return strings.Join(all[max(0, len(all)-maxServed):], " ")
}

// IsServed reports whether the text of [ServedProperty] names a caller.
func IsServed(text, caller string) bool {
	return caller != "" && slices.Contains(strings.Fields(text), caller)
}

// shortHash returns a text that differs for texts that differ, for the token of a record.
func shortHash(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:8])
}
