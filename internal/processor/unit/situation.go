package unit

import (
	"errors"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// situation is the view at the beginning of a round, and the resulting plan.
type situation struct {
	leases []feed.Record   // valid leases, with different ranges
	alive  []balance.Owner // instances that show presence, including this one
	most   map[balance.Owner]int
	plan   balance.Plan // contains indexes of leases
}

// pick returns the leases with some indexes.
func (s situation) pick(indexes []int) []feed.Record {
	picked := make([]feed.Record, len(indexes))
	for i, of := range indexes {
		picked[i] = s.leases[of]
	}
	return picked
}

// situation reads the view and plans. Invalid documents are reported once and left alone.
func (b *balancer) situation() situation {
	good, bad := b.in.View.Placed()
	for _, lease := range bad {
		// overlaps may be temporary: see checkCover
		if !b.reported[lease.ID] && !errors.Is(lease.Err, feed.ErrOverlap) {
			b.reported[lease.ID] = true
			b.in.Raise(&feed.Error{Origin: feed.OriginLeaseStore, Lease: lease.Token, Err: lease.Err})
		}
	}
	b.planned = b.in.View.Now()
	// This instance counts as alive even if the presence record is not written or listed yet.
	s := situation{leases: good, alive: []balance.Owner{b.in.Me}, most: map[balance.Owner]int{}}
	if b.in.Options.MaxLeases > 0 {
		s.most[b.in.Me] = b.in.Options.MaxLeases
	}
	for _, host := range b.in.View.Kind(feed.KindHost) {
		alive := host.Err == nil && host.State == feed.StateLive &&
			b.planned.Sub(host.Updated) <= host.Expiration+records.ClockGrain
		if alive && records.OwnerOf(host) != b.in.Me {
			s.alive = append(s.alive, records.OwnerOf(host))
			if most := notes.Number(host.Properties, notes.MostProperty); most > 0 {
				s.most[records.OwnerOf(host)] = int(most)
			}
		}
	}
	leases, pauses := make([]balance.Lease, len(good)), b.in.View.Pauses()
	for i, lease := range good {
		fenced := lease.Fence.After(b.planned)
		leases[i] = balance.Lease{
			Token: lease.Token, Owner: records.OwnerOf(lease), Stage: stageOf(lease, pauses),
			Fenced: fenced, Overdue: b.isOverdue(lease),
			Free: lease.Free() && !fenced || !lease.Free() &&
				records.IsExpired(lease, b.planned, b.in.Options.Expiration),
		}
	}
	s.plan = balance.Compute(b.in.Me, s.alive, s.most, leases)
	return s
}

// stageOf returns the stage of a lease in a plan.
func stageOf(lease feed.Record, pauses []feed.Range) balance.Stage {
	switch {
	case lease.State == feed.StateSplitting:
		return balance.Splitting
	case records.IsPaused(lease, pauses):
		return balance.Paused
	}
	return balance.Working
}
