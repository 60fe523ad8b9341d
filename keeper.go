package changefeed

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/beat"
	"github.com/millrace/changefeed/internal/pause"
)

// How a lease is held
//
// The keeper writes a held lease, at the worker's request or to renew it, one write at a time. Each
// write is conditional on the ETag of the write before, so a lease that somebody else has
// written cannot be written again: whoever was replaced finds out by a conflict.
//
// A conflict may also be the echo of a write of ours whose answer was lost. Then the
// record has the owner, epoch and timestamp of that write, and we go on from it.
//
// Others take the lease when its owner has been silent for the expiration by the
// store's clock, counted from when the store took the write. The keeper counts the same
// time by its own monotonic clock from *before* it sent the write, less a margin, and
// then gives up: the handler's context ends before anybody else can begin, however
// slow the store, and whatever the clocks say.

// keeper is the only writer of a held lease, so that each write knows the ETag of the last.
type keeper struct {
	*tenure
	turn  chan struct{} // has room for one: whoever writes has put something in
	check chan struct{} // another owner was seen
	fuse  *time.Timer   // calls lose when the lease can no longer be trusted
	due   *time.Timer   // of the next renewal
	place float64       // in the burst of renewals, from 0 to 1

	fill  func(*feed.Record) mark // puts into a record what the lease is to say
	saved func(mark)              // notes that it is stored

	// Of those whose turn it is.
	rng        *mathrand.Rand
	stored     feed.Record // as last written
	next       feed.Record // what the next write stores, but for the progress
	written    time.Time   // when the last successful write was begun
	unanswered []time.Time // timestamps of the writes since then, whose outcome is not known
	stamped    time.Time   // the last timestamp
	renewing   bool
}

func newKeeper(t *tenure, started time.Time) *keeper {
	k := &keeper{
		tenure: t, turn: make(chan struct{}, 1), check: make(chan struct{}, 1), rng: t.r.random("keeper " + t.lease.Token),
		fill: func(*feed.Record) mark { return mark{} }, saved: func(mark) {},
	}
	k.place = k.rng.Float64()
	k.fuse = time.AfterFunc(time.Until(k.trustedUntil(started)), func() {
		k.lose(fmt.Errorf("%w: not renewed in time", feed.ErrLeaseLost))
	})
	k.accept(t.lease, mark{}, started)
	k.due = time.NewTimer(time.Until(k.renewal()))
	return k
}

// trustedUntil is when a lease written by a request begun at t must be given up.
func (k *keeper) trustedUntil(t time.Time) time.Time {
	return t.Add(k.r.opts.trust())
}

// accept goes on from the outcome of a write begun at started.
func (k *keeper) accept(lease feed.Record, of mark, started time.Time) {
	k.stored, k.next, k.written, k.unanswered = lease, lease, started, nil
	k.troubles.Remove(feed.OriginLeaseStore)
	k.fuse.Reset(time.Until(k.trustedUntil(started)))
	k.saved(of)
	k.r.view.put(lease)
}

// keep renews the lease until it is lost or given up.
func (k *keeper) keep() {
	defer k.fuse.Stop()
	defer k.due.Stop()
	for {
		renew := k.renew
		select {
		case <-k.untilLost.Done():
			return
		case <-k.check:
		case <-k.due.C:
			renew = k.renewIfDue
		}
		if k.inTurn(k.untilLost, renew) != nil {
			return
		}
	}
}

// inTurn calls a function when nobody else writes. It returns the function's error, or why there was no turn.
func (k *keeper) inTurn(ctx context.Context, f func() error) error {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-k.untilLost.Done():
		return context.Cause(k.untilLost)
	}
	defer func() {
		k.due.Reset(time.Until(k.renewal()))
		<-k.turn
	}()
	if k.untilLost.Err() != nil {
		return context.Cause(k.untilLost)
	}
	return f()
}

// renew writes the lease though there may be nothing to store, because a silent owner expires.
func (k *keeper) renew() error {
	k.renewing = true
	defer func() { k.renewing = false }()
	return k.write(k.untilLost)
}

// renewIfDue renews the lease, unless it was written while the renewal waited for its turn.
func (k *keeper) renewIfDue() error {
	if time.Now().Before(k.renewal()) {
		return nil
	}
	return k.renew()
}

// verify makes the keeper write now, because the answer shows whether the lease is still ours.
func (k *keeper) verify() {
	select {
	case k.check <- struct{}{}:
	default:
	}
}

// renewal is when the lease must be written next.
func (k *keeper) renewal() time.Time {
	of := beat.Beat{Phase: k.r.phase, Every: k.r.opts.Renew, Trust: k.r.opts.trust()}
	return of.Next(k.written, k.place, k.r.claims.held())
}

// store writes the lease now. There is an error only when ctx has ended or the lease is lost: any other failure is tried
// again.
func (k *keeper) store(ctx context.Context) error { return k.edit(ctx, func(*feed.Record) {}) }

// edit writes the lease now, with a change.
func (k *keeper) edit(ctx context.Context, change func(*feed.Record)) error {
	return k.inTurn(ctx, func() error {
		k.fill(&k.next)
		change(&k.next)
		both, cancel := context.WithCancelCause(k.untilLost)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		return k.write(both)
	})
}

// note changes the next write, without waiting for it. The change sees the lease as it would be written.
func (k *keeper) note(ctx context.Context, change func(*feed.Record)) error {
	return k.inTurn(ctx, func() error {
		k.fill(&k.next)
		change(&k.next)
		return nil
	})
}

// answer is how a write came out. It is never read from an error, because a store may
// return any error of this package.
type answer uint8

const (
	writeFailed answer = iota // or it is not known
	writeStored
	writeRefused // the lease is somebody else's, or gone
	writeOverdue // an earlier write has arrived late: try again on top of it
)

// write stores next, trying again until it is stored, ctx ends or the lease is lost.
func (k *keeper) write(ctx context.Context) error {
	for failures := 1; ; failures++ {
		how, err := k.try(ctx)
		switch {
		case how == writeStored:
			return nil
		case how == writeRefused:
			k.r.view.Distrust()
			k.lose(err)
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case how == writeOverdue && failures == 1: // at once, but only once: a store might answer so each time
			continue
		}
		// A quarter of the renewal at most, so that several tries come before the fuse.
		wait := min(k.r.backoff(k.rng, failures), k.r.opts.Renew/4)
		throttled, ok := errors.AsType[*feed.ThrottledError](err)
		if ok {
			wait = max(wait, min(throttled.After, k.r.opts.Renew/4))
		}
		if !ok || time.Since(k.written) > k.r.opts.Renew*3/2 { // throttling now and then is no news
			k.report(ctx, feed.OriginLeaseStore, err)
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// try writes once.
func (k *keeper) try(ctx context.Context) (answer, error) {
	of := k.fill(&k.next)
	lease := k.next
	lease.ETag, lease.Raw, lease.Timestamp = k.stored.ETag, k.stored.Raw, k.stamp()
	k.unanswered = append(k.unanswered, lease.Timestamp)
	started := time.Now()
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	got, err := k.r.store.Update(bounded, lease)
	if err != nil {
		got.Charge = 0 // a store may return what it was given
	}
	k.r.hooks.StoreDone(feed.StoreDone{Lease: lease.Token, Renewal: k.renewing, Charge: got.Charge, Duration: time.Since(started), Err: err})
	switch {
	case err == nil:
		k.accept(got, of, started)
		return writeStored, nil
	case errors.Is(err, feed.ErrNotFound):
		k.r.view.Drop(lease.ID)
		k.r.relist()
		return writeRefused, fmt.Errorf("%w: its record was deleted", feed.ErrLeaseLost)
	case errors.Is(err, feed.ErrConflict):
		return k.recognize(bounded, of, started)
	}
	return writeFailed, fmt.Errorf("write lease: %w", err)
}

// stamp is the time of a write, later than that of every earlier write, because a write whose
// answer was lost is recognized by its stamp.
func (k *keeper) stamp() time.Time {
	now := timestamp()
	if !now.After(k.stamped) {
		now = k.stamped.Add(timestampGrain)
	}
	k.stamped = now
	return now
}

// recognize finds out after a conflict whether the record holds a write of ours. After the
// write begun at started, all is well. After an earlier write the lease is still ours, trusted
// no longer than before, and next can be tried on top of that write.
func (k *keeper) recognize(ctx context.Context, of mark, started time.Time) (answer, error) {
	if err := k.r.view.list(ctx, time.Now()); err != nil {
		return writeFailed, err
	}
	seen, ok := k.r.view.Get(k.stored.ID)
	if !ok {
		return writeRefused, fmt.Errorf("%w: its record was deleted", feed.ErrLeaseLost)
	}
	ours := slices.ContainsFunc(k.unanswered, seen.Timestamp.Equal)
	if !ours || ownerOf(seen) != ownerOf(k.next) && ownerOf(seen) != ownerOf(k.stored) {
		return writeRefused, fmt.Errorf("%w: %q has it now", feed.ErrLeaseLost, seen.Owner)
	}
	if seen.Timestamp.Equal(k.stamped) {
		k.accept(seen, of, started)
		return writeStored, nil
	}
	k.stored = seen
	return writeOverdue, errors.New("an earlier write was late")
}
