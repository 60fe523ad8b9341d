package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/dispatch"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// answer is the outcome of a write. The keeper never derives the outcome from an error alone, because a store may
// return any error of this package.
type answer uint8

const (
	writeFailed answer = iota // or the outcome is unknown
	writeStored
	writeRefused // the lease belongs to another owner, or is gone
	writeOverdue // an earlier write has arrived late: retry on top
)

// write stores next, and retries until the write succeeds, ctx ends or the lease is lost.
func (k *keeper) write(ctx context.Context) error {
	for failures := 1; ; failures++ {
		how, err := k.writeOnce(ctx)
		switch {
		case how == writeStored:
			return nil
		case how == writeRefused:
			k.in.View.Distrust()
			k.held.Lose(err)
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case how == writeOverdue && failures == 1: // at once, but only once, because a store might answer so each time
			continue
		}
		// At most a quarter of the renewal interval, so that there are several tries before the fuse.
		wait := min(k.in.Backoff(k.rng, failures), k.in.Options.Renew/4)
		throttled, ok := errors.AsType[*feed.ThrottledError](err)
		if ok {
			wait = max(wait, min(throttled.After, k.in.Options.Renew/4))
		}
		if !ok || time.Since(k.written) > k.in.Options.Renew*3/2 { // occasional throttling is not reported
			k.held.Report(ctx, feed.OriginLeaseStore, err)
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// writeOnce makes a single write.
func (k *keeper) writeOnce(ctx context.Context) (answer, error) {
	of := k.fill(&k.next)
	lease := k.next
	lease.ETag, lease.Raw, lease.Timestamp = k.stored.ETag, k.stored.Raw, k.nextStamp()
	k.unanswered = append(k.unanswered, lease.Timestamp)
	started := time.Now()
	bounded, cancel := context.WithTimeout(ctx, records.StoreTimeout)
	defer cancel()
	got, err := k.in.Store.Update(bounded, lease)
	if err != nil {
		got.Charge = 0 // a store may return its argument
	}
	instance.CallHook(k.in, k.in.Hooks.StoreDone, feed.StoreDone{
		Lease: lease.Token, Renewal: k.renewing, Charge: got.Charge,
		Duration: time.Since(started), Err: err,
	})
	switch {
	case err == nil:
		k.acceptWrite(got, of, started)
		return writeStored, nil
	case errors.Is(err, feed.ErrNotFound):
		k.in.View.Drop(lease.ID)
		k.in.Relist()
		return writeRefused, fmt.Errorf("%w: its record was deleted", feed.ErrLeaseLost)
	case errors.Is(err, feed.ErrConflict):
		return k.recognizeOwnWrite(bounded, of, started)
	}
	return writeFailed, fmt.Errorf("write lease: %w", err)
}

// nextStamp returns the time of a write, later than that of every earlier write, because by the stamp the keeper
// recognizes a write whose answer was lost.
func (k *keeper) nextStamp() time.Time {
	now := instance.Timestamp()
	if !now.After(k.stamped) {
		now = k.stamped.Add(instance.TimestampGrain)
	}
	k.stamped = now
	return now
}

// recognizeOwnWrite finds out after a conflict whether the record contains a write of ours. After the write begun at
// started, all is well. After an earlier write, the lease is still ours, trusted no longer than before, and the keeper
// can retry next on top of the earlier write.
func (k *keeper) recognizeOwnWrite(ctx context.Context, of dispatch.Mark, started time.Time) (answer, error) {
	if err := k.in.View.List(ctx, time.Now()); err != nil {
		return writeFailed, err
	}
	seen, ok := k.in.View.Get(k.stored.ID)
	if !ok {
		return writeRefused, fmt.Errorf("%w: its record was deleted", feed.ErrLeaseLost)
	}
	ours := slices.ContainsFunc(k.unanswered, seen.Timestamp.Equal)
	if !ours || records.OwnerOf(seen) != records.OwnerOf(k.next) && records.OwnerOf(seen) != records.OwnerOf(k.stored) {
		return writeRefused, fmt.Errorf("%w: %q has it now", feed.ErrLeaseLost, seen.Owner)
	}
	if seen.Timestamp.Equal(k.stamped) {
		k.acceptWrite(seen, of, started)
		return writeStored, nil
	}
	k.stored = seen
	return writeOverdue, errors.New("an earlier write was late")
}
