package changefeed

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// Status describes a running call of [Processor.Run].
type Status struct {
	Instance string
	Since    time.Time        // when Run was called
	Ready    bool             // the unit's leases exist
	Began    *feed.NewUnit    // where the unit begins, if this call has made its leases; otherwise nil
	Variants feed.Variants    // variants of the live instances; several if they differ, see [Options.Variant]
	Outage   bool             // there is an outage: nothing is parked, and the handler is only probed
	Slow     []feed.SlowBatch // batches that have been in the handler for much longer than usual
	Stopping bool             // the context of Run has ended; the instance finishes the batches in the handler

	View  time.Time  // when the lease store last answered with leases; zero before
	Round feed.Round // the last round
	At    time.Time  // when that round was over; zero before the first

	// Leases are the leases of this instance, sorted by their ranges.
	Leases []feed.LeaseStatus

	// Broken are the invalid documents among the leases, with the reason. This instance leaves them alone: no instance
	// works on their ranges until an operator repairs or deletes them, unless another lease has the range.
	Broken []*feed.Error

	// Errors are the last reports that concern no single lease, at most one report of each origin, since the last round
	// began, or since Run was called.
	Errors []*feed.Error
}

// Status describes each running call of Run, in the order of their beginnings. Status makes no request, waits for
// nothing and delays nothing, so a health check may call it often.
func (p *Processor) Status() []Status {
	var all []Status
	for _, r := range p.runs.Values() {
		all = append(all, r.describe())
	}
	slices.SortFunc(all, func(a, b Status) int { return a.Since.Compare(b.Since) })
	return all
}

// describe describes a run.
func (r *run) describe() Status {
	in := r.in
	s := Status{
		Instance: in.Me.Instance, Since: in.Since, Ready: r.unit.IsReady(), Began: r.unit.Began(),
		Variants: r.unit.Variants(), Outage: in.Breaker.IsOpen(), Slow: in.Slow.Values(), View: in.View.LastAnswer(),
	}
	var held []*instance.Held
	held, s.Stopping = in.Claims.All()
	for _, h := range held {
		s.Leases = append(s.Leases, h.Status())
	}
	slices.SortFunc(s.Leases, func(a, b feed.LeaseStatus) int {
		return cmp.Compare(a.Lease.Range.Min, b.Lease.Range.Min)
	})
	s.Round, s.At = r.unit.LastRound()
	s.Errors = in.Troubles()
	_, broken := in.View.Placed()
	for _, lease := range broken {
		s.Broken = append(s.Broken, &feed.Error{Origin: feed.OriginLeaseStore, Lease: lease.Token, Err: lease.Err})
	}
	return s
}
