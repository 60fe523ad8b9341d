package deadletters

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// ErrNotServed means that no instance has served the request of a [Redrive] or [Release]. The text of the error says why, if
// that is known, and whether the request was withdrawn.
var ErrNotServed = errors.New("not served")

// Outcome is what became of a request that an instance has served.
type Outcome struct {
	Result Result

	// Cause is the text of the handler's error if Result is [ResultFailed], and empty otherwise. At most 1 KB of it is
	// kept here; the letter has more of it.
	Cause string

	// Handled is how many letters were handled and removed: the one that was asked for, and the held ones that followed.
	Handled int

	// Held is how many held letters of the key are left; -1 if the instance has not counted them. It is 0 when the key
	// is not held any more.
	Held int
}

// Result is the outcome of a request in a word.
type Result string

// The results of a request.
const (
	// ResultHandled: the letter of a [Redrive] was handled, and so were the held letters that could follow it; or the key
	// of a [Release] is not held any more.
	ResultHandled Result = notes.Handled
	// ResultFailed: the handler has failed on a letter, which stays with the new cause. If Handled is 0, that is the
	// first letter. Otherwise the letters before it are done, and the key stays held from there.
	ResultFailed Result = notes.Failed
	// ResultNothing: there was nothing to do. The letter of a [Redrive] is gone, or held behind another one that has to
	// be handled first; the key of a [Release] was not held.
	ResultNothing Result = notes.Nothing
)

// Redrive has a dead letter handled again, by the instance that owns the range of its key, and waits for the outcome. The
// handler is called once for the letter. If it succeeds the letter is removed; if the key is held and no other letter of it
// has failed, its held letters follow, and the key is released. That the handler fails again is no error but
// [ResultFailed].
//
// The key is a JSON array in any spelling. The request is a record among the leases, and is served once. Two callers who ask
// for the same letter at the same time
// share it; the one who made it removes it with its outcome, and if the other one has not read that yet, it asks again. When
// ctx ends before the request is served, Redrive withdraws it, which takes at most 5 seconds, and
// returns an error that is [ErrNotServed] and the cause of ctx. A request that an instance has begun with is carried out all
// the same. If the process of the caller dies, the lease store removes the request one minute after the deadline of ctx, and
// after 24 hours at the latest, which is also the bound without a deadline.
//
// The error is [ErrNotServed], too, if the request is withdrawn by [Withdraw]. It is an [errors.ErrUnsupported] if source is no
// [feed.Locator], so that the owner of a key cannot be found, and a [feed.ErrBadRequest] if key is not a
// partition key of the source. An error of the lease store is returned if the request cannot be written.
func Redrive(ctx context.Context, source feed.Source, leases feed.LeaseStore, key feed.PartitionKey, letter string) (Outcome, error) {
	return ask(ctx, source, leases, notes.Request{Action: notes.Retry, Key: string(spelled(key)), Letter: letter})
}

// Release lets a held key go on without the changes of it that have failed: those that are held are handled, in their order,
// and then the key is not held any more. If one of them fails, the key stays held from there, which is [ResultFailed]. The
// letters of the changes that had failed before stay. Release waits and is withdrawn as [Redrive] is, with the same errors.
func Release(ctx context.Context, source feed.Source, leases feed.LeaseStore, key feed.PartitionKey) (Outcome, error) {
	return ask(ctx, source, leases, notes.Request{Action: notes.Release, Key: string(spelled(key))})
}

// ask writes a request and waits for its outcome.
func ask(ctx context.Context, source feed.Source, leases feed.LeaseStore, q notes.Request) (o Outcome, err error) {
	locator, ok := source.(feed.Locator)
	if !ok {
		return o, fmt.Errorf("%s %s: %w: source %T cannot locate a key: want one that is a feed.Locator", q.Action, q.Key, errors.ErrUnsupported, source)
	}
	a := newInquiry(leases, q)
	if a.request.EPK, err = locator.Locate(ctx, feed.PartitionKey(q.Key)); err == nil {
		o, err = a.await(ctx)
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("%s %s: %w", q.Action, q.Key, err)
	}
	return o, nil
}

// Withdraw withdraws the requests of [Redrive] and [Release] for a key that are not served yet, and returns their number;
// with an empty key it withdraws those for all keys of the unit. The callers may have died; a caller who still waits gets
// [ErrNotServed]. If an instance has begun with a request, the request is counted: what is not in the handler by the time
// that the instance reads of the withdrawal, within a second if the store is a [feed.Follower] and otherwise within a round, is
// not handed to it. Such a request stays among the records, retired, for 15 minutes, as each one does without the right to
// delete. If the lease store returns an error, Withdraw returns it with the number of
// requests that were withdrawn before.
func Withdraw(ctx context.Context, leases feed.LeaseStore, key feed.PartitionKey) (n int, err error) {
	key = spelled(key)
	for range maxConflicts {
		records, _, err := leases.List(ctx)
		if err != nil {
			return n, fmt.Errorf("withdraw requests: %w", err)
		}
		again := false
		for _, r := range records {
			of := notes.ReadRequest(r.Properties).Key
			if r.Kind != feed.KindRequest || r.State != feed.StateLive || of == "" || key != "" && of != string(key) {
				continue
			}
			switch err := withdraw(ctx, leases, r); {
			case err == nil:
				n++
			case errors.Is(err, feed.ErrConflict): // its owner has written it
				again = true
			case errors.Is(err, feed.ErrNotFound): // its caller has withdrawn it
			default:
				return n, fmt.Errorf("withdraw request %s: %w", r.ID, err)
			}
		}
		if !again {
			return n, nil
		}
	}
	return n, fmt.Errorf("withdraw requests: %w: they were written %d times meanwhile: try again", feed.ErrConflict, maxConflicts)
}

// withdraw takes a live request away, so that nobody serves it. An instance that has begun with it follows what is written
// and not what is deleted, so the record stays, retired, for as long as an instance may need to read it.
func withdraw(ctx context.Context, leases feed.LeaseStore, r feed.Record) error {
	if notes.ReadRequest(r.Properties).Tries == 0 {
		if err := leases.Delete(ctx, r); !errors.Is(err, feed.ErrForbidden) {
			return err
		}
	}
	r.State, r.TTL = feed.StateRetired, notes.OutcomeTTL
	_, err := leases.Update(ctx, r)
	return err
}

// maxConflicts is how often a request is read again because its owner has written it meanwhile.
const maxConflicts = 10
