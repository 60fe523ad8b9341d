package notes

import (
	"maps"
	"strings"
	"time"
)

// The properties that are a number, a word or a list. Other kinds of processors do not know the properties of a lease
// and keep them.
const (
	// number of the owner: higher than those of all earlier owners of the range
	TermProperty = "changefeed.term"
	// how many splits led to a lease; only leases made by this processor have this property
	GenerationProperty = "changefeed.generation"
	PartsProperty      = "changefeed.parts" // the ranges of the children of a lease that is splitting
	GivenProperty      = "changefeed.given" // its term when a lease was handed over, until the next owner begins
	DueProperty        = "changefeed.due"   // a [Due] of a lease that was made under the lock
	MakerProperty      = "changefeed.maker" // who had the lock then: a name for that single time

	MostProperty    = "changefeed.most"    // of a host: how many leases it may own
	WeightProperty  = "changefeed.weight"  // of a host: its share of the leases, compared with those of the others
	LeastProperty   = "changefeed.least"   // of a host: how many leases the unit should have at least
	VariantProperty = "changefeed.variant" // of a host: what it runs, see package variants
	SlowProperty    = "changefeed.slow"    // of a host: batches that are in the handler for too long

	NeverJoinProperty = "changefeed.neverjoin" // of a host: "yes" if it never joins leases

	// how loaded a lease is: changes of a minute, and changes behind the feed
	LoadProperty   = "changefeed.load"
	ByLoadProperty = "changefeed.byload" // of a host: "yes" if it shares the leases by load

	// RepairedProperty of the marker: "yes" if leases that had an owner existed when the marker was made, because
	// somebody had deleted the previous marker.
	RepairedProperty = "repaired"

	// MakersProperty of the marker: the makers of the leases that had no owner when the marker was made.
	MakersProperty = "makers"

	OptionProperty = "start"  // of the marker: Options.Start as given
	OriginProperty = "origin" // of the marker: where the unit began, as a start with the same meaning later
)

// Set returns a copy of the properties with a single property changed; an empty text removes the property.
func Set(properties map[string]string, name, text string) map[string]string {
	changed := map[string]string{}
	maps.Copy(changed, properties)
	if changed[name] = text; text == "" {
		delete(changed, name)
	}
	return changed
}

// Number reads a property that counts. Number returns 0 if the property is missing, or is no number above 0.
func Number(properties map[string]string, name string) int64 {
	n, _ := ParseNumber(properties[name])
	return max(n, 0)
}

// Due says until when the create of a lease had to arrive, by the store's clock, and when the maker sent the create, by
// the maker's clock. The property is necessary because another kind of processor that has owned the lease keeps the
// property, but not the time of the last write.
type Due struct{ By, Sent time.Time }

// String returns the text of the property.
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
