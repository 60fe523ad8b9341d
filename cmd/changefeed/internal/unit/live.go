package unit

import (
	"context"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
)

// Live answers the questions of a program about the unit of the program's processor. Questions may come before the
// processor runs: they wait.
type Live struct {
	begun    chan struct{} // closed when the rest is set
	unit     *admin.Unit
	caughtUp func(context.Context) error
}

// NewLive returns a Live whose processor does not run yet.
func NewLive() *Live { return &Live{begun: make(chan struct{})} }

// Begin names the unit. Call Begin once.
func (l *Live) Begin(source feed.Source, leases feed.LeaseStore, p *changefeed.Processor) {
	l.unit, l.caughtUp = admin.Open(source, leases, admin.Options{}), p.CaughtUp
	close(l.begun)
}

// await waits until the processor runs.
func (l *Live) await(ctx context.Context) error {
	select {
	case <-l.begun:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Status lists the leases of the unit, and measures how far behind each is.
func (l *Live) Status(ctx context.Context) (contract.UnitStatus, error) {
	if err := l.await(ctx); err != nil {
		return contract.UnitStatus{}, err
	}
	listing, err := l.unit.List(ctx)
	if err != nil {
		return contract.UnitStatus{}, err
	}
	return statusOf(listing), nil
}

// CaughtUp waits until the unit has handled everything that was written before the call.
func (l *Live) CaughtUp(ctx context.Context) error {
	if err := l.await(ctx); err != nil {
		return err
	}
	return l.caughtUp(ctx)
}

// statusOf returns a listing in the form for programs: the values are those of `changefeed leases -o json`.
func statusOf(l *admin.Listing) contract.UnitStatus {
	total := l.Estimate.Total
	s := contract.UnitStatus{
		Stuck: wordsOf(total.Stuck), Watermark: knownTime(total.Watermark), Leases: []contract.UnitLease{},
	}
	for _, i := range l.Instances {
		if i.Presence == admin.Running {
			s.Instances++
		}
	}
	switch {
	case total.Known():
		s.Pending, s.Exact, s.Shared = &total.Pending, total.Exact, total.Shared
		if age, known := total.Age(l.Estimate.At); known {
			s.Oldest = new(age.Seconds())
		}
	case total.Err != nil:
		s.Unknown = new(total.Err.Error())
	}
	for _, lease := range l.Leases {
		s.Leases = append(s.Leases, unitLeaseOf(leaseRow(lease, l.At)))
	}
	return s
}

// unitLeaseOf returns the row of a lease in the form for programs.
func unitLeaseOf(r Row) contract.UnitLease {
	return contract.UnitLease{
		Lease: r.Lease, Range: known(r.Range), Owner: known(r.Owner), Epoch: known(r.Epoch),
		Position: known(r.Position), State: r.State,
		Attempts: r.count(r.Attempts), Held: r.count(r.Held), SetAside: r.count(r.SetAside),
		Lag: r.Lag, Exact: r.Exact, Shared: r.Shared, Waited: r.Waited, Stuck: wordsOf(r.Stuck),
		Watermark: knownTime(r.Watermark), Notes: append([]string{}, r.Notes...),
	}
}

// wordsOf returns reasons as words, never nil.
func wordsOf(stuck []feed.Stuck) []string {
	words := []string{}
	for _, s := range stuck {
		words = append(words, string(s))
	}
	return words
}

// knownTime returns a time, or nil if it is zero.
func knownTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return new(at.UTC())
}
