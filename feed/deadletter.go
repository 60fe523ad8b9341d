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

// DeadLetters is a store in which a processor parks changes that the handler cannot handle, so that the feed goes on.
// Package deadletters has implementations; changefeedtest.TestDeadLetters proves yours.
type DeadLetters interface {
	// Put stores a letter; when Put returns nil, the letter is durable. Put replaces a letter with the same ID and
	// partition key, because after a crash or a lost answer the processor calls Put again. If Put returns an error, the
	// change is not parked: the change waits, its key is set aside (see FailurePolicy.MaxSetAside), and Put is called
	// again after a pause.
	Put(ctx context.Context, l DeadLetter) error
}

// LetterBox is readable [DeadLetters]. FailurePolicy.HoldKeys and redriving need a LetterBox.
//
// If ctx ends before a method is done, all methods return an error, also Put, and Letters yields an error. Otherwise a
// caller would take an unsaved letter for safe, or believe there are no more letters. The operation may have taken
// effect nevertheless.
type LetterBox interface {
	DeadLetters

	// Letters yields the letters of a partition key in the order of their LSN and Index. With an empty key, Letters
	// yields all letters, those of each key in that order.
	Letters(ctx context.Context, key PartitionKey) iter.Seq2[DeadLetter, error]

	// Remove removes a letter. If the letter is missing, Remove returns nil.
	Remove(ctx context.Context, key PartitionKey, id string) error
}

// DeadLetter is a parked change, and the reason.
type DeadLetter struct {
	// ID is unique among the letters of a partition key, and stays the same if the same change is parked again. The ID
	// is the LSN and a hash of the item, such as 4711.df8cf80227ec3237922df0ecd88385c5; with all versions and deletes
	// the LSN and Index, such as 4711.0.
	ID          string
	Change      Change
	Index       int // index of the change among the changes of its LSN
	Disposition Disposition

	Cause    string // the handler's last error, at most 8 KB; empty for a held change
	Stack    string // of the handler's goroutine if it panicked
	Attempts int    // how often the handler has received the change, also a held change; 1 more for each failed retry

	Instance string    // the instance that parked the change
	Lease    string    // token of the change's lease
	Range    Range     // range of that lease
	Failed   time.Time // first failure that this instance knows of; zero if the change has not failed
	Parked   time.Time // by the clock of the instance
}

// Disposition says why a change is among the dead letters.
type Disposition string

// The dispositions.
const (
	// DispositionFailed: the handler failed on the change until the limit was used up (FailurePolicy.MaxAttempts or
	// FailurePolicy.MaxAge), in the end with this change alone. [DeadLetter.Attempts] may be higher than the limit:
	// calls that search for the bad change count too.
	DispositionFailed Disposition = "failed"
	// DispositionPoison: the handler has said that a retry cannot help; see [Poison].
	DispositionPoison Disposition = "poison"
	// DispositionUndecodable: Items could not decode the change.
	DispositionUndecodable Disposition = "undecodable"
	// DispositionCrashed: the process ended while the handler had this change alone, and with this failure the change
	// has failed FailurePolicy.MaxAttempts times.
	DispositionCrashed Disposition = "crashed"
	// DispositionHeld: an earlier change of the key is parked, and the unit holds such keys; see
	// FailurePolicy.HoldKeys.
	DispositionHeld Disposition = "held"
)

// Failure is an error of a handler, with the failed changes of the batch. All other changes are done. If a Failure
// names no change, or a change outside the batch, the whole batch has failed, as with any other error.
type Failure struct {
	// Done applies if Items is nil: the first Done changes are done, and the others are not.
	Done int

	// Items contains the errors of exactly the failed changes, by their index in [Batch.Changes]. If an error is
	// [Poison], the change is not retried. Later changes of the same key then count as done before the failed one: if
	// your handler needs the order, set Done instead.
	Items map[int]error

	// After is the shortest pause before the next attempt.
	After time.Duration

	// Outage says that the changes are not at fault: a dependency of the handler does not answer. Such a failure counts
	// no attempt of FailurePolicy.MaxAttempts, only the time of FailurePolicy.MaxAge. If you do not set Outage, the
	// processor recognizes an outage when three keys fail, and a quiet feed may not have three. Outage does not set
	// Status.Outage, because Status.Outage compares keys.
	Outage bool

	// Err is the cause.
	Err error
}

// Error returns the text of the cause.
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

// firstCause returns the cause of the first change in Items with a cause of its own; nil if there is none.
func (f *Failure) firstCause() error {
	for _, i := range slices.Sorted(maps.Keys(f.Items)) {
		if cause := f.Items[i]; cause != nil && cause != ErrUntried {
			return cause
		}
	}
	return nil
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Poison marks an error of a batch, or of a change in [Failure.Items]: a retry cannot help, so the remaining attempts
// of FailurePolicy.MaxAttempts are skipped. A batch with a single change is parked at once. If a batch has several
// changes and you do not name the bad change, the processor first divides the batch and calls the handler with its
// parts, until the bad change is alone. To park a change without another call, name the change: &Failure{Items:
// map[int]error{i: Poison(err)}}. If there is no limit (FailurePolicy.MaxAttempts or FailurePolicy.MaxAge), nothing is
// parked, and the batch is retried for ever.
func Poison(err error) error { return &poison{err} }

type poison struct{ error }

func (p *poison) Unwrap() error { return p.error }

// ErrUntried marks a change in [Failure.Items] which the handler has not tried, because another change of the batch
// failed before. The change is redelivered and counts no attempt.
var ErrUntried = errors.New("not tried")

// IsPoison reports whether an error is, or wraps, an error of [Poison], so that a retry cannot help.
func IsPoison(err error) bool {
	_, ok := errors.AsType[*poison](err)
	return ok
}
