package notes

import (
	"strings"
	"time"
)

// JoiningProperty of a splitting lease is the text of a [Joining].
const JoiningProperty = "changefeed.joining"

// Joining says that a lease is about to be joined with a neighbouring lease.
type Joining struct {
	Into  string    // the range of both leases
	Until time.Time // when, by the store's clock, the lease of both must exist: if created later, it counts as deleted
}

// String returns the text of the property.
func (j Joining) String() string { return j.Into + " " + j.Until.UTC().Format(time.RFC3339Nano) }

// ReadJoining reads the text of the property.
func ReadJoining(text string) (j Joining, ok bool) {
	into, until, _ := strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339Nano, until)
	return Joining{into, at}, err == nil
}
