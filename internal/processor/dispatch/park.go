package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How changes are parked
//
// A change is parked when the letter is durable. With FailurePolicy.HoldKeys the key is held from then on, until an
// operator releases it: the lease says which keys, and since which LSN, and later changes are parked too. See
// redrive.go for the way back.

// storeLetter stores the letter of a batch of a single change.
func (d *Dispatcher) storeLetter(b *delivery.Batch) {
	l := d.newLetter(b)
	there, err := d.isParked(b, l)
	if err == nil && !there {
		err = d.letters.callLetters(func(ctx context.Context, _ func()) error {
			return d.in.Options.DeadLetters.Put(ctx, l)
		})
	}
	d.mu.Lock()
	ours := !there || b.HasBeenRefused() // the answer to an earlier try may be lost
	if err == nil {
		d.held.Troubles.Remove(feed.OriginDeadLetters)
		d.engine.Tell(delivery.LetterStored{Batch: b}, time.Now())
	} else {
		d.engine.Tell(delivery.LetterRefused{Batch: b}, time.Now())
	}
	d.mu.Unlock()
	switch {
	case err != nil:
		d.held.Report(d.held.UntilStopped, feed.OriginDeadLetters, fmt.Errorf("park %w", letterError(l, err)))
	case ours:
		instance.CallHook(d.in, d.in.Hooks.Parked, l)
	}
	d.saveIfDue(false)
	d.wakeAll()
}

// isParked reports whether a change, which comes again after a crash, has a letter already and holds the key. The lease
// decides which keys are held, because a letter that was stored a moment ago may not be seen yet, and an operator may
// have dropped it.
func (d *Dispatcher) isParked(b *delivery.Batch, l feed.DeadLetter) (there bool, err error) {
	if !b.IsHeld() {
		return false, nil
	}
	box, ok := d.in.Options.DeadLetters.(feed.LetterBox)
	if !ok {
		return false, errNoBox
	}
	d.mu.Lock()
	since := b.HeldSince()
	d.mu.Unlock()
	if since > 0 && l.Change.LSN != since {
		return false, nil
	}
	return d.letters.hasLetter(box, l)
}

// errNoBox is why the changes of a held key wait, with all later changes of the key.
var errNoBox = errors.New("its key is held, and this instance has no letter box: set FailurePolicy.DeadLetters to " +
	"the unit's")

// reportUnheld reports a change that waits because the key cannot be held.
func (d *Dispatcher) reportUnheld(b *delivery.Batch) {
	l := d.newLetter(b)
	d.held.Report(d.held.UntilStopped, feed.OriginDeadLetters, fmt.Errorf("park %w", letterError(l,
		fmt.Errorf("%w: a lease has room for %d, and for less of long ones: release some", feed.ErrTooManyHeld,
			notes.MaxHeld))))
}

func letterError(l feed.DeadLetter, err error) error {
	return fmt.Errorf("item %q of partition %s, LSN %d: %w", l.Change.ID, l.Change.PartitionKey, l.Change.LSN, err)
}

// newLetter returns the letter of a batch of a single change.
func (d *Dispatcher) newLetter(b *delivery.Batch) feed.DeadLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := b.Changes[0]
	change := *changeOf(c)
	l := feed.DeadLetter{
		ID: records.LetterID(d.in.Options.Mode, c.LSN, c.Place, change.ID), Index: c.Place, Change: change,
		Disposition: feed.DispositionHeld,
		Instance:    d.in.Me.Instance, Lease: d.held.Lease.Token, Range: d.held.Lease.Range, Parked: time.Now(),
		Attempts: c.Calls(), Failed: b.Failing(),
	}
	if !b.IsHeld() {
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
