package changefeed

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/internal/beat"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/progress"
)

// How a lease is held
//
// One goroutine, the keeper, writes a held lease at the worker's request. Each write is
// conditional on the ETag of the write before, so a lease that somebody else has written
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

// keeper is the only writer of a held lease, so that each write knows the ETag of the last.
type keeper struct {
	*tenure
	asks  chan ask
	check chan struct{}  // another owner was seen
	fuse  *time.Timer    // calls lose when the lease can no longer be trusted
	rng   *mathrand.Rand // of its own goroutine
	place float64        // in the burst of renewals, from 0 to 1

	beside func(*Record) // adds what the lease says beside its position

	mu       sync.Mutex
	progress leaseProgress // the checkpoints of handlers move it too

	// Of the keeper's goroutine.
	stored     Record      // as last written
	next       Record      // what the next write stores, but for the progress
	written    time.Time   // when the last successful write was begun
	unanswered []time.Time // timestamps of the writes since then, whose outcome is not known
	stamped    time.Time   // the last timestamp
	renewing   bool
}

type (
	leaseProgress = progress.Progress[Position]
	delivery      = progress.Delivery[Position]
)

// progressOf is the progress of a lease that we have just got. One that is splitting
// moves no more, because its children begin where it is.
func progressOf(lease Record, o Options, now time.Time) leaseProgress {
	p := progress.New(lease.Position, lease.Attempts, progress.Rules{Manual: o.Manual, Items: o.CheckpointItems, Every: o.CheckpointEvery}, now)
	if lease.State == StateSplitting {
		p.Freeze()
	}
	return p
}

// ask is a request of the worker: an edit, and whether it must be stored now.
type ask struct {
	ctx   context.Context
	edit  func(*Record)
	write bool
	done  chan error
}

func newKeeper(t *tenure, started time.Time) *keeper {
	k := &keeper{
		tenure: t, asks: make(chan ask), check: make(chan struct{}, 1),
		rng: t.r.random("keeper " + t.lease.Token), progress: progressOf(t.lease, t.r.opts, time.Now()),
	}
	k.place = k.rng.Float64()
	k.fuse = time.AfterFunc(time.Until(k.trustedUntil(started)), func() {
		k.lose(fmt.Errorf("%w: not renewed in time", ErrLeaseLost))
	})
	k.accept(t.lease, 0, started)
	return k
}

// trustedUntil is when a lease written by a request begun at t must be given up.
func (k *keeper) trustedUntil(t time.Time) time.Time {
	return t.Add(k.r.opts.trust())
}

// accept goes on from the outcome of a write begun at started, which covers so many
// changes for the first time.
func (k *keeper) accept(lease Record, unsaved int, started time.Time) {
	k.stored, k.next, k.written, k.unanswered = lease, lease, started, nil
	k.troubles.Remove(OriginLeaseStore)
	k.fuse.Reset(time.Until(k.trustedUntil(started)))
	k.move(func(p *leaseProgress) { p.Wrote(unsaved, time.Now()) })
	k.r.view.put(lease)
}

// move changes the progress that the next write stores, without waiting for that write.
func (k *keeper) move(change func(*leaseProgress)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.progress)
}

// deliver notes that a page goes to the handler.
func (k *keeper) deliver(page Page) (on *delivery) {
	k.move(func(p *leaseProgress) { on = p.Deliver(page.Next, len(page.Changes), time.Now()) })
	return on
}

// soFar is the progress by now.
func (k *keeper) soFar() (p leaseProgress) {
	k.move(func(now *leaseProgress) { p = *now })
	return p
}

// keep serves the worker and renews, until the lease is lost or given up.
func (k *keeper) keep() {
	defer k.fuse.Stop()
	renew := time.NewTimer(time.Until(k.renewal()))
	defer renew.Stop()
	for {
		select {
		case <-k.untilLost.Done():
			return
		case a := <-k.asks:
			a.done <- k.serve(a)
		case <-k.check:
			if k.renew() != nil {
				return
			}
		case <-renew.C:
			if k.renew() != nil {
				return
			}
		}
		renew.Reset(time.Until(k.renewal()))
	}
}

// renew writes the lease though there may be nothing to store, because a silent owner expires.
func (k *keeper) renew() error {
	k.renewing = true
	defer func() { k.renewing = false }()
	return k.write(k.untilLost)
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

func (k *keeper) serve(a ask) error {
	k.mark()
	a.edit(&k.next)
	if !a.write {
		return nil
	}
	ctx, cancel := context.WithCancelCause(k.untilLost)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })()
	return k.write(ctx)
}

// store makes the keeper write the lease now, and waits. There is an error only when ctx has
// ended or the lease is lost: any other failure is tried again.
func (k *keeper) store(ctx context.Context) error { return k.edit(ctx, func(*Record) {}) }

// edit makes the keeper write the lease now, with a change.
func (k *keeper) edit(ctx context.Context, change func(*Record)) error {
	return k.do(ask{ctx: ctx, edit: change, write: true})
}

// note changes the next write, without waiting for it. The change sees the lease as it would be written.
func (k *keeper) note(ctx context.Context, change func(*Record)) error {
	return k.do(ask{ctx: ctx, edit: change})
}

// do hands an ask to the goroutine of the keeper. Nobody else writes the lease, so
// edits need no lock, and no two writes of ours compete for its ETag.
func (k *keeper) do(a ask) error {
	a.done = make(chan error, 1)
	select {
	case k.asks <- a:
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	case <-k.untilLost.Done():
		return context.Cause(k.untilLost)
	}
	return <-a.done // the keeper answers: its writes end with either context
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
		throttled, ok := errors.AsType[*ThrottledError](err)
		if ok {
			wait = max(wait, min(throttled.After, k.r.opts.Renew/4))
		}
		if !ok || time.Since(k.written) > k.r.opts.Renew*3/2 { // throttling now and then is no news
			k.report(ctx, OriginLeaseStore, err)
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// try writes once.
func (k *keeper) try(ctx context.Context) (answer, error) {
	unsaved := k.mark()
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
	k.r.hooks.StoreDone(StoreDone{Lease: lease.Token, Renewal: k.renewing, Charge: got.Charge, Duration: time.Since(started), Err: err})
	switch {
	case err == nil:
		k.accept(got, unsaved, started)
		return writeStored, nil
	case errors.Is(err, ErrNotFound):
		k.r.view.Drop(lease.ID)
		return writeRefused, fmt.Errorf("%w: its record was deleted", ErrLeaseLost)
	case errors.Is(err, ErrConflict):
		return k.recognize(bounded, unsaved, started)
	}
	return writeFailed, fmt.Errorf("write lease: %w", err)
}

// mark copies the progress into the next write.
func (k *keeper) mark() (unsaved int) {
	k.move(func(p *leaseProgress) {
		k.next.Position, k.next.Attempts, unsaved = p.Position, p.Attempts, p.Unsaved
	})
	k.beside(&k.next) // after the position: what is held must be said when it has moved past that
	return unsaved
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
func (k *keeper) recognize(ctx context.Context, unsaved int, started time.Time) (answer, error) {
	if err := k.r.view.list(ctx, time.Now()); err != nil {
		return writeFailed, err
	}
	seen, ok := k.r.view.Get(k.stored.ID)
	if !ok {
		return writeRefused, fmt.Errorf("%w: its record was deleted", ErrLeaseLost)
	}
	ours := slices.ContainsFunc(k.unanswered, seen.Timestamp.Equal)
	if !ours || seen.owner() != k.next.owner() && seen.owner() != k.stored.owner() {
		return writeRefused, fmt.Errorf("%w: %q has it now", ErrLeaseLost, seen.Owner)
	}
	if seen.Timestamp.Equal(k.stamped) {
		k.accept(seen, unsaved, started)
		return writeStored, nil
	}
	k.stored = seen
	return writeOverdue, errors.New("an earlier write was late")
}

// checkpoint is [Batch.Checkpoint] of a page, and of all before it.
func (k *keeper) checkpoint(ctx context.Context, on *delivery) error {
	var how progress.Standing
	k.move(func(p *leaseProgress) { how = p.Checkpoint(on) })
	switch how {
	case progress.Stored:
		return nil
	case progress.Void:
		return fmt.Errorf("%w: this batch comes again in smaller parts", ErrHandlerTimeout)
	case progress.Frozen:
		return fmt.Errorf("%w: its range was split", ErrLeaseLost)
	}
	if err := k.store(ctx); err != nil {
		return err
	}
	k.move(func(p *leaseProgress) { p.Confirm(on) })
	return nil
}
