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
	Since    time.Time     // when Run was called
	Ready    bool          // the unit's leases exist
	Began    *feed.NewUnit // where the unit begins, if this call has made its leases; else nil
	Outage   bool          // there is an outage: nothing is parked, and the handler is only probed
	Stopping bool          // its context has ended; it finishes the batches in hand

	View  time.Time  // when the lease store last answered with leases; zero before
	Round feed.Round // the last round
	At    time.Time  // when that round was over; zero before the first

	// Leases are those that this instance works on, by their ranges.
	Leases []feed.LeaseStatus

	// Broken are the documents among the leases that this instance leaves alone, and why: nobody works
	// on their ranges before somebody mends or deletes them, unless another lease has the range.
	Broken []*feed.Error

	// Errors are the last reports that concern no single lease, at most one of each origin,
	// since the last round began, or since Run was called.
	Errors []*feed.Error
}

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
	slices.SortFunc(s.Leases, func(a, b feed.LeaseStatus) int { return cmp.Compare(a.Lease.Range.Min, b.Lease.Range.Min) })
	s.Round, s.At = r.last.Get()
	s.Errors = r.troubles.Values()
	_, broken := r.view.placed()
	for _, lease := range broken {
		s.Broken = append(s.Broken, &feed.Error{Origin: feed.OriginLeaseStore, Lease: lease.Token, Err: lease.Err})
	}
	return s
}

func (w *worker) status() feed.LeaseStatus {
	s := feed.LeaseStatus{Lease: w.lease.Lease()}
	s.Activity, s.Since = w.activity.Get()
	s.Errors = w.troubles.Values()
	w.dispatcher.describe(&s)
	return s
}
