package unit

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/latest"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How often a round comes, in parts of [Options.Acquire].
const (
	listRounds     = 10 // a followed view is listed anew after so many rounds
	overdueRounds  = 2  // a lease that nobody took or gave for so many rounds is anybody's
	roundsPerEvent = 50 // news can make rounds come so much faster, no more
)

// balancer compares the leases with the instances, round after round. All of it belongs to the
// goroutine that runs the rounds.
type balancer struct {
	unit     *Unit
	in       *instance.Instance
	follower *follower
	presence *presence
	rng      *rand.Rand
	waiting  latest.Since[string] // leases, by id, that should have been taken, or given by another owner
	planned  time.Time            // the store's time at which the last plan was made
	flaws    latest.Since[string] // that listings have shown, by id
	tiled    []feed.Record        // as the last listing without a hole had them
	reported map[string]bool      // documents that were reported as broken
	marker   feed.Record          // of the unit, as it was joined; zero before it was seen
	gone     error                // why there are no leases to balance any more
}

func newBalancer(u *Unit) *balancer {
	return &balancer{
		unit: u, in: u.in, follower: u.follower, presence: u.presence, rng: u.in.Random("rounds"), reported: map[string]bool{},
	}
}

// runRounds balances until ctx ends, or returns why the unit is gone.
func (b *balancer) runRounds(ctx context.Context) error {
	for ctx.Err() == nil {
		expecting := b.round(ctx)
		if b.gone != nil {
			return b.gone
		}
		if gone := b.in.Absence.Proven(); gone != nil {
			b.in.Report(ctx, feed.OriginSource, "", gone)
			return gone
		}
		wait := pause.Jitter(b.rng, b.in.Options.Acquire)
		if expecting && !b.follower.live.Load() {
			wait = b.in.Options.Acquire / 10 // leases are on their way to us
		}
		if pause.For(ctx, b.in.Options.Acquire/roundsPerEvent) != nil {
			break
		}
		b.awaitNews(ctx, min(wait, b.untilExpiry()))
	}
	return nil
}

// awaitNews waits for news, for at most d.
func (b *balancer) awaitNews(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-b.in.News():
	case <-timer.C:
	}
}

// untilExpiry is how long until the next lease of another owner expires or is free of its
// fence, after the last plan: survivors then act at that moment, not at their next round.
func (b *balancer) untilExpiry() time.Duration {
	now := b.in.View.Now()
	soonest := b.in.Options.Expiration
	leases, _ := b.in.View.Leases()
	for _, lease := range leases {
		if at := records.TakeableAt(lease, b.in.Options.Expiration); !at.Before(b.planned) && records.OwnerOf(lease) != b.in.Me {
			soonest = min(soonest, at.Sub(now))
		}
	}
	return soonest + pause.Jitter(b.rng, b.in.Options.Acquire/roundsPerEvent)
}

// round compares once and carries out the plan. It reports whether others are about to give us leases.
func (b *balancer) round(ctx context.Context) (expecting bool) {
	b.in.Solved(feed.OriginBalancer, feed.OriginLeaseStore, feed.OriginSource)
	s, listed, err := b.planRound(ctx)
	if err != nil {
		b.planned = b.in.View.Now() // leases that expire in an outage are no reason to ask more often
		b.in.Report(ctx, feed.OriginBalancer, "", err)
		return false
	}
	// These judge by records that are not there, which only a listing shows.
	if listed {
		b.dropRedundant()
		b.unit.dropLate(ctx)
		b.checkCover(ctx)
		b.presence.cleanPresences(ctx)
	}
	b.waiting.See(records.IDs(s.pick(s.plan.Waiting)))
	// Before the first lease is begun, because its position passes no key that is set aside if others would skip it.
	foreign := slices.IndexFunc(s.leases, records.IsForeign)
	b.in.Shared.Store(foreign >= 0)
	done := feed.Round{Leases: len(s.leases), Instances: len(s.alive), Owned: b.in.Claims.Number(), Listed: listed}
	done.Taken = b.acquire(ctx, append(s.pick(s.plan.Take), b.handedOver(s.leases)...))
	done.Stolen = b.acquire(ctx, s.pick(s.plan.Steal))
	done.Given = b.giveAway(s)
	done.Unowned = s.plan.Unowned
	if done.Unowned > 0 {
		b.in.Report(ctx, feed.OriginBalancer, "", fmt.Errorf("%w: %d of %d, because each of %d instances has as many as its Options.MaxLeases allows: start more instances, or allow more",
			feed.ErrNoOwner, done.Unowned, done.Leases, done.Instances))
	}
	if i := foreign; i >= 0 && b.in.Options.HoldKeys {
		b.in.Report(ctx, feed.OriginBalancer, s.leases[i].Token, fmt.Errorf("%w %q, which hands over the changes of held keys: do not share a unit that holds keys",
			feed.ErrForeignOwner, s.leases[i].Owner))
	}
	b.unit.serveRequests()
	b.unit.last.Set(done)
	b.in.Hooks.Round(done)
	return s.plan.Expected > 0
}

// planRound makes the plan of a round. A theft is planned by a listing, because a stale view
// must not cost anybody a lease.
func (b *balancer) planRound(ctx context.Context) (s situation, listed bool, err error) {
	if b.follower.live.Load() && time.Since(b.in.View.Listed()) < listRounds*b.in.Options.Acquire {
		if s = b.situation(); len(s.plan.Steal) == 0 {
			return s, false, nil
		}
	}
	if err := b.listRecords(ctx); err != nil {
		return s, false, err
	}
	return b.situation(), true, nil
}

// listRecords lists all records. That the unit is gone is believed if a second listing says so too.
func (b *balancer) listRecords(ctx context.Context) error {
	if b.marker.ID == "" {
		b.marker, _ = b.in.View.Marker()
	}
	err := b.in.View.List(ctx, time.Now())
	if gone := b.in.View.Vanished(b.marker, err); gone == nil || pause.For(ctx, b.in.Options.Acquire/roundsPerEvent) != nil {
		return err
	}
	err = b.in.View.List(ctx, time.Now())
	b.gone = b.in.View.Vanished(b.marker, err)
	return cmp.Or(b.gone, err)
}

// isOverdue reports whether a lease has waited for so long that anybody may take it.
func (b *balancer) isOverdue(lease feed.Record) bool {
	return b.waiting.For(lease.ID) > overdueRounds*b.in.Options.Acquire+b.in.Options.Drain
}
