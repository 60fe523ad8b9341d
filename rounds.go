package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/balance"
	"github.com/millrace/changefeed/internal/latest"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/parallel"
	"github.com/millrace/changefeed/internal/pause"
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
	*run
	rng      *mathrand.Rand
	waiting  latest.Since[string] // leases, by id, that should have been taken, or given by another owner
	planned  time.Time            // the store's time at which the last plan was made
	flaws    latest.Since[string] // that listings have shown, by id
	tiled    []feed.Record        // as the last listing without a hole had them
	reported map[string]bool      // documents that were reported as broken
	marker   feed.Record          // of the unit, as it was joined; zero before it was seen
	gone     error                // why there are no leases to balance any more
}

func newBalancer(r *run) balancer {
	return balancer{run: r, rng: mathrand.New(mathrand.NewPCG(r.seed, 0)), reported: map[string]bool{}}
}

// rounds balances until ctx ends, or returns why the unit is gone.
func (b *balancer) rounds(ctx context.Context) error {
	for ctx.Err() == nil {
		expecting := b.round(ctx)
		if b.gone != nil {
			return b.gone
		}
		if gone := b.absence.proven(); gone != nil {
			b.report(ctx, feed.OriginSource, "", gone)
			return gone
		}
		wait := pause.Jitter(b.rng, b.opts.Acquire)
		if expecting && !b.follower.live.Load() {
			wait = b.opts.Acquire / 10 // leases are on their way to us
		}
		if pause.For(ctx, b.opts.Acquire/roundsPerEvent) != nil {
			break
		}
		b.await(ctx, min(wait, b.untilExpiry()))
	}
	return nil
}

// untilExpiry is how long until the next lease of another owner expires or is free of its
// fence, after the last plan: survivors then act at that moment, not at their next round.
func (b *balancer) untilExpiry() time.Duration {
	now := b.view.Now()
	soonest := b.opts.Expiration
	leases, _ := b.view.leases()
	for _, lease := range leases {
		if at := takeableAt(lease, b.opts.Expiration); !at.Before(b.planned) && ownerOf(lease) != b.me {
			soonest = min(soonest, at.Sub(now))
		}
	}
	return soonest + pause.Jitter(b.rng, b.opts.Acquire/roundsPerEvent)
}

// await waits for news, for at most d.
func (b *balancer) await(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-b.kick:
	case <-timer.C:
	}
}

// round compares once and carries out the plan. It reports whether others are about to give us leases.
func (b *balancer) round(ctx context.Context) (expecting bool) {
	b.troubles.Remove(feed.OriginBalancer, feed.OriginLeaseStore, feed.OriginSource)
	s, listed, err := b.plan(ctx)
	if err != nil {
		b.planned = b.view.Now() // leases that expire in an outage are no reason to ask more often
		b.report(ctx, feed.OriginBalancer, "", err)
		return false
	}
	// These judge by records that are not there, which only a listing shows.
	if listed {
		b.dropRedundant()
		b.dropLate(ctx)
		b.checkCover(ctx)
		b.presence.clean(ctx)
	}
	b.waiting.See(ids(s.pick(s.plan.Waiting)))
	done := feed.Round{Leases: len(s.leases), Instances: len(s.alive), Owned: b.claims.held(), Listed: listed}
	done.Taken = b.acquire(ctx, append(s.pick(s.plan.Take), b.handedOver(s.leases)...))
	done.Stolen = b.acquire(ctx, s.pick(s.plan.Steal))
	done.Given = b.giveAway(s)
	done.Unowned = s.plan.Unowned
	if done.Unowned > 0 {
		b.report(ctx, feed.OriginBalancer, "", fmt.Errorf("%w: %d of %d, because each of %d instances has as many as its Options.MaxLeases allows: start more instances, or allow more",
			feed.ErrNoOwner, done.Unowned, done.Leases, done.Instances))
	}
	foreign := slices.IndexFunc(s.leases, isForeign)
	b.shared.Store(foreign >= 0)
	if i := foreign; i >= 0 && b.opts.HoldKeys {
		b.report(ctx, feed.OriginBalancer, s.leases[i].Token, fmt.Errorf("%w %q, which hands over the changes of held keys: do not share a unit that holds keys",
			feed.ErrForeignOwner, s.leases[i].Owner))
	}
	b.serveRequests()
	b.last.Set(done)
	b.hooks.Round(done)
	return s.plan.Expected > 0
}

// plan makes the plan of a round. A theft is planned by a listing, because a stale view
// must not cost anybody a lease.
func (b *balancer) plan(ctx context.Context) (s situation, listed bool, err error) {
	if b.follower.live.Load() && time.Since(b.view.Listed()) < listRounds*b.opts.Acquire {
		if s = b.situation(); len(s.plan.Steal) == 0 {
			return s, false, nil
		}
	}
	if err := b.list(ctx); err != nil {
		return s, false, err
	}
	return b.situation(), true, nil
}

// list lists all records. That the unit is gone is believed if a second listing says so too.
func (b *balancer) list(ctx context.Context) error {
	if b.marker.ID == "" {
		b.marker, _ = b.view.marker()
	}
	err := b.view.list(ctx, time.Now())
	if gone := b.view.vanished(b.marker, err); gone == nil || pause.For(ctx, b.opts.Acquire/roundsPerEvent) != nil {
		return err
	}
	err = b.view.list(ctx, time.Now())
	b.gone = b.view.vanished(b.marker, err)
	return cmp.Or(b.gone, err)
}

// situation is the view at the beginning of a round, and the plan that follows from it.
type situation struct {
	leases []feed.Record   // to be worked on, with different ranges
	alive  []balance.Owner // instances that show presence, this one included
	most   map[balance.Owner]int
	plan   balance.Plan // by the indexes of leases
}

// pick lists the leases of some indexes.
func (s situation) pick(indexes []int) []feed.Record {
	picked := make([]feed.Record, len(indexes))
	for i, of := range indexes {
		picked[i] = s.leases[of]
	}
	return picked
}

// situation reads the view and plans. Documents that are no leases are reported once and left alone.
func (b *balancer) situation() situation {
	good, bad := b.view.placed()
	for _, lease := range bad {
		if !b.reported[lease.ID] && !errors.Is(lease.Err, feed.ErrOverlap) { // overlaps may pass: see checkCover
			b.reported[lease.ID] = true
			b.raise(&feed.Error{Origin: feed.OriginLeaseStore, Lease: lease.Token, Err: lease.Err})
		}
	}
	b.planned = b.view.Now()
	// This instance counts as alive even if its presence record was not written or
	// listed yet.
	s := situation{leases: good, alive: []balance.Owner{b.me}, most: map[balance.Owner]int{}}
	if b.opts.MaxLeases > 0 {
		s.most[b.me] = b.opts.MaxLeases
	}
	for _, host := range b.view.kind(feed.KindHost) {
		alive := host.Err == nil && host.State == feed.StateLive && b.planned.Sub(host.Updated) <= host.Expiration+clockGrain
		if alive && ownerOf(host) != b.me {
			s.alive = append(s.alive, ownerOf(host))
			if most := notes.Number(host.Properties, notes.MostProperty); most > 0 {
				s.most[ownerOf(host)] = int(most)
			}
		}
	}
	leases := make([]balance.Lease, len(good))
	for i, lease := range good {
		fenced := lease.Fence.After(b.planned)
		leases[i] = balance.Lease{
			Token: lease.Token, Owner: ownerOf(lease), Splitting: lease.State == feed.StateSplitting, Fenced: fenced, Overdue: b.isOverdue(lease),
			Free: lease.Free() && !fenced || !lease.Free() && isExpired(lease, b.planned, b.opts.Expiration),
		}
	}
	s.plan = balance.Compute(b.me, s.alive, s.most, leases)
	return s
}

// isOverdue reports whether a lease has waited for so long that anybody may take it.
func (b *balancer) isOverdue(lease feed.Record) bool {
	return b.waiting.For(lease.ID) > overdueRounds*b.opts.Acquire+b.opts.Drain
}

// handedOver lists the leases that name this process as owner but are not being
// worked on: given by others, or ours from a write whose answer was lost.
func (b *balancer) handedOver(leases []feed.Record) (mine []feed.Record) {
	for _, lease := range leases {
		if _, begun := b.claims.worker(lease.Range); !begun && ownerOf(lease) == b.me && !isExpired(lease, b.planned, b.opts.Expiration) {
			mine = append(mine, lease)
		}
	}
	return mine
}

// declineGifts frees leases that were handed over to us and not begun, lest others wait for their expiry.
func (b *balancer) declineGifts(ctx context.Context) {
	err := b.view.list(ctx, time.Now())
	for _, lease := range b.handedOver(b.situation().leases) {
		lease.Owner, lease.Epoch, lease.Timestamp = "", "", timestamp()
		if _, updated := b.store.Update(ctx, lease); !errors.Is(updated, feed.ErrConflict) {
			err = errors.Join(err, updated)
		}
	}
	if err != nil {
		b.report(ctx, feed.OriginLeaseStore, "", fmt.Errorf("release leases not begun: %w", err))
	}
}

// acquire takes leases, starts to work on them, and returns how many it got. It stops after
// the time of a round, when its plan is old: a slow store takes many rounds, each right
// after the last.
func (b *balancer) acquire(ctx context.Context, leases []feed.Record) int {
	var got atomic.Int64
	bounded, cancel := context.WithTimeout(ctx, b.opts.Acquire)
	defer cancel()
	parallel.Each(bounded, len(leases), atOnce, func(i int) {
		if b.take(bounded, leases[i]) {
			got.Add(1)
		}
	})
	if bounded.Err() != nil {
		b.wake()
	}
	return int(got.Load())
}

// take makes a lease ours and starts to work on it.
func (b *balancer) take(ctx context.Context, seen feed.Record) bool {
	if !b.claims.claim(seen.Range) {
		return false // ours already, though the view may not show that yet
	}
	if isUntouched(seen) && b.view.covers(seen) { // taken, it would rank higher and be redundant no more
		b.report(ctx, feed.OriginLeaseStore, seen.Token, b.discard(ctx, seen))
		b.claims.free(seen.Range)
		return false
	}
	if !b.tryTake(ctx, seen) {
		b.claims.free(seen.Range)
		return false
	}
	return true
}

// tryTake writes us into a lease, on condition that it is as it was seen: of two that
// want it, the slower one finds a conflict.
func (b *balancer) tryTake(ctx context.Context, seen feed.Record) bool {
	lease := seen
	lease.Owner, lease.Epoch, lease.Expiration = b.me.Instance, b.me.Epoch, b.opts.Expiration
	lease.Fence = b.fence(seen)
	beginTerm(&lease)
	// Its owner has ended without a word, and the handler may be why.
	crashed := !seen.Free() && seen.Epoch != "" && ownerOf(seen) != b.me && isExpired(seen, b.view.Now(), b.opts.Expiration)
	var started time.Time
	var got feed.Record
	err := b.paced(ctx, b.random("take "+seen.Token), seen.Token, func() (err error) {
		writing, cancel := linger(ctx, b.opts.Drain)
		defer cancel()
		started, lease.Timestamp = time.Now(), timestamp()
		got, err = b.store.Update(writing, lease)
		return err
	})
	switch {
	case errors.Is(err, feed.ErrNotFound):
		b.view.Drop(seen.ID)
		return false
	case errors.Is(err, feed.ErrConflict):
		b.view.Distrust() // somebody else was faster
		return false
	case err != nil:
		b.view.Distrust()
		// The write may have been stored all the same: then handedOver finds the lease
		// in a later round.
		b.report(ctx, feed.OriginLeaseStore, seen.Token, fmt.Errorf("acquire: %w", err))
		return false
	}
	b.view.put(got)
	b.start(got, started, crashed)
	return true
}

// fence is until when, by the store's clock, a new owner must wait: an owner that did not
// give the lease away trusts it until it would have expired, and hears of us only at its
// next write.
func (b *balancer) fence(seen feed.Record) time.Time {
	now := b.view.Now()
	given := seen.Free() || ownerOf(seen) == b.me
	if given || isExpired(seen, now, b.opts.Expiration) {
		if seen.Fence.After(now) {
			return seen.Fence
		}
		return time.Time{}
	}
	return seen.Updated.Add(max(seen.Expiration, b.opts.Expiration) + clockGrain)
}

// giveAway makes workers hand their leases over, and returns how many do.
func (b *balancer) giveAway(s situation) (given int) {
	for i, to := range s.plan.Give {
		if w, _ := b.claims.worker(s.leases[i].Range); w != nil && w.stop(ending{why: feed.ReasonGiven, to: to}) {
			given++
		}
	}
	return given
}

// relist has the next round come at once and list the records: one that this instance had written is gone, and others may be.
func (r *run) relist() {
	r.view.Distrust()
	r.wake()
}

// wake makes the next round come at once.
func (r *run) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// atOnce is how many leases are created or taken at once: as many as the service's own
// processors do.
const atOnce = 25

// report calls Hooks.Error, unless the error is only that ctx has ended.
func (r *run) report(ctx context.Context, from feed.Origin, lease string, err error) {
	if isFailure(ctx, err) {
		r.raise(&feed.Error{Origin: from, Lease: lease, Err: err})
	}
}

// isFailure reports whether an error is more than that ctx has ended.
func isFailure(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)))
}

// raise calls Hooks.Error, and keeps an error that concerns no lease in the status of the instance.
func (r *run) raise(err *feed.Error) {
	if err.Lease == "" {
		r.troubles.Put(err.Origin, err)
	}
	r.hooks.Error(err)
}
