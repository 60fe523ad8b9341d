package changefeed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/millrace/changefeed/internal/lanes"
)

// DeadLetters is where a processor parks changes that its handler cannot handle, so that
// the feed goes on. Package deadletters has some; changefeedtest.TestDeadLetters proves others.
type DeadLetters interface {
	// Put keeps a letter, and is durable when it returns nil. It replaces the letter with
	// the same ID and partition key, which comes again after a crash or a lost answer.
	// After an error the change is not parked: it stays with its batch and is tried again.
	Put(ctx context.Context, l DeadLetter) error
}

// LetterBox is [DeadLetters] that can be read again. [Options.HoldKeys] and redriving need one.
type LetterBox interface {
	DeadLetters

	// Letters gives the letters of a partition key in the order of their LSN and Index, or
	// with an empty key all letters, those of each key in that order.
	Letters(ctx context.Context, key PartitionKey) iter.Seq2[DeadLetter, error]

	// Remove removes a letter. It is no error when there is none.
	Remove(ctx context.Context, key PartitionKey, id string) error
}

// DeadLetter is a change that was parked, and why.
type DeadLetter struct {
	ID          string // unique among the letters of a partition key; the same when the same change is parked again
	Change      Change
	Index       int // of the change among those of its LSN
	Disposition Disposition

	Cause    string // the handler's last error; of a held change empty
	Stack    string // of the handler's goroutine if it panicked
	Attempts int    // how often the handler had failed on it; of a held change 0

	Instance string    // that parked it
	Lease    string    // token of the lease that it came from
	Range    Range     // of that lease
	Failed   time.Time // when it failed for the first time, as far as this instance knows
	Parked   time.Time // by the clock of the instance
}

// Disposition is why a change is among the dead letters.
type Disposition string

// The dispositions.
const (
	// DispositionFailed: the handler failed on it [Options.MaxAttempts] times, or for [Options.MaxAge].
	DispositionFailed Disposition = "failed"
	// DispositionPoison: the handler has said that trying again cannot help; see [Poison].
	DispositionPoison Disposition = "poison"
	// DispositionUndecodable: [Items] could not decode it.
	DispositionUndecodable Disposition = "undecodable"
	// DispositionCrashed: the process ended [Options.MaxAttempts] times while it was in the handler.
	DispositionCrashed Disposition = "crashed"
	// DispositionHeld: an earlier change of its key is parked, and the unit holds such
	// keys; see [Options.HoldKeys].
	DispositionHeld Disposition = "held"
)

// letterID names the letter of a change: by its place in the feed of its partition.
func letterID(lsn int64, index int) string { return fmt.Sprintf("%d.%d", lsn, index) }

// Failure is an error of a handler that says more than that its batch has failed. The
// changes that it does not name are done. A Failure that names none, or one that the
// batch does not have, fails the whole batch as any other error does.
type Failure struct {
	// Done says that the first so many changes are done, and the others are not, where
	// Items is nil.
	Done int

	// Items are the errors of exactly those changes that have failed, by their index in
	// [Batch.Changes]. One of them that is [Poison] is not tried again.
	Items map[int]error

	// After is how long to wait at least before the next attempt.
	After time.Duration

	// Err is why.
	Err error
}

// Error is the text of the cause.
func (f *Failure) Error() string {
	text := "handler failed"
	if f.Err != nil {
		text = f.Err.Error()
	}
	switch {
	case len(f.Items) > 0:
		return fmt.Sprintf("%s (%d changes failed)", text, len(f.Items))
	case f.Done > 0:
		return fmt.Sprintf("%s (after %d changes)", text, f.Done)
	}
	return text
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Poison says of a batch, or of a change in [Failure.Items], that trying again cannot help:
// what is left of [Options.MaxAttempts] is skipped.
func Poison(err error) error { return &poison{err} }

type poison struct{ error }

func (p *poison) Unwrap() error { return p.error }

// park puts the only change of a batch among the dead letters.
func (d *dispatcher) park(b *laneBatch) {
	c := b.Changes[0]
	l := d.letter(b)
	err := d.keepLetter(b, l)
	now := time.Now()
	d.mu.Lock()
	if err == nil {
		if d.r.opts.HoldKeys && !b.Held {
			d.held[l.Change.PartitionKey] = true
			d.lanes.Hold(c.Key)
		}
		d.parked++
		d.lanes.Succeed(b, false, now)
		d.turn(c.Page)
		d.blame(false)
	} else {
		d.lanes.Fail(b, lanes.Failure{Err: b.Err}, now) // with the handler's error: the letter says that
	}
	d.mu.Unlock()
	if err == nil {
		d.r.hooks.Parked(l)
	} else {
		d.report(d.untilStopped, OriginDeadLetters, fmt.Errorf("park item %q of partition %s, LSN %d: %w", l.Change.ID, l.Change.PartitionKey, l.Change.LSN, err))
	}
	notify(d.news)
	notify(d.space)
}

// keepLetter has the dead letters keep a letter, unless its key would have to be held and cannot.
func (d *dispatcher) keepLetter(b *laneBatch, l DeadLetter) error {
	d.mu.Lock()
	full := d.r.opts.HoldKeys && !b.Held && len(d.held) >= maxHeld && !d.held[l.Change.PartitionKey]
	d.mu.Unlock()
	if full {
		return fmt.Errorf("%w: %d of this lease: release some", ErrTooManyHeld, maxHeld)
	}
	return d.outside(func(ctx context.Context) error { return d.r.opts.DeadLetters.Put(ctx, l) })
}

// outside calls the dead letters, whose code is not ours either: what does not return is left behind.
func (d *dispatcher) outside(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(d.untilDrained, storeTimeout)
	defer cancel()
	result := make(chan error, 1)
	go protect(ctx, f, result)
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-result:
		return err
	case <-time.After(d.r.opts.RetryMin):
		return fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// letter is what is parked of a batch of one change.
func (d *dispatcher) letter(b *laneBatch) DeadLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := b.Changes[0]
	l := DeadLetter{
		ID: letterID(c.LSN, c.Place), Index: c.Place, Change: c.Value, Disposition: DispositionFailed,
		Instance: d.r.me.Instance, Lease: d.lease.Token, Range: d.lease.Range, Parked: time.Now(),
	}
	if b.Held {
		l.Disposition = DispositionHeld
		return l
	}
	l.Cause, l.Attempts, l.Failed = b.Err.Error(), b.Failures, b.Failing
	if panicked, ok := errors.AsType[*PanicError](b.Err); ok {
		l.Stack = string(panicked.Stack)
	}
	_, undecodable := errors.AsType[*DecodeError](b.Err)
	switch {
	case undecodable:
		l.Disposition = DispositionUndecodable
	case errors.Is(b.Err, errCrashed):
		l.Disposition = DispositionCrashed
	case isHopeless(b.Err):
		l.Disposition = DispositionPoison
	}
	return l
}
