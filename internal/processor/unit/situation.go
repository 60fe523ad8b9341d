package unit

import (
	"errors"
	"math"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// situation is the view at the beginning of a round, and the resulting plan.
type situation struct {
	leases   []feed.Record   // valid leases, with different ranges
	alive    []balance.Owner // instances that show presence, including this one
	hosts    []feed.Record   // the presence of the others among them
	capacity map[balance.Owner]balance.Capacity
	keeping  map[balance.Owner]bool // instances that never join leases
	least    int                    // the number of leases for which some instance asks
	plan     balance.Plan           // contains indexes of leases
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
	s := situation{
		leases: good, capacity: map[balance.Owner]balance.Capacity{}, keeping: map[balance.Owner]bool{},
	}
	s.admit(b.in.Me, sharing(b.in))
	left := map[balance.Owner]bool{}
	for _, host := range b.in.View.Kind(feed.KindHost) {
		left[records.OwnerOf(host)] = host.State == feed.StateRetired
		alive := host.Err == nil && host.State == feed.StateLive &&
			b.planned.Sub(host.Updated) <= host.Expiration+records.ClockGrain
		if alive && records.OwnerOf(host) != b.in.Me {
			s.admit(records.OwnerOf(host), host.Properties)
			s.hosts = append(s.hosts, host)
		}
	}
	leases, pauses := make([]balance.Lease, len(good)), b.in.View.Pauses()
	for i, lease := range good {
		fenced := lease.Fence.After(b.planned)
		leases[i] = balance.Lease{
			Token: lease.Token, Owner: records.OwnerOf(lease), Stage: stageOf(lease, pauses),
			Fenced: fenced, Overdue: b.isOverdue(lease), Load: notes.Number(lease.Properties, notes.LoadProperty),
			Free: lease.Free() && !fenced || !lease.Free() &&
				(records.IsExpired(lease, b.planned, b.in.Options.Expiration) ||
					left[records.OwnerOf(lease)] && records.IsUnbegun(lease)),
		}
	}
	s.plan = balance.Compute(b.in.Me, s.alive, s.capacity, leases)
	return s
}

// sharing returns what the instances must know to share the leases, as properties of a presence. A default is no
// property, because older versions write none.
func sharing(in *instance.Instance) map[string]string {
	o, properties := &in.Options, map[string]string{}
	for name, n := range map[string]int{
		notes.MostProperty: o.MaxLeases, notes.LeastProperty: o.MinLeases, notes.WeightProperty: o.Weight,
	} {
		if n > 1 || n == 1 && name == notes.MostProperty {
			properties[name] = notes.PlainNumber(int64(n))
		}
	}
	if o.ShareByLoad {
		properties[notes.ByLoadProperty] = "yes"
	}
	if in.NeverJoin {
		properties[notes.NeverJoinProperty] = "yes"
	}
	return properties
}

// admit adds an instance with the properties of its presence.
func (s *situation) admit(o balance.Owner, properties map[string]string) {
	number := func(name string, most int64) int {
		if n := notes.Number(properties, name); n <= most {
			return int(n)
		}
		return 0 // no instance writes this
	}
	s.alive = append(s.alive, o)
	s.capacity[o] = balance.Capacity{
		Weight: number(notes.WeightProperty, instance.MaxWeight), Most: number(notes.MostProperty, math.MaxInt32),
		ByLoad: properties[notes.ByLoadProperty] != "",
	}
	s.keeping[o] = properties[notes.NeverJoinProperty] != ""
	s.least = max(s.least, number(notes.LeastProperty, instance.MaxMinLeases))
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
