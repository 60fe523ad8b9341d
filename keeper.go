package changefeed

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"
)

// How a lease is held
//
// One goroutine, the keeper, writes a held lease; the worker asks it to. Each write is
// conditional on the ETag of the one before, so a lease that somebody else has written
// cannot be written again: whoever was replaced finds out by a conflict.
//
// A conflict may also be the echo of a write of ours whose answer was lost. Then the
// record has the owner, epoch and timestamp of that write, and we go on from it.
//
// Others take the lease when its owner has been silent for the expiration by the
// store's clock, counted from when the store took the write. The keeper counts the same
// time by its own monotonic clock from *before* it sent the write, less a margin, and
// then gives up: the handler's context ends before anybody else can begin, however
// slow the store, and whatever the clocks say.
type keeper struct {
	r     *run
	lost  context.CancelCauseFunc // ends the lease's context
	asks  chan ask
	check chan struct{} // somebody doubts that the lease is ours
	fuse  *time.Timer   // calls lost when the lease can no longer be trusted
	rng   *mathrand.Rand
	place float64 // in the burst of renewals, from 0 to 1

	// Of the keeper's goroutine.
	stored  Lease       // as last written
	next    Lease       // what the next write says
	written time.Time   // when the last successful write was begun
	doubt   []time.Time // timestamps of the writes since then, whose outcome is not known
	stamped time.Time   // the last timestamp
}

// ask is what the worker wants: an edit, and whether it must be stored now.
type ask struct {
	ctx   context.Context
	edit  func(*Lease)
	write bool
	done  chan error
}

func newKeeper(r *run, l Lease, started time.Time, lost context.CancelCauseFunc) *keeper {
	k := &keeper{r: r, lost: lost, asks: make(chan ask), check: make(chan struct{}, 1), rng: r.random("keeper " + l.Token)}
	k.place = k.rng.Float64()
	k.fuse = time.AfterFunc(time.Until(k.trustedUntil(started)), func() {
		lost(fmt.Errorf("%w: not renewed in time", ErrLeaseLost))
	})
	k.accept(l, started)
	return k
}

// trustedUntil is when a lease written by a request begun at t must be given up.
func (k *keeper) trustedUntil(t time.Time) time.Time {
	return t.Add(k.r.opts.Expiration - k.r.opts.margin())
}

// accept takes over the outcome of a write begun at started.
func (k *keeper) accept(l Lease, started time.Time) {
	k.stored, k.next, k.written, k.doubt = l, l, started, nil
	k.fuse.Reset(time.Until(k.trustedUntil(started)))
	k.r.view.put(l)
}

// keep serves the worker and renews, until ctx ends.
func (k *keeper) keep(ctx context.Context) {
	defer k.fuse.Stop()
	renew := time.NewTimer(time.Until(k.renewal()))
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-k.asks:
			a.done <- k.serve(ctx, a)
		case <-k.check:
			if k.write(ctx) != nil {
				return
			}
		case <-renew.C:
			if k.write(ctx) != nil {
				return
			}
		}
		renew.Reset(time.Until(k.renewal()))
	}
}

// doubted has the keeper write now: if the lease is somebody else's, it will hear of it.
func (k *keeper) doubted() {
	select {
	case k.check <- struct{}{}:
	default:
	}
}

// renewal is when the lease must be written next: on the instance's beat, so that idle
// leases are renewed together and those who follow the lease container wake once, but
// one after the other, so that the burst does not overrun a small container. A
// checkpoint is a renewal, so after one the next beat may be passed over if that is
// safe.
func (k *keeper) renewal() time.Time {
	due := k.written.Add(k.r.opts.Renew)
	burst := quickBurst
	if held := k.r.held(); held > smallBurst {
		burst = renewalPace * time.Duration(held)
	}
	burst = min(burst, k.r.opts.Renew/2)
	phase := k.r.phase.Add(time.Duration(k.place * float64(burst)))
	beat := due.Add(-(due.Sub(phase) % k.r.opts.Renew))
	later := beat.Add(k.r.opts.Renew)
	soon := beat.Sub(k.written) < k.r.opts.Renew/2
	if soon && later.Sub(k.written) < (k.r.opts.Expiration-k.r.opts.margin())/2 {
		return later
	}
	if soon {
		return due
	}
	return beat
}

// The smallest container there is serves 400 request units a second: about 40 renewals.
const (
	smallBurst  = 40 // so many renewals may come at once,
	quickBurst  = 250 * time.Millisecond
	renewalPace = 25 * time.Millisecond // more keep this distance
)

func (k *keeper) serve(ctx context.Context, a ask) error {
	a.edit(&k.next)
	if !a.write {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })()
	return k.write(ctx)
}

// do asks the keeper for an edit and waits for it. When the lease is lost it returns why.
func (k *keeper) do(ctx context.Context, lease context.Context, write bool, edit func(*Lease)) error {
	a := ask{ctx: ctx, edit: edit, write: write, done: make(chan error, 1)}
	select {
	case k.asks <- a:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-lease.Done():
		return context.Cause(lease)
	}
	return <-a.done // the keeper answers: its writes end with either context
}

// write stores next, trying again until it is stored, ctx ends or the lease is lost.
func (k *keeper) write(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := k.try(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if gone, ok := err.(leaseGone); ok {
			k.r.view.distrust()
			k.lost(gone.error)
			return gone.error
		}
		if err == errAgain && failures == 1 {
			continue
		}
		wait := min(k.r.backoff(k.rng, failures), k.r.opts.Renew/4)
		throttled := (*ThrottledError)(nil)
		if errors.As(err, &throttled) {
			wait = max(wait, min(throttled.After, k.r.opts.Renew/4))
		}
		if throttled == nil || time.Since(k.written) > k.r.opts.Renew*3/2 { // throttling now and then is no news
			k.r.report(ctx, OriginLeaseStore, k.stored.Token, err)
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// try writes once.
func (k *keeper) try(ctx context.Context) error {
	l := k.next
	l.ETag, l.Raw, l.Timestamp = k.stored.ETag, k.stored.Raw, k.stamp()
	k.doubt = append(k.doubt, l.Timestamp)
	started := time.Now()
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	got, err := k.r.store.Update(bounded, l)
	switch {
	case err == nil:
		k.accept(got, started)
		return nil
	case errors.Is(err, ErrNotFound):
		k.r.view.drop(l.ID)
		return gone("its record was deleted")
	case errors.Is(err, ErrConflict):
		return k.settle(bounded, started)
	}
	return fmt.Errorf("write lease: %w", err)
}

// stamp is the time of a write, later than that of each one before: a write whose answer
// was lost is recognised by it.
func (k *keeper) stamp() time.Time {
	now := timestamp()
	if !now.After(k.stamped) {
		now = k.stamped.Add(timestampGrain)
	}
	k.stamped = now
	return now
}

// settle finds out after a conflict whether the record holds a write of ours. If it holds
// the one begun at started, all is well. If it holds an earlier one, the lease is ours
// from the time before that write, and next can be tried on top of it.
func (k *keeper) settle(ctx context.Context, started time.Time) error {
	if err := k.r.view.list(ctx, time.Now()); err != nil {
		return err
	}
	seen, ok := k.r.view.get(k.stored.ID)
	if !ok {
		return gone("its record was deleted")
	}
	ours := slices.ContainsFunc(k.doubt, seen.Timestamp.Equal)
	if !ours || seen.owner() != k.next.owner() && seen.owner() != k.stored.owner() {
		return gone("%q has it now", seen.Owner)
	}
	if seen.Timestamp.Equal(k.stamped) {
		k.accept(seen, started)
		return nil
	}
	k.stored = seen
	return errAgain
}

// errAgain has a write tried again on top of an earlier one whose answer was lost: at
// once, but a store may say so each time, so only once without a pause.
var errAgain = errors.New("an earlier write was late")

// leaseGone is the end of a lease. It is a type of its own because a store may return
// errors that wrap ErrLeaseLost, and those are failures like others.
type leaseGone struct{ error }

func gone(format string, args ...any) leaseGone {
	return leaseGone{fmt.Errorf("%w: %s", ErrLeaseLost, fmt.Sprintf(format, args...))}
}
