package changefeed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/lanes"
	"github.com/millrace/changefeed/internal/notes"
)

// How changes are parked
//
// A change is parked when its letter is durable. With Options.HoldKeys its key is held from then on, until an operator
// lets it go: the lease says which keys, and since which LSN, and what comes after that is parked, too. See redrive.go
// for the way back.

// park puts the only change of a batch among the dead letters.
func (d *dispatcher) park(b *laneBatch) {
	c := b.Changes[0]
	l := d.letter(b)
	there, before, err := d.lookUp(b, l)
	if before {
		d.mu.Lock()
		d.lanes.Handle(b)
		d.mu.Unlock()
		notify(d.news)
		return
	}
	if err == nil && !there {
		err = d.keepLetter(b, l)
	}
	now := time.Now()
	d.mu.Lock()
	if err == nil {
		if d.r.opts.HoldKeys && !b.Held {
			d.hold(c.Key, c.LSN)
		}
		d.parked++
		d.lanes.Succeed(b, false, now)
		d.turn(c.Page)
		d.blame(false)
	} else {
		d.lanes.Fail(b, lanes.Failure{}, now) // which leaves the handler's error as it is: the letter says that
	}
	d.mu.Unlock()
	switch {
	case there && err == nil:
	case err == nil:
		d.r.hooks.Parked(l)
	default:
		d.report(d.untilStopped, OriginDeadLetters, fmt.Errorf("park item %q of partition %s, LSN %d: %w", l.Change.ID, l.Change.PartitionKey, l.Change.LSN, err))
	}
	notify(d.news)
	notify(d.space)
}

// lookUp finds out of a change whose key is held whether it has come again, as after a crash: one before the change that
// the key is held for is handled again, and that one itself has its letter. The lease decides, because a letter that was
// kept a moment ago may not be seen yet, and an operator may have dropped it.
func (d *dispatcher) lookUp(b *laneBatch, l DeadLetter) (there, before bool, err error) {
	if !b.Held {
		return false, false, nil
	}
	d.mu.Lock()
	since := d.held[b.Changes[0].Key]
	d.mu.Unlock()
	box, ok := d.r.opts.DeadLetters.(LetterBox)
	if since > 0 && l.Change.LSN != since || !ok {
		return false, l.Change.LSN < since, nil
	}
	there, err = d.isThere(box, l)
	return there, false, err
}

// keepLetter has the dead letters keep a letter, unless its key would have to be held and cannot.
func (d *dispatcher) keepLetter(b *laneBatch, l DeadLetter) error {
	if _, ok := d.r.opts.DeadLetters.(LetterBox); b.Held && !ok {
		return errNoBox
	}
	if d.r.opts.HoldKeys && !b.Held && !d.canHold(b.Changes[0].Key) {
		return fmt.Errorf("%w: a lease has room for %d, and for less of long ones: release some", ErrTooManyHeld, notes.MaxHeld)
	}
	return d.outside(func(ctx context.Context, _ func()) error { return d.r.opts.DeadLetters.Put(ctx, l) })
}

// canHold reports whether the lease has room for a key among those that are held.
func (d *dispatcher) canHold(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, held := d.held[key]; held {
		return true
	}
	note := d.heldNote()
	note.Keys, note.Since = append(note.Keys, key), append(note.Since, math.MaxInt64)
	return note.Fits()
}

// errNoBox is why the changes of a held key wait, with all that comes after them of it.
var errNoBox = errors.New("its key is held, and this instance has no letter box: set Options.DeadLetters to the unit's")

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
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		return fmt.Errorf("dead letters panicked: %v", panicked.Value)
	}
	return err
}

// letter is what is parked of a batch of one change.
func (d *dispatcher) letter(b *laneBatch) DeadLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := b.Changes[0]
	l := DeadLetter{
		ID: d.letterID(c), Index: c.Place, Change: c.Value, Disposition: DispositionHeld,
		Instance: d.r.me.Instance, Lease: d.lease.Token, Range: d.lease.Range, Parked: time.Now(),
	}
	if !b.Held {
		l.Attempts, l.Failed = b.Failures, b.Failing
		l.because(b.Err)
	}
	return l
}

// because notes why the change of a letter is not done.
func (l *DeadLetter) because(err error) {
	l.Cause, l.Stack, l.Disposition = fold.Text(err), "", DispositionFailed
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		l.Stack = string(panicked.Stack)
	}
	_, undecodable := errors.AsType[*DecodeError](err)
	switch {
	case undecodable:
		l.Disposition = DispositionUndecodable
	case errors.Is(err, errCrashed):
		l.Disposition = DispositionCrashed
	case IsPoison(err):
		l.Disposition = DispositionPoison
	}
}

func (t *tenure) letterID(c *laneChange) string {
	return letterID(t.r.opts.Mode, c.LSN, c.Place, c.Value.ID)
}

// isThere reports whether a letter is among those of its key.
func (d *dispatcher) isThere(box LetterBox, l DeadLetter) (there bool, err error) {
	err = d.eachLetter(box, l.Change.PartitionKey, func(o DeadLetter) bool {
		there = o.ID == l.ID
		return !there && o.Change.LSN <= l.Change.LSN
	})
	return there, err
}

// eachLetter calls f with the letters of a key, for as long as it says so.
func (d *dispatcher) eachLetter(box LetterBox, key PartitionKey, f func(DeadLetter) (more bool)) error {
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
