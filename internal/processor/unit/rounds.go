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

// The pace of the rounds, in parts of [Options.Acquire].
const (
	listRounds     = 10 // a followed view is listed anew after this many rounds
	overdueRounds  = 2  // any instance may take a lease that was not taken or given for this many rounds
	roundsPerEvent = 50 // news can make rounds this many times faster at most
)

// balancer compares the leases with the instances, round after round. Only the goroutine of the rounds uses the
// balancer.
type balancer struct {
	unit     *Unit
	in       *instance.Instance
	follower *follower
	presence *presence
	rng      *rand.Rand
	waiting  latest.Since[string]      // ids of leases that should have been taken, or given by another owner
	planned  time.Time                 // the store's time of the last plan
	overlaps latest.Since[string]      // ids of overlaps in listings
	gaps     []gap                     // in the last listing
	tiled    []feed.Record             // the leases of the last listing without a hole
	reported map[string]bool           // documents that were reported as invalid
	marked   map[string]string         // ETags of leases with an old mark in the last listing, by their ids
	marker   feed.Record               // the unit's marker when this instance joined; zero before that
	gone     error                     // why the unit has no leases any more
	paused   map[feed.Range]feed.Pause // as of the last round

	joins       joins
	takeovers   takeovers // of this round
	differSince time.Time // since when live instances run different variants; zero if they do not
}

func newBalancer(u *Unit) *balancer {
	return &balancer{
		unit: u, in: u.in, follower: u.follower, presence: u.presence, rng: u.in.Random("rounds"),
		reported: map[string]bool{}, joins: joins{tried: map[feed.Range]time.Time{}},
	}
}

// runRounds balances until ctx ends, or until the unit is gone, and then returns the reason.
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
			wait = b.in.Options.Acquire / 10 // other instances are about to give us leases
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

// untilExpiry returns how long until the next lease of another owner expires, the fence of a lease ends, or a gap may
// be repaired, after the last plan. So survivors act at that moment, not at their next round.
func (b *balancer) untilExpiry() time.Duration {
	now := b.in.View.Now()
	soonest := b.in.Options.Expiration
	leases, _ := b.in.View.Leases()
	for _, lease := range leases {
		if at := records.TakeableAt(lease, b.in.Options.Expiration); !at.Before(b.planned) &&
			records.OwnerOf(lease) != b.in.Me {
			soonest = min(soonest, at.Sub(now))
		}
	}
	for _, g := range b.gaps {
		if left := b.untilRepair(g); left > 0 {
			soonest = min(soonest, left)
		}
	}
	return soonest + pause.Jitter(b.rng, b.in.Options.Acquire/roundsPerEvent)
}

// round compares once and carries out the plan. round reports whether other instances are about to give us leases.
func (b *balancer) round(ctx context.Context) (expecting bool) {
	b.in.Solved(feed.OriginBalancer, feed.OriginLeaseStore, feed.OriginSource)
	s, listed, err := b.planRound(ctx)
	if err != nil {
		b.planned = b.in.View.Now() // leases expire during an outage: no reason to ask more often
		b.in.Report(ctx, feed.OriginBalancer, "", err)
		return false
	}
	// These decide by missing records, which only a listing shows.
	if listed {
		b.dropRedundant()
		b.dropOldMarks(ctx, s.leases)
		b.unit.dropLate(ctx)
		b.checkCover(ctx)
		b.presence.cleanPresences(ctx)
	}
	b.compareVariants(s.hosts)
	b.comparePauses()
	b.waiting.See(records.IDs(s.pick(s.plan.Waiting)))
	// This must happen before the first lease begins: if another kind of processor shares the unit, the position must
	// not pass keys that are set aside, because the other processor would skip their changes.
	foreign := slices.IndexFunc(s.leases, records.IsForeign)
	b.in.Shared.Store(foreign >= 0)
	done := feed.Round{Leases: len(s.leases), Instances: len(s.alive), Owned: b.in.Claims.Number(), Listed: listed}
	done.Taken = b.acquire(ctx, append(s.pick(s.plan.Take), b.handedOver(s.leases)...))
	done.Stolen = b.acquire(ctx, s.pick(s.plan.Steal))
	for _, t := range b.takeovers.takeAll() {
		instance.CallHook(b.in, b.in.Hooks.TakenOver, t)
	}
	b.obeyPauses(ctx, s.leases)
	b.cutLeases(s)
	b.joinLeases(ctx, s)
	done.Given = b.giveAway(s)
	done.Unowned = s.plan.Unowned
	if done.Unowned > 0 {
		b.in.Report(ctx, feed.OriginBalancer, "",
			fmt.Errorf("%w: %d of %d, because each of %d instances has as many as its Options.MaxLeases allows: "+
				"start more instances, or allow more",
				feed.ErrNoOwner, done.Unowned, done.Leases, done.Instances))
		b.reportOverLimit(ctx, s)
	}
	if i := foreign; i >= 0 && b.in.Options.HoldKeys {
		b.in.Report(ctx, feed.OriginBalancer, s.leases[i].Token,
			fmt.Errorf("%w %q, which hands over the changes of held keys: do not share a unit that holds keys",
				feed.ErrForeignOwner, s.leases[i].Owner))
	}
	b.unit.serveRequests(ctx)
	b.unit.last.Set(done)
	instance.CallHook(b.in, b.in.Hooks.Round, done)
	return s.plan.Expected > 0
}

// reportOverLimit reports leases that this instance keeps above its limit. It was given one, such as to join it with
// its neighbour, and the others have become full since. If it gave the lease up, nobody would own the lease.
func (b *balancer) reportOverLimit(ctx context.Context, s situation) {
	owned, most := s.owned()[b.in.Me], b.in.Options.MaxLeases
	if most == 0 || owned <= most {
		return
	}
	b.in.Report(ctx, feed.OriginBalancer, "", fmt.Errorf("%w: this instance keeps %d leases, and its "+
		"Options.MaxLeases is %d, because all others are full: start more instances, or allow more",
		feed.ErrNoOwner, owned, most))
}

// planRound makes the plan of a round. Before a theft planRound lists the records, because an instance must not lose a
// lease to a stale view. Only listings show that a pause is over, and that a gap is still there.
func (b *balancer) planRound(ctx context.Context) (s situation, listed bool, err error) {
	if b.follower.live.Load() && time.Since(b.in.View.Listed()) < listRounds*b.in.Options.Acquire {
		if s = b.situation(); len(s.plan.Steal) == 0 && !b.hasOldMarks() && !b.isRepairDue() {
			return s, false, nil
		}
	}
	if err := b.listRecords(ctx); err != nil {
		return s, false, err
	}
	return b.situation(), true, nil
}

// listRecords lists all records. If the unit seems to be gone, a second listing must confirm that.
func (b *balancer) listRecords(ctx context.Context) error {
	if b.marker.ID == "" {
		b.marker, _ = b.in.View.Marker()
	}
	err := b.in.View.List(ctx, time.Now())
	if gone := b.in.View.Vanished(b.marker, err); gone == nil ||
		pause.For(ctx, b.in.Options.Acquire/roundsPerEvent) != nil {
		return err
	}
	err = b.in.View.List(ctx, time.Now())
	b.gone = b.in.View.Vanished(b.marker, err)
	return cmp.Or(b.gone, err)
}

// isOverdue reports whether any instance may take a lease, because the lease has waited too long.
func (b *balancer) isOverdue(lease feed.Record) bool {
	return b.waiting.For(lease.ID) > overdueRounds*b.in.Options.Acquire+b.in.Options.Drain
}
