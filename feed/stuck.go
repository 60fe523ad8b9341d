package feed

// Stuck is a reason why nobody handles the pending changes of a lease, as a word for metrics and JSON.
type Stuck string

// The reasons. A lease can have several.
const (
	StuckStopped Stuck = "stopped"  // the lease has no owner, and no instance of the unit runs, also for a paused lease
	StuckFree    Stuck = "free"     // the lease has no owner, though instances run
	StuckExpired Stuck = "expired"  // the owner has been silent for too long
	StuckPaused  Stuck = "paused"   // an operator has paused the lease, see package admin
	StuckOutage  Stuck = "outage"   // a system that the handler needs is away, see [ErrOutage]
	StuckFailing Stuck = "failing"  // the handler has failed with the first change after the position
	StuckStill   Stuck = "still"    // the oldest pending change has been the same for five minutes
	StuckAhead   Stuck = "ahead"    // the position lies after the end of the feed, see [ErrAhead]
	StuckTooOld  Stuck = "too-old"  // the feed no longer has the next change, see [ErrTooOld]
	StuckNoStart Stuck = "no-start" // the lease does not store a start, see [ErrNoStart]
	StuckBroken  Stuck = "broken"   // the document is no valid lease, see [ErrBadLease]
)
