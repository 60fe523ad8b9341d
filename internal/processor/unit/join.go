package unit

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/instance"
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
// owners gives its lease to the other, if nobody else has to give or take a lease. While another kind of processor owns
// a lease, no leases are joined, for the same reason for which no lease is cut.

// joinRests is for how many expirations there must be too many leases before leases are joined, and how many must pass
// before a pair is tried again. An instance that is away for so long does not come back to its leases anyway.
const joinRests = 5

// joins is the memory of the balancer about leases that should be joined.
type joins struct {
	since, asked time.Time                // since when there are too many leases; when the partitions were listed
	partitions   []feed.Range             // as last listed
	tried        map[feed.Range]time.Time // when the leases of a pair met, or one of them was given away
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
		return
	case b.joins.since.IsZero():
		b.joins.since = time.Now()
	}
	if time.Since(b.joins.since) < b.joinRest() {
		return
	}
	widths, homes := make([]float64, len(s.leases)), make([]int, len(s.leases))
	for i, lease := range s.leases {
		widths[i] = keyspace.Width(lease.Range)
		homes[i] = slices.IndexFunc(b.joins.partitions, func(p feed.Range) bool { return p.Contains(lease.Range) })
	}
	for _, i := range balance.Joins(widths, homes, len(s.leases)-surplus) {
		b.joinPair(s, i)
	}
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

// joinPair lets the workers of a lease and its neighbour meet, if both are ours, or brings both leases to one owner.
func (b *balancer) joinPair(s situation, i int) {
	left, right := s.leases[i], s.leases[i+1]
	whole := feed.Range{Min: left.Range.Min, Max: right.Range.Max}
	pauses := b.in.View.Pauses()
	tried := b.joins.tried[whole]
	if !records.IsJoinable(left) || !records.IsJoinable(right) || records.IsPaused(left, pauses) ||
		records.IsPaused(right, pauses) || !tried.IsZero() && time.Since(tried) < b.joinRest() {
		return
	}
	from, to := records.OwnerOf(left), records.OwnerOf(right)
	if from == to {
		l, _ := b.in.Claims.Held(left.Range)
		r, _ := b.in.Claims.Held(right.Range)
		if from == b.in.Me && l != nil && r != nil && l.Ending().None() && r.Ending().None() && instance.Meet(l, r) {
			b.joins.tried[whole] = time.Now()
		}
		return
	}
	given := left
	if owned := s.owned(); owned[from] < owned[to] || owned[from] == owned[to] && from.Instance < to.Instance {
		given, from, to = right, to, from
	}
	held, _ := b.in.Claims.Held(given.Range)
	most := s.capacity[to].Most
	if from == b.in.Me && held != nil && slices.Contains(s.alive, to) && (most == 0 || s.owned()[to] < most) &&
		len(s.plan.Waiting) == 0 && len(s.plan.Give) == 0 && held.Seat() == nil &&
		held.Stop(instance.Ending{Why: feed.ReasonGiven, To: to}) {
		b.joins.tried[whole] = time.Now()
	}
}

// owned returns how many leases each owner has.
func (s situation) owned() map[balance.Owner]int {
	owned := map[balance.Owner]int{}
	for _, lease := range s.leases {
		owned[records.OwnerOf(lease)]++
	}
	return owned
}
