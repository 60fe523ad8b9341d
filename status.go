package changefeed

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Status describes a call of [Processor.Run] that is under way.
type Status struct {
	Instance string
	Since    time.Time // when Run was called
	Ready    bool      // the unit's leases exist
	Began    *NewUnit  // where the unit begins, if this call has made its leases; else nil
	Outage   bool      // there is an outage: nothing is parked, and the handler is only probed
	Stopping bool      // its context has ended; it finishes the batches in hand

	View  time.Time // when the lease store last answered with leases; zero before
	Round Round     // the last round
	At    time.Time // when that round was over; zero before the first

	// Leases are those that this instance works on, by their ranges.
	Leases []LeaseStatus

	// Broken are the documents among the leases that this instance leaves alone, and why: nobody works
	// on their ranges before somebody mends or deletes them, unless another lease has the range.
	Broken []*Error

	// Errors are the last reports that concern no single lease, at most one of each origin,
	// since the last round began, or since Run was called.
	Errors []*Error
}

// LeaseStatus is how far an instance has come with a lease, and its present activity there.
type LeaseStatus struct {
	Lease feed.Lease // as acquired, with the position and the attempts that the next write stores
	Read  feed.Position
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
	SetAside int // partition keys that fail or are stuck, whose later changes are read again by key; see [Options.MaxSetAside]
	Redriven int // letters that were handled again since the lease was acquired
	Released int // partition keys that were released since then

	// Errors are the last failures to read, to handle and to store, at most one of each
	// origin, until the same succeeds.
	Errors []*Error
}

// Activity is a step of the work on a lease.
type Activity string

// The activities.
const (
	ActivityFenced   Activity = "waits until its last owner must have stopped"
	ActivityReading  Activity = "reads"
	ActivityHandling Activity = "is in the handler"
	ActivityStoring  Activity = "is stored"
	ActivityFailing  Activity = "waits to try again"
	ActivityWaiting  Activity = "waits for changes"
	ActivityEnding   Activity = "is given up"
)

// Status describes each call of Run that is under way, in the order of their beginnings. It
// asks nobody, waits for nothing and holds nothing up, so a health check may call it often.
func (p *Processor) Status() []Status {
	var all []Status
	for _, r := range p.runs.Values() {
		all = append(all, r.status())
	}
	slices.SortFunc(all, func(a, b Status) int { return a.Since.Compare(b.Since) })
	return all
}

func (r *run) status() Status {
	s := Status{Instance: r.me.Instance, Since: r.phase, Ready: r.ready.Load(), Began: r.began.Load(), Outage: r.breaker.IsOpen(), View: r.view.LastAnswer()}
	var workers []*worker
	workers, s.Stopping = r.claims.all()
	for _, w := range workers {
		s.Leases = append(s.Leases, w.status())
	}
	slices.SortFunc(s.Leases, func(a, b LeaseStatus) int { return cmp.Compare(a.Lease.Range.Min, b.Lease.Range.Min) })
	s.Round, s.At = r.last.Get()
	s.Errors = r.troubles.Values()
	_, broken := r.view.placed()
	for _, lease := range broken {
		s.Broken = append(s.Broken, &Error{Origin: OriginLeaseStore, Lease: lease.Token, Err: lease.Err})
	}
	return s
}

func (w *worker) status() LeaseStatus {
	s := LeaseStatus{Lease: w.lease.Lease()}
	s.Activity, s.Since = w.activity.Get()
	s.Errors = w.troubles.Values()
	w.dispatcher.describe(&s)
	return s
}
