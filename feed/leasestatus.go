package feed

import (
	"time"
)

// LeaseStatus describes the progress of an instance with a lease, and its present activity.
type LeaseStatus struct {
	Lease Lease // as acquired, with the position and the attempts that the next write stores
	Read  Position
	// Activity is the present step of the work, which began at Since.
	Activity Activity
	Since    time.Time

	Failures int // how often the handler has received the oldest unfinished change
	// when the page of that change was read; zero if only changes of keys set aside are unfinished, or none
	Failing time.Time
	Unsaved int // changes that are done and not yet stored

	// Pending is how many changes are not handled, as the last read has told, which ended at Seen; Seen is zero before
	// the first read. These are the Buffered changes, and the distance in LSNs from Read to the end of the feed: the
	// distance counts transactions, of the whole partition. Exact says that no distance is in Pending, and that no key
	// is set aside, whose changes Pending does not count. changefeed.Processor.WatchLag counts more exactly, and knows
	// how long the oldest change has waited, but sends requests.
	Pending int64
	Exact   bool
	Seen    time.Time

	InHand   int // batches in the handler, or being parked
	Buffered int // read changes that are neither handled nor parked
	Parked   int // changes parked since the lease was acquired
	Held     int // partition keys whose changes are parked until they are released
	// partition keys that fail or hang, whose later changes are read again by key; see FailurePolicy.MaxSetAside
	SetAside int
	Redriven int // letters handled again since the lease was acquired
	Released int // partition keys released since then

	// Errors are the last failures to read, to handle and to store, at most one of each origin, until the same
	// operation succeeds.
	Errors []*Error
}

// Activity is a step of the work on a lease, as a word for metrics and JSON.
type Activity string

// The activities.
const (
	ActivityFenced   Activity = "fenced" // the instance waits until the last owner must have stopped
	ActivityReading  Activity = "reading"
	ActivityHandling Activity = "handling" // a batch is in the handler
	ActivityStoring  Activity = "storing"  // the position is being written
	ActivityFailing  Activity = "failing"  // the instance waits before a retry
	ActivityWaiting  Activity = "waiting"  // for changes
	ActivityEnding   Activity = "ending"   // the instance gives the lease up
)
