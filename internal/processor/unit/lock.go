package unit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// The right to create leases is a record, the lock. The lock lasts for lockTime after the last write. While the holder
// works, it writes the lock every lockBeat, and sends no request later than createTime after the last of these writes.
// So no request of the holder arrives when another instance may create leases.
const (
	lockTime   = 30 * time.Second
	createTime = lockTime / 3
	lockBeat   = createTime / 3
)

var errLockLost = errors.New("the lock was not renewed in time")

// hold is the lock of this instance.
type hold struct {
	maker      string                      // a unique name of this hold, for the new leases
	lock       atomic.Pointer[feed.Record] // as last written
	unanswered atomic.Bool                 // a create was not answered, and may still arrive
}

// endOfLock returns until when, by the store's clock, no other instance can take the lock. A lease that is created
// later is void: see [records.IsLate].
func (h *hold) endOfLock() time.Time { return h.lock.Load().Updated.Add(lockTime) }

// withLock runs f while only this instance may create leases. If another instance holds the lock, withLock does
// nothing.
func (u *Unit) withLock(ctx context.Context, f func(context.Context, *hold) error) (done bool, err error) {
	lock, asked, err := u.takeLock(ctx)
	if errors.Is(err, feed.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock: %w", err)
	}
	h := &hold{maker: "m" + rand.Text()[:12]}
	h.lock.Store(&lock)
	if err := u.whileLocked(ctx, h, asked, f); err != nil {
		return false, err // a request may still arrive, so the lock is left to expire
	}
	if h.unanswered.Load() {
		return true, nil // a create may still arrive, so the lock is left to expire
	}
	unlocking, cancel := instance.Linger(ctx, u.in.Options.Drain)
	defer cancel()
	u.in.Report(unlocking, feed.OriginLeaseStore, "", u.in.Paced(unlocking, u.in.Random("unlock"), "", func() error {
		return u.eraseRecord(unlocking, *h.lock.Load())
	}))
	return true, nil
}

// isLockAbandoned reports whether another instance has the lock, and no longer works: it would have written the lock.
func (u *Unit) isLockAbandoned() bool {
	locks := u.in.View.Kind(feed.KindLock)
	return len(locks) > 0 && locks[0].State != feed.StateRetired &&
		u.in.View.Now().Sub(locks[0].Updated) > createTime+records.ClockGrain
}

// takeLock creates the lock, or takes over an unheld lock, by a write under the ETag, because a listing may be stale
// and the right to delete may be missing.
func (u *Unit) takeLock(ctx context.Context) (lock feed.Record, asked time.Time, err error) {
	locks := u.in.View.Kind(feed.KindLock)
	if len(locks) == 0 {
		return u.createRecord(ctx, feed.Record{Kind: feed.KindLock, TTL: lockTime})
	}
	free := locks[0]
	if free.State != feed.StateRetired && u.in.View.Now().Sub(free.Updated) <= lockTime+records.ClockGrain {
		return lock, asked, feed.ErrConflict
	}
	free.State, free.TTL, free.Err = feed.StateLive, lockTime, nil
	err = u.in.Paced(ctx, u.in.Random("take lock"), "", func() (err error) {
		asked, free.Timestamp = time.Now(), instance.Timestamp()
		lock, err = u.in.Store.Update(ctx, free)
		return err
	})
	if errors.Is(err, feed.ErrNotFound) { // the time to live has ended
		u.in.View.Drop(free.ID)
		err = feed.ErrConflict
	}
	return lock, asked, err
}

// whileLocked runs f with a context that ends when the lock can no longer be trusted.
func (u *Unit) whileLocked(ctx context.Context, h *hold, asked time.Time, f func(context.Context, *hold) error) error {
	holding, lose := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { u.renewLock(holding, lose, h, asked) })
	err := u.in.View.List(holding, time.Now())
	if err == nil {
		err = f(holding, h)
	}
	lose(nil)
	renewing.Wait()
	return err
}

// renewLock renews a lock, written by a request sent at asked, until ctx ends. After createTime without success
// renewLock calls lose. A conflict may be the echo of a write whose answer was lost; if not, the lock belongs to
// another instance.
func (u *Unit) renewLock(ctx context.Context, lose context.CancelCauseFunc, h *hold, asked time.Time) {
	fuse := time.AfterFunc(time.Until(asked.Add(createTime)), func() { lose(errLockLost) })
	defer fuse.Stop()
	rng := u.in.Random("lock")
	var sent []time.Time
	for wait := lockBeat; pause.For(ctx, wait) == nil; {
		next := *h.lock.Load()
		var got feed.Record
		err := u.in.Paced(ctx, rng, "", func() (err error) {
			asked, next.Timestamp = time.Now(), instance.Timestamp()
			sent = append(sent, next.Timestamp)
			got, err = u.in.Store.Update(ctx, next)
			return err
		})
		switch {
		case err == nil:
			h.lock.Store(&got)
			sent, wait = nil, lockBeat
			fuse.Reset(time.Until(asked.Add(createTime)))
			continue
		case errors.Is(err, feed.ErrConflict):
			err = u.in.View.List(ctx, asked)
			locks := u.in.View.Kind(feed.KindLock)
			// An echo does not reset the fuse, because the echo may belong to an earlier request than the last, and the
			// lock is trusted from the time of the stored request.
			if ours := len(locks) > 0 && slices.ContainsFunc(sent, locks[0].Timestamp.Equal); ours {
				h.lock.Store(&locks[0])
			} else if err == nil {
				lose(errLockLost)
			}
		case errors.Is(err, feed.ErrNotFound):
			lose(errLockLost)
		}
		if err != nil && ctx.Err() == nil {
			u.in.Report(ctx, feed.OriginLeaseStore, "", fmt.Errorf("renew lock: %w", err))
		}
		wait = lockBeat / 3
	}
}
