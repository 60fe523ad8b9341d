package unit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/parallel"
	"github.com/millrace/changefeed/internal/processor/records"
)

// handedOver lists the leases that name this process as owner but are not being
// worked on: given by others, or ours from a write whose answer was lost.
func (b *balancer) handedOver(leases []feed.Record) (mine []feed.Record) {
	for _, lease := range leases {
		if _, begun := b.in.Claims.Held(lease.Range); !begun && records.OwnerOf(lease) == b.in.Me && !records.IsExpired(lease, b.planned, b.in.Options.Expiration) {
			mine = append(mine, lease)
		}
	}
	return mine
}

// declineGifts frees leases that were handed over to us and not begun, lest others wait for their expiry.
func (b *balancer) declineGifts(ctx context.Context) {
	err := b.in.View.List(ctx, time.Now())
	for _, lease := range b.handedOver(b.situation().leases) {
		lease.Owner, lease.Epoch, lease.Timestamp = "", "", instance.Timestamp()
		if _, updated := b.in.Store.Update(ctx, lease); !errors.Is(updated, feed.ErrConflict) {
			err = errors.Join(err, updated)
		}
	}
	if err != nil {
		b.in.Report(ctx, feed.OriginLeaseStore, "", fmt.Errorf("release leases not begun: %w", err))
	}
}

// acquire takes leases, starts to work on them, and returns how many it got. It stops after
// the time of a round, when its plan is old: a slow store takes many rounds, each right
// after the last.
func (b *balancer) acquire(ctx context.Context, leases []feed.Record) int {
	var got atomic.Int64
	bounded, cancel := context.WithTimeout(ctx, b.in.Options.Acquire)
	defer cancel()
	parallel.Each(bounded, len(leases), atOnce, func(i int) {
		if b.takeLease(bounded, leases[i]) {
			got.Add(1)
		}
	})
	if bounded.Err() != nil {
		b.in.Wake()
	}
	return int(got.Load())
}

// takeLease makes a lease ours and starts to work on it.
func (b *balancer) takeLease(ctx context.Context, seen feed.Record) bool {
	if !b.in.Claims.Claim(seen.Range) {
		return false // ours already, though the view may not show that yet
	}
	if records.IsUntouched(seen) && b.in.View.IsRedundant(seen) { // taken, it would rank higher and be redundant no more
		b.in.Report(ctx, feed.OriginLeaseStore, seen.Token, b.unit.discardUntaken(ctx, seen))
		b.in.Claims.Free(seen.Range)
		return false
	}
	if !b.tryTake(ctx, seen) {
		b.in.Claims.Free(seen.Range)
		return false
	}
	return true
}

// tryTake writes us into a lease, on condition that it is as it was seen: of two that
// want it, the slower one finds a conflict.
func (b *balancer) tryTake(ctx context.Context, seen feed.Record) bool {
	lease := seen
	lease.Owner, lease.Epoch, lease.Expiration = b.in.Me.Instance, b.in.Me.Epoch, b.in.Options.Expiration
	lease.Fence = b.fencedUntil(seen)
	records.BeginTerm(&lease)
	// Its owner has ended without a word, and the handler may be why.
	crashed := !seen.Free() && seen.Epoch != "" && records.OwnerOf(seen) != b.in.Me && records.IsExpired(seen, b.in.View.Now(), b.in.Options.Expiration)
	var started time.Time
	var got feed.Record
	err := b.in.Paced(ctx, b.in.Random("take "+seen.Token), seen.Token, func() (err error) {
		writing, cancel := instance.Linger(ctx, b.in.Options.Drain)
		defer cancel()
		started, lease.Timestamp = time.Now(), instance.Timestamp()
		got, err = b.in.Store.Update(writing, lease)
		return err
	})
	switch {
	case errors.Is(err, feed.ErrNotFound):
		b.in.View.Drop(seen.ID)
		return false
	case errors.Is(err, feed.ErrConflict):
		b.in.View.Distrust() // somebody else was faster
		return false
	case err != nil:
		b.in.View.Distrust()
		// The write may have been stored all the same: then handedOver finds the lease
		// in a later round.
		b.in.Report(ctx, feed.OriginLeaseStore, seen.Token, fmt.Errorf("acquire: %w", err))
		return false
	}
	b.in.View.Put(got)
	b.in.Begin(got, started, crashed)
	return true
}

// fencedUntil is until when, by the store's clock, a new owner must wait: an owner that did not
// give the lease away trusts it until it would have expired, and hears of us only at its
// next write.
func (b *balancer) fencedUntil(seen feed.Record) time.Time {
	now := b.in.View.Now()
	given := seen.Free() || records.OwnerOf(seen) == b.in.Me
	if given || records.IsExpired(seen, now, b.in.Options.Expiration) {
		if seen.Fence.After(now) {
			return seen.Fence
		}
		return time.Time{}
	}
	return seen.Updated.Add(max(seen.Expiration, b.in.Options.Expiration) + records.ClockGrain)
}

// giveAway makes workers hand their leases over, and returns how many do.
func (b *balancer) giveAway(s situation) (given int) {
	for i, to := range s.plan.Give {
		if held, _ := b.in.Claims.Held(s.leases[i].Range); held != nil && held.Stop(instance.Ending{Why: feed.ReasonGiven, To: to}) {
			given++
		}
	}
	return given
}

// atOnce is how many leases are created or taken at once: as many as the service's own
// processors do.
const atOnce = 25
