package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// DeadLetters is where a processor parks changes that its handler cannot handle, so that
// the feed goes on. Package deadletters has some; changefeedtest.TestDeadLetters proves others.
type DeadLetters interface {
	// Put keeps a letter, and is durable when it returns nil. It replaces the letter with
	// the same ID and partition key, which comes again after a crash or a lost answer.
	// After an error the change is not parked: it waits, its key is set aside (see
	// FailurePolicy.MaxSetAside), and Put is called again after a pause.
	Put(ctx context.Context, l DeadLetter) error
}

// LetterBox is [DeadLetters] that can be read again. FailurePolicy.HoldKeys and redriving need one.
//
// All methods, Put among them, return an error when their ctx had ended before they were done, and Letters gives one:
// otherwise a caller who has gone would take a letter for safe, or think that there are no more. What was asked for may
// have been done all the same.
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
	// ID is unique among the letters of a partition key, and the same when the same change is
	// parked again: its LSN and a hash of its item, such as 4711.df8cf80227ec3237922df0ecd88385c5;
	// with all versions and deletes its LSN and Index, such as 4711.0.
	ID          string
	Change      Change
	Index       int // of the change among those of its LSN
	Disposition Disposition

	Cause    string // the handler's last error, 8 KB of it at most; of a held change empty
	Stack    string // of the handler's goroutine if it panicked
	Attempts int    // how often the handler has received it, a held change too; one more for each retry that failed

	Instance string    // that parked it
	Lease    string    // token of the lease that it came from
	Range    Range     // of that lease
	Failed   time.Time // when it failed for the first time, as far as this instance knows; zero if it has not failed
	Parked   time.Time // by the clock of the instance
}

// Disposition is why a change is among the dead letters.
type Disposition string

// The dispositions.
const (
	// DispositionFailed: the handler failed on it until its limit was used up (FailurePolicy.MaxAttempts or FailurePolicy.MaxAge), and
	// then with it alone. [DeadLetter.Attempts] may be higher than the limit: calls that look for the bad change count too.
	DispositionFailed Disposition = "failed"
	// DispositionPoison: the handler has said that trying again cannot help; see [Poison].
	DispositionPoison Disposition = "poison"
	// DispositionUndecodable: the processor's Items could not decode it.
	DispositionUndecodable Disposition = "undecodable"
	// DispositionCrashed: the process ended while it was alone in the handler, and by that it has
	// failed FailurePolicy.MaxAttempts times.
	DispositionCrashed Disposition = "crashed"
	// DispositionHeld: an earlier change of its key is parked, and the unit holds such
	// keys; see FailurePolicy.HoldKeys.
	DispositionHeld Disposition = "held"
)

// Failure is an error of a handler that says more than that its batch has failed. The
// changes that it does not name are done. A Failure that names none, or one that the
// batch does not have, fails the whole batch as any other error does.
type Failure struct {
	// Done says that the first so many changes are done, and the others are not, where
	// Items is nil.
	Done int

	// Items are the errors of exactly those changes that have failed, by their index in
	// [Batch.Changes]. One of them that is [Poison] is not tried again. Changes of the same
	// key after one that has failed are done before it, then: a handler that needs the order
	// says Done instead.
	Items map[int]error

	// After is how long to wait at least before the next attempt.
	After time.Duration

	// Outage says that the changes are not at fault: something that the handler needs does not
	// answer. It counts no attempt of FailurePolicy.MaxAttempts, only the time of FailurePolicy.MaxAge.
	// Without it an outage is recognized by three keys that fail, which a quiet feed may not have.
	// It does not set Status.Outage, for which keys are compared.
	Outage bool

	// Err is why.
	Err error
}

// Error is the text of the cause.
func (f *Failure) Error() string {
	text := "handler failed"
	if cause := cmp.Or(f.Err, f.firstCause()); cause != nil {
		text = cause.Error()
	}
	switch {
	case len(f.Items) > 0:
		failed := 0
		for _, err := range f.Items {
			if err != ErrUntried {
				failed++
			}
		}
		if failed == 1 {
			return text + " (1 change failed)"
		}
		return fmt.Sprintf("%s (%d changes failed)", text, failed)
	case f.Done > 0:
		return fmt.Sprintf("%s (after %d changes)", text, f.Done)
	}
	return text
}

// firstCause is why the first change has failed that Items names with a cause of its own; nil if there is none.
func (f *Failure) firstCause() error {
	for _, i := range slices.Sorted(maps.Keys(f.Items)) {
		if cause := f.Items[i]; cause != nil && cause != ErrUntried {
			return cause
		}
	}
	return nil
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Poison says of a batch, or of a change in [Failure.Items], that trying again cannot help:
// what is left of FailurePolicy.MaxAttempts is skipped. A batch of one change is parked at once. If a batch has several changes and
// you do not say which one is bad, the batch is divided first, and its parts are called again, until that change is alone. To
// have a change parked without another call, name it: &Failure{Items: map[int]error{i: Poison(err)}}. If there is no
// limit (FailurePolicy.MaxAttempts or FailurePolicy.MaxAge), nothing is parked, and the batch is retried for ever.
func Poison(err error) error { return &poison{err} }

type poison struct{ error }

func (p *poison) Unwrap() error { return p.error }

// ErrUntried is for a change in [Failure.Items] that the handler has not tried, because another one of its batch failed
// before. It comes again and counts no attempt.
var ErrUntried = errors.New("not tried")

// IsPoison reports whether an error says that trying again cannot help: it is, or wraps, one of [Poison].
func IsPoison(err error) bool {
	_, ok := errors.AsType[*poison](err)
	return ok
}
