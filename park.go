package changefeed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/delivery"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/notes"
)

// How changes are parked
//
// A change is parked when its letter is durable. With Options.HoldKeys its key is held from then on, until an operator
// releases it: the lease says which keys, and since which LSN, and what comes after that is parked too. See redrive.go
// for the way back.

// park stores the letter of a batch of one change.
func (d *dispatcher) park(b *delivery.Batch) {
	l := d.letter(b)
	there, err := d.isParked(b, l)
	if err == nil && !there {
		err = d.outside(func(ctx context.Context, _ func()) error { return d.r.opts.DeadLetters.Put(ctx, l) })
	}
	d.mu.Lock()
	if err == nil {
		d.engine.LetterStored(b, time.Now())
	} else {
		d.engine.LetterRefused(b, time.Now())
	}
	d.mu.Unlock()
	switch {
	case err != nil:
		d.report(d.untilStopped, feed.OriginDeadLetters, fmt.Errorf("park %w", letterError(l, err)))
	case !there:
		d.r.hooks.Parked(l)
	}
	d.save(false)
	d.wake()
}

// isParked reports whether a change has its letter already whose key is held for it: it comes again after a crash. The
// lease decides what is held, because a letter that was stored a moment ago may not be seen yet, and an operator may have
// dropped it.
func (d *dispatcher) isParked(b *delivery.Batch, l feed.DeadLetter) (there bool, err error) {
	if !b.IsHeld() {
		return false, nil
	}
	box, ok := d.r.opts.DeadLetters.(feed.LetterBox)
	if !ok {
		return false, errNoBox
	}
	d.mu.Lock()
	since := d.engine.HeldSince(string(l.Change.PartitionKey))
	d.mu.Unlock()
	if since > 0 && l.Change.LSN != since {
		return false, nil
	}
	return d.isThere(box, l)
}

// errNoBox is why the changes of a held key wait, with all that comes after them of it.
var errNoBox = errors.New("its key is held, and this instance has no letter box: set Options.DeadLetters to the unit's")

// reportUnheld reports a change that waits because its key cannot be held.
func (d *dispatcher) reportUnheld(b *delivery.Batch) {
	l := d.letter(b)
	d.report(d.untilStopped, feed.OriginDeadLetters, fmt.Errorf("park %w", letterError(l,
		fmt.Errorf("%w: a lease has room for %d, and for less of long ones: release some", feed.ErrTooManyHeld, notes.MaxHeld))))
}

func letterError(l feed.DeadLetter, err error) error {
	return fmt.Errorf("item %q of partition %s, LSN %d: %w", l.Change.ID, l.Change.PartitionKey, l.Change.LSN, err)
}

// outside calls the dead letters, whose code is not ours either: what does not return, or show that it is alive, is left
// behind.
func (d *dispatcher) outside(f func(ctx context.Context, alive func()) error) error {
	ctx, cancel := context.WithCancelCause(d.untilDrained)
	defer cancel(nil)
	fuse := time.AfterFunc(storeTimeout, func() { cancel(context.DeadlineExceeded) })
	defer fuse.Stop()
	result := d.delegate.launch(ctx, func(ctx context.Context) error { return f(ctx, func() { fuse.Reset(storeTimeout) }) })
	select {
	case err := <-result:
		return foreign(err)
	case <-ctx.Done():
	}
	// Code that heeds its context returns now, and its own error says more than ours.
	select {
	case err := <-result:
		return foreign(err)
	case <-time.After(d.r.opts.RetryMin):
		return fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// foreign is an error of the dead letters, which are no handler when they panic.
func foreign(err error) error {
	if panicked, ok := errors.AsType[*feed.PanicError](err); ok {
		return fmt.Errorf("dead letters panicked: %v", panicked.Value)
	}
	return err
}

// letter is what is parked of a batch of one change.
func (d *dispatcher) letter(b *delivery.Batch) feed.DeadLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := b.Changes[0]
	change := *changeOf(c)
	l := feed.DeadLetter{
		ID: letterID(d.r.opts.Mode, c.LSN, c.Place, change.ID), Index: c.Place, Change: change, Disposition: feed.DispositionHeld,
		Instance: d.r.me.Instance, Lease: d.lease.Token, Range: d.lease.Range, Parked: time.Now(),
	}
	if !b.IsHeld() {
		l.Attempts, l.Failed = c.Calls(), b.Failing()
		setCause(&l, b.Err)
	}
	return l
}

// setCause notes why the change of a letter is not done.
func setCause(l *feed.DeadLetter, err error) {
	l.Cause, l.Stack, l.Disposition = fold.Text(err), "", feed.DispositionFailed
	if panicked, ok := errors.AsType[*feed.PanicError](err); ok {
		l.Stack = string(panicked.Stack)
	}
	_, undecodable := errors.AsType[*feed.DecodeError](err)
	switch {
	case undecodable:
		l.Disposition = feed.DispositionUndecodable
	case errors.Is(err, delivery.ErrCrashed):
		l.Disposition = feed.DispositionCrashed
	case feed.IsPoison(err):
		l.Disposition = feed.DispositionPoison
	}
}

// isThere reports whether a letter is among those of its key.
func (d *dispatcher) isThere(box feed.LetterBox, l feed.DeadLetter) (there bool, err error) {
	err = d.eachLetter(box, l.Change.PartitionKey, func(o feed.DeadLetter) bool {
		there = o.ID == l.ID
		return !there && o.Change.LSN <= l.Change.LSN
	})
	return there, err
}

// eachLetter calls f with the letters of a key, for as long as it says so.
func (d *dispatcher) eachLetter(box feed.LetterBox, key feed.PartitionKey, f func(feed.DeadLetter) (more bool)) error {
	var mu sync.Mutex
	over := false // what is left behind calls f no more
	err := d.outside(func(ctx context.Context, alive func()) error {
		for l, err := range box.Letters(ctx, key) {
			if err != nil {
				return err
			}
			alive()
			mu.Lock()
			over = over || !f(l)
			done := over
			mu.Unlock()
			if done {
				break
			}
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
	return err
}

// letterID names the letter of a change. In latest-version mode its place among the changes of its
// LSN moves when another item of the transaction is written again, so it is named by its item.
func letterID(m feed.Mode, lsn int64, place int, item string) string {
	if m == feed.AllVersionsAndDeletes {
		return fmt.Sprintf("%d.%d", lsn, place)
	}
	// Half of the hash is as much as nobody finds two items for, not even who chooses their names.
	h := sha256.Sum256([]byte(item))
	return fmt.Sprintf("%d.%x", lsn, h[:sha256.Size/2])
}
