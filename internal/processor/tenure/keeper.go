package tenure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/beat"
	"github.com/millrace/changefeed/internal/processor/dispatch"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How an instance holds a lease
//
// The keeper writes a held lease, at the worker's request or to renew it, one write at a time. Each write is
// conditional on the ETag of the previous write. So if another instance has written the lease, the former owner cannot
// write the lease again: a conflict tells the owner about the replacement.
//
// A conflict may also be the echo of a write of ours whose answer was lost. Then the record has the owner, epoch and
// timestamp of our write, and the keeper continues from this write.
//
// Other instances take the lease when the owner has been silent for the expiration by the store's clock, counted from
// when the store accepted the write. The keeper counts the same time by the instance's own monotonic clock from
// *before* the write was sent, minus a margin, and then gives up. So the handler's context ends before any other
// instance can begin, however slow the store is, and whatever the clocks say.

// keeper is the only writer of a held lease, so that each write knows the ETag of the previous write.
type keeper struct {
	in    *instance.Instance
	held  *instance.Held
	turn  chan struct{} // has room for one element, which the writer holds
	fuse  *time.Timer   // calls lose when the lease can no longer be trusted
	due   *time.Timer   // time of the next renewal
	place float64       // position in the burst of renewals, from 0 to 1

	fill  func(*feed.Record) dispatch.Mark // puts the progress into a record
	saved func(dispatch.Mark)              // notes that a mark is stored

	// Only the holder of the turn uses these.
	rng        *rand.Rand
	stored     feed.Record // as last written
	next       feed.Record // the next version, without the progress
	written    time.Time   // when the last successful write was begun
	unanswered []time.Time // timestamps of the writes since then, with unknown outcomes
	stamped    time.Time   // the last timestamp
	renewing   bool
}

func newKeeper(in *instance.Instance, held *instance.Held, started time.Time) *keeper {
	k := &keeper{
		in: in, held: held, turn: make(chan struct{}, 1), rng: in.Random("keeper " + held.Lease.Token),
		fill: func(*feed.Record) dispatch.Mark { return dispatch.Mark{} }, saved: func(dispatch.Mark) {},
	}
	k.place = k.rng.Float64()
	k.stamped = held.Lease.Timestamp // the first write must differ from the one that has taken the lease
	k.fuse = time.AfterFunc(time.Until(k.trustedUntil(started)), func() {
		k.held.Lose(fmt.Errorf("%w: not renewed in time", feed.ErrLeaseLost))
	})
	k.acceptWrite(held.Lease, dispatch.Mark{}, started)
	records.SetProperty(&k.next, notes.DueProperty, "") // it was made in time
	k.due = time.NewTimer(time.Until(k.nextRenewal()))
	return k
}

// trustedUntil returns when the owner must give up a lease written by a request begun at t.
func (k *keeper) trustedUntil(t time.Time) time.Time {
	return t.Add(k.in.Options.Trust())
}

// acceptWrite continues from the outcome of a write begun at started.
func (k *keeper) acceptWrite(lease feed.Record, of dispatch.Mark, started time.Time) {
	k.stored, k.next, k.written, k.unanswered = lease, lease, started, nil
	k.held.Troubles.Remove(feed.OriginLeaseStore)
	k.fuse.Reset(time.Until(k.trustedUntil(started)))
	k.saved(of)
	k.in.View.Put(lease)
}

// keepRenewing renews the lease until the lease is lost or given up.
func (k *keeper) keepRenewing() {
	defer k.fuse.Stop()
	defer k.due.Stop()
	for {
		renew := k.renew
		select {
		case <-k.held.UntilLost.Done():
			return
		case <-k.held.Checks():
		case <-k.due.C:
			renew = k.renewIfDue
		}
		if k.inTurn(k.held.UntilLost, renew) != nil {
			return
		}
	}
}

// inTurn calls a function when no other write is running. inTurn returns the function's error, or why there was no
// call.
func (k *keeper) inTurn(ctx context.Context, f func() error) error {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-k.held.UntilLost.Done():
		return context.Cause(k.held.UntilLost)
	}
	defer func() {
		k.due.Reset(time.Until(k.nextRenewal()))
		<-k.turn
	}()
	if k.held.UntilLost.Err() != nil {
		return context.Cause(k.held.UntilLost)
	}
	return f()
}

// renew writes the lease even if there is nothing to store, because a silent owner expires.
func (k *keeper) renew() error {
	k.renewing = true
	defer func() { k.renewing = false }()
	return k.write(k.held.UntilLost)
}

// renewIfDue renews the lease, unless another write happened while the renewal waited.
func (k *keeper) renewIfDue() error {
	if time.Now().Before(k.nextRenewal()) {
		return nil
	}
	return k.renew()
}

// nextRenewal returns when the lease must be written next.
func (k *keeper) nextRenewal() time.Time {
	of := beat.Beat{Phase: k.in.Since, Every: k.in.Options.Renew, Trust: k.in.Options.Trust()}
	return of.Next(k.written, k.place, k.in.Claims.Number())
}

// store writes the lease now. store returns an error only if ctx has ended or the lease is lost: after any other
// failure store retries.
func (k *keeper) store(ctx context.Context) error { return k.storeWith(ctx, func(*feed.Record) {}) }

// storeWith writes the lease now, with a change.
func (k *keeper) storeWith(ctx context.Context, change func(*feed.Record)) error {
	return k.inTurn(ctx, func() error {
		k.fill(&k.next)
		change(&k.next)
		both, cancel := context.WithCancelCause(k.held.UntilLost)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		return k.write(both)
	})
}

// storeInstead writes the lease a last time. The lease then has the values of change, and nothing of the delivery.
func (k *keeper) storeInstead(ctx context.Context, change func(*feed.Record)) error {
	if err := k.inTurn(ctx, func() error {
		k.fill = func(l *feed.Record) dispatch.Mark {
			change(l)
			return dispatch.Mark{}
		}
		return nil
	}); err != nil {
		return err
	}
	return k.store(ctx)
}

// storeLast writes the lease a last time, with a change to what it says of the progress.
func (k *keeper) storeLast(ctx context.Context, change func(*feed.Record)) error {
	if err := k.inTurn(ctx, func() error {
		progress, before := k.fill, k.next.Properties
		k.fill = func(l *feed.Record) dispatch.Mark {
			l.Properties = before // without the change, which is made again if the write is
			mark := progress(l)
			change(l)
			return mark
		}
		return nil
	}); err != nil {
		return err
	}
	return k.store(ctx)
}

// dropStart leaves out the start of the position from the next write on: the position has come beyond it. So the ranks
// of this lease and of a lease of more keys can be compared.
func (k *keeper) dropStart(ctx context.Context) error {
	return k.inTurn(ctx, func() error {
		progress := k.fill
		k.fill = func(l *feed.Record) dispatch.Mark {
			mark := progress(l)
			l.Position.Start = feed.Start{}
			return mark
		}
		return nil
	})
}

// ownedUntil returns until when, by the store's clock, no other instance can own the lease.
func (k *keeper) ownedUntil(ctx context.Context) (at time.Time, err error) {
	err = k.inTurn(ctx, func() error {
		at = k.stored.Updated.Add(k.in.Options.Expiration)
		return nil
	})
	return at, err
}

// changeNextWrite changes the next write without waiting. The change receives the lease in the form of the next write.
func (k *keeper) changeNextWrite(ctx context.Context, change func(*feed.Record)) error {
	return k.inTurn(ctx, func() error {
		k.fill(&k.next)
		change(&k.next)
		return nil
	})
}
