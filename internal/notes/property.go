package notes

import (
	"maps"
	"strings"
	"time"
)

// The properties that are a number, a word or a list. Those of a lease are kept by other kinds of
// processors, which do not know them.
const (
	TermProperty       = "changefeed.term"       // number of the owner: higher than those of all owners that the range had before
	GenerationProperty = "changefeed.generation" // how many splits led to a lease; only those that this processor has made have one
	PartsProperty      = "changefeed.parts"      // the ranges of the children of a lease that is splitting
	DueProperty        = "changefeed.due"        // a [Due] of a lease that was made under the lock
	MakerProperty      = "changefeed.maker"      // who had the lock then: a name for that one time

	MostProperty = "changefeed.most" // of a host: how many leases it may have

	// RepairedProperty of the marker: "yes" if leases at work were there when it was made, because somebody had deleted the
	// one before.
	RepairedProperty = "repaired"

	// MakersProperty of the marker: the makers of its leases that nobody had taken when it was made, by their names.
	MakersProperty = "makers"

	OptionProperty = "start"  // of the marker: Options.Start as it was given
	OriginProperty = "origin" // of the marker: where the unit began, as a start that means the same later
)

// Set returns properties with one of them changed, in a copy; an empty text removes it.
func Set(properties map[string]string, name, text string) map[string]string {
	changed := map[string]string{}
	maps.Copy(changed, properties)
	if changed[name] = text; text == "" {
		delete(changed, name)
	}
	return changed
}

// Number reads a property that counts. It is 0 when it is missing, or no number above that.
func Number(properties map[string]string, name string) int64 {
	n, _ := ParseNumber(properties[name])
	return max(n, 0)
}

// Due is until when the create of a lease had to arrive, by the store's clock, and when it was
// sent, by its maker's: a processor of another kind that has had the lease keeps the property, but
// not the time of the last write.
type Due struct{ By, Sent time.Time }

// String is the text of the property.
func (d Due) String() string {
	return d.By.UTC().Format(time.RFC3339Nano) + " " + d.Sent.UTC().Format(time.RFC3339Nano)
}

// ReadDue reads the text of the property.
func ReadDue(text string) (d Due, ok bool) {
	by, sent, _ := strings.Cut(text, " ")
	var err, sentErr error
	d.By, err = time.Parse(time.RFC3339Nano, by)
	d.Sent, sentErr = time.Parse(time.RFC3339Nano, sent)
	return d, err == nil && sentErr == nil
}
