package feed

import (
	"time"
)

// LeaseStatus is how far an instance has come with a lease, and its present activity there.
type LeaseStatus struct {
	Lease Lease // as acquired, with the position and the attempts that the next write stores
	Read  Position
	// Activity is the step that the work is at, since Since.
	Activity Activity
	Since    time.Time

	Failures int       // how often the handler has received the oldest change that is not done
	Failing  time.Time // when the page of that change was read; zero if all that was read is done or, of keys that are set aside, is to be read again
	Unsaved  int       // changes that are done and not yet stored

	InHand   int // batches that are being handled or parked
	Buffered int // changes that were read and are neither handled nor parked
	Parked   int // changes that were parked since the lease was acquired
	Held     int // partition keys whose changes are parked until they are released
	SetAside int // partition keys that fail or are stuck, whose later changes are read again by key; see FailurePolicy.MaxSetAside
	Redriven int // letters that were handled again since the lease was acquired
	Released int // partition keys that were released since then

	// Errors are the last failures to read, to handle and to store, at most one of each
	// origin, until the same succeeds.
	Errors []*Error
}

// Activity is a step of the work on a lease, as a word for metrics and JSON.
type Activity string

// The activities.
const (
	ActivityFenced   Activity = "fenced" // it waits until its last owner must have stopped
	ActivityReading  Activity = "reading"
	ActivityHandling Activity = "handling" // a batch is in the handler
	ActivityStoring  Activity = "storing"  // the position is being written
	ActivityFailing  Activity = "failing"  // it waits to try again
	ActivityWaiting  Activity = "waiting"  // for changes
	ActivityEnding   Activity = "ending"   // it is given up
)
