package unit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/parallel"
	"github.com/millrace/changefeed/internal/processor/records"
)

// handedOver lists the leases of this process without a worker: other instances have given them, or the answer of our
// own write was lost. A paused lease is not among them: see obeyPauses.
func (b *balancer) handedOver(leases []feed.Record) (mine []feed.Record) {
	pauses := b.in.View.Pauses()
	return slices.DeleteFunc(b.ownedWithoutWork(leases), func(lease feed.Record) bool {
		return records.IsPaused(lease, pauses)
	})
}

// ownedWithoutWork lists the leases of this process without a worker.
func (b *balancer) ownedWithoutWork(leases []feed.Record) (mine []feed.Record) {
	for _, lease := range leases {
		if _, begun := b.in.Claims.Held(lease.Range); !begun && records.OwnerOf(lease) == b.in.Me &&
			!records.IsExpired(lease, b.planned, b.in.Options.Expiration) {
			mine = append(mine, lease)
		}
	}
	return mine
}

// declineGifts frees leases which were handed over to us and have not begun. Otherwise the other instances would wait
// for their expiry.
func (b *balancer) declineGifts(ctx context.Context) {
	err := b.in.View.List(ctx, time.Now())
	b.in.Report(ctx, feed.OriginLeaseStore, "", errors.Join(err, b.freeUnbegun(ctx)))
}

// freeUnbegun frees the leases of this process without a worker, as far as they are known. A lease that is being joined
// stays until it is known whether the lease of both exists.
func (b *balancer) freeUnbegun(ctx context.Context) (err error) {
	for _, lease := range b.ownedWithoutWork(b.situation().leases) {
		if joining, ok := records.JoiningOf(lease); ok && joining.Until.After(b.in.View.Now()) {
			continue
		}
		lease.Owner, lease.Epoch, lease.Timestamp = "", "", instance.Timestamp()
		freed, updated := b.in.Store.Update(ctx, lease)
		switch {
		case updated == nil:
			b.in.View.Put(freed)
		case !errors.Is(updated, feed.ErrConflict) && !errors.Is(updated, feed.ErrNotFound):
			err = errors.Join(err, fmt.Errorf("release lease %s, which was not begun: %w", lease.Token, updated))
		}
	}
	return err
}

// acquire takes leases, starts to work on them, and returns their number. acquire stops after the time of a round,
// because the plan is then outdated: with a slow store this takes many rounds, each directly after the last.
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

// takeLease takes a lease and starts the work.
func (b *balancer) takeLease(ctx context.Context, seen feed.Record) bool {
	if !b.in.Claims.Claim(seen.Range) {
		return false // ours already, although the view may not show that yet
	}
	// a taken lease would rank higher and would no longer be redundant
	if records.IsUntouched(seen) && b.in.View.IsRedundant(seen) {
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

// tryTake writes this instance as owner into a lease, conditional on the seen version: of two instances, the slower
// receives a conflict.
func (b *balancer) tryTake(ctx context.Context, seen feed.Record) bool {
	lease := seen
	lease.Owner, lease.Epoch, lease.Expiration = b.in.Me.Instance, b.in.Me.Epoch, b.in.Options.Expiration
	lease.Fence = b.fencedUntil(seen)
	records.BeginTerm(&lease)
	// The owner has ended unexpectedly, and the handler may be the cause.
	crashed := !seen.Free() && seen.Epoch != "" && records.OwnerOf(seen) != b.in.Me &&
		records.IsExpired(seen, b.in.View.Now(), b.in.Options.Expiration)
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
		b.in.View.Distrust() // another instance was faster
		return false
	case err != nil:
		b.in.View.Distrust()
		// The write may have been stored nevertheless: then handedOver finds the lease in a later round.
		b.in.Report(ctx, feed.OriginLeaseStore, seen.Token, fmt.Errorf("acquire: %w", err))
		return false
	}
	b.in.View.Put(got)
	if crashed {
		b.takeovers.add(seen, b.in.View.Now())
	}
	b.in.Begin(got, started, crashed)
	return true
}

// fencedUntil returns until when, by the store's clock, a new owner must wait. An owner that did not give the lease
// away trusts the lease until the expiry, and notices us only at the next write.
func (b *balancer) fencedUntil(seen feed.Record) time.Time {
	now, until := b.in.View.Now(), seen.Fence // an owner may be taken over while it waits for the one before
	given := seen.Free() || records.OwnerOf(seen) == b.in.Me || records.IsUnbegun(seen)
	if !given && !records.IsExpired(seen, now, b.in.Options.Expiration) {
		trusted := seen.Updated.Add(max(seen.Expiration, b.in.Options.Expiration) + records.ClockGrain)
		until = slices.MaxFunc([]time.Time{until, trusted}, time.Time.Compare)
	}
	if until.After(now) {
		return until
	}
	return time.Time{}
}

// giveAway makes workers hand their leases over, and returns how many do.
func (b *balancer) giveAway(s situation) (given int) {
	for i, to := range s.plan.Give {
		if held, _ := b.in.Claims.Held(s.leases[i].Range); held != nil && held.Seat() == nil &&
			held.Stop(instance.Ending{Why: feed.ReasonGiven, To: to}) {
			given++
		}
	}
	return given
}

// atOnce limits how many leases are created or taken at the same time: the number of the service's own processors.
const atOnce = 25
