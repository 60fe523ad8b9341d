package unit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/latest"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How a running unit comes to fewer leases
//
// Leases are joined if the unit has had more leases for a while than a new unit with the same instances would have:
// because the instances ask for fewer leases now, or because partitions were merged. A new unit has at least as many
// leases as any instance asks for, so what was joined is never cut, and what was cut is never joined. tenure/join.go
// says how two leases are joined; here they are chosen.
//
// Each instance plans all pairs, and joins those that it owns. If the leases of a pair have two owners, one of the
// owners gives its lease to the other, if nobody else has to give or take a lease. The other owner may have as many
// leases as its Options.MaxLeases allows. Then it has one more until both are joined, and gives one away if they are
// not. While another kind of processor owns a lease, no leases are joined, for the same reason for which no lease is
// cut.
//
// What cannot succeed is not tried, because nobody works on a lease while it is handed over or marked. If the records
// show for joinRests that a lease cannot be joined, the plan leaves it out, and its neighbours are joined with others.
// Instances whose views differ may then choose different pairs for a moment. They never join too many leases: see
// join.leavesEnough.

// joinRests is for how many expirations there must be too many leases before leases are joined, and how many must pass
// before a pair is tried again. An instance that is away for so long does not come back to its leases anyway.
const joinRests = 5

// joins is the memory of the balancer about leases that should be joined.
type joins struct {
	since, asked time.Time                // since when there are too many leases; when the partitions were listed
	partitions   []feed.Range             // as last listed
	tried        map[feed.Range]time.Time // when the leases of a pair met, or one of them was given away
	apart        latest.Since[string]     // ids of leases that cannot be joined now
}

// joinLeases makes our workers join their leases, if the unit should have fewer leases.
func (b *balancer) joinLeases(ctx context.Context, s situation) {
	if b.in.NeverJoin || b.in.Shared.Load() || !isTiled(s.leases) {
		return
	}
	surplus := b.surplus(ctx, s)
	switch {
	case surplus <= 0:
		b.joins.since = time.Time{}
		clear(b.joins.tried)
		b.joins.apart.See(nil)
		return
	case b.joins.since.IsZero():
		b.joins.since = time.Now()
	}
	b.joins.apart.See(records.IDs(b.leasesApart(s)))
	if time.Since(b.joins.since) < b.joinRest() {
		return
	}
	widths, homes := make([]float64, len(s.leases)), make([]int, len(s.leases))
	for i, lease := range s.leases {
		widths[i] = keyspace.Width(lease.Range)
		homes[i] = slices.IndexFunc(b.joins.partitions, func(p feed.Range) bool { return p.Contains(lease.Range) })
		if b.joins.apart.For(lease.ID) >= b.joinRest() {
			homes[i] = -1
		}
	}
	least, owned := len(s.leases)-surplus, s.owned()
	for _, i := range balance.Joins(widths, homes, least) {
		b.joinPair(s, i, least, owned)
	}
}

// leasesApart lists the leases that cannot be joined now, as the records show. Each instance sees the same, apart from
// the age of its view.
func (b *balancer) leasesApart(s situation) (apart []feed.Record) {
	pauses := b.in.View.Pauses()
	_, bad := b.in.View.Placed()
	for _, lease := range s.leases {
		if b.in.View.IsApart(lease) || records.IsPaused(lease, pauses) || s.keeping[records.OwnerOf(lease)] ||
			slices.ContainsFunc(bad, func(l feed.Record) bool { return l.Range.Overlaps(lease.Range) }) {
			apart = append(apart, lease)
		}
	}
	return apart
}

// joinRest returns for how long there must be too many leases, and between two tries to join the same leases.
func (b *balancer) joinRest() time.Duration { return joinRests * b.in.Options.Expiration }

// surplus returns how many leases the unit has more than a new unit would have, according to a list of partitions that
// may be old, unless it is time to join leases.
func (b *balancer) surplus(ctx context.Context, s situation) int {
	if len(s.leases) <= max(1, s.least) {
		return 0
	}
	every := b.joinRest()
	if !b.joins.since.IsZero() && time.Since(b.joins.since) >= every { // leases are joined now
		every = b.in.Options.Expiration
	}
	if b.joins.asked.IsZero() || time.Since(b.joins.asked) >= every {
		ctx, cancel := context.WithTimeout(ctx, instance.ReadTimeout)
		defer cancel()
		partitions, err := b.in.Source.Partitions(ctx)
		if err != nil { // a worker reports that
			return 0
		}
		b.joins.partitions, b.joins.asked = records.RangesOf(partitions), time.Now()
	}
	return len(s.leases) - balance.Grid(len(b.joins.partitions), s.least)
}

// joinPair lets the workers of a lease and its neighbour meet, if both are ours, or brings both leases to one owner. At
// least so many leases are left. owned is how many leases each owner has when each earlier pair has a single owner.
func (b *balancer) joinPair(s situation, i, least int, owned map[balance.Owner]int) {
	left, right := s.leases[i], s.leases[i+1]
	if b.joins.apart.Sees(left.ID) || b.joins.apart.Sees(right.ID) {
		return
	}
	whole := feed.Range{Min: left.Range.Min, Max: right.Range.Max}
	tried, known := b.joins.tried[whole]
	from, to := records.OwnerOf(left), records.OwnerOf(right)
	if from == to {
		l, _ := b.in.Claims.Held(left.Range)
		r, _ := b.in.Claims.Held(right.Range)
		if from == b.in.Me && !(known && time.Since(tried) < b.joinRest()) && l != nil && r != nil &&
			l.Ending().None() && r.Ending().None() && instance.Meet(l, r, least) {
			b.joins.tried[whole] = time.Now()
		}
		return
	}
	given := left
	if s.joinsAtLeft(from, to, owned) {
		given, from, to = right, to, from
	}
	if !s.receives(to, owned) {
		return
	}
	// When the receiver has tried in vain, it rests as long, and must be ready when it receives the lease again.
	rest := b.joinRest() + b.in.Options.Expiration
	held, _ := b.in.Claims.Held(given.Range)
	if from == b.in.Me && !(known && time.Since(tried) < rest) && held != nil && slices.Contains(s.alive, to) &&
		len(s.plan.Waiting) == 0 && len(s.plan.Give) == 0 && held.Seat() == nil &&
		held.Stop(instance.Ending{Why: feed.ReasonGiven, To: to}) {
		b.joins.tried[whole] = time.Now()
	}
}

// joinsAtLeft reports whether the owner of the left lease of a pair receives the right one: the owner that has room,
// or if both or none have, the one with fewer leases.
func (s situation) joinsAtLeft(left, right balance.Owner, owned map[balance.Owner]int) bool {
	isFull := func(o balance.Owner) bool { return s.capacity[o].Most > 0 && owned[o] >= s.capacity[o].Most }
	if isFull(left) != isFull(right) {
		return isFull(right)
	}
	return cmp.Or(cmp.Compare(owned[left], owned[right]), cmp.Compare(left.Instance, right.Instance)) < 0
}

// receives counts one lease more for an owner, unless it has more than it may have already, for another pair.
func (s situation) receives(to balance.Owner, owned map[balance.Owner]int) bool {
	if most := s.capacity[to].Most; most > 0 && owned[to] > most {
		return false
	}
	owned[to]++
	return true
}

// owned returns how many leases each owner has.
func (s situation) owned() map[balance.Owner]int {
	owned := map[balance.Owner]int{}
	for _, lease := range s.leases {
		owned[records.OwnerOf(lease)]++
	}
	return owned
}
