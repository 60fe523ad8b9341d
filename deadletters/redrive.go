package deadletters

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inquiry"
	"github.com/millrace/changefeed/internal/notes"
)

// ErrNotServed means that no instance has served the request of a [Redrive] or [Release]. The text of the error says
// why, if the reason is known, and whether the request was withdrawn.
var ErrNotServed = inquiry.ErrNotServed

// ErrUnknownAction is an [ErrNotServed] whose reason is that the owner of the key is of an older version, which does
// not know the action. The owner has not changed the request.
var ErrUnknownAction = inquiry.ErrUnknownAction

// Outcome is the result of a request that an instance has served.
type Outcome struct {
	Result Result

	// Cause is the text of the handler's error if Result is [ResultFailed], and empty otherwise. Cause has at most 1 KB
	// of the text; the letter has more.
	Cause string

	// Handled is how many letters were handled and removed: the requested letter, and the following held letters.
	Handled int

	// Held is how many held letters of the key remain; -1 if the instance has not counted them. Held is 0 if the key is
	// no longer held.
	Held int
}

// Result is the result of a request as a word.
type Result string

// The results of a request.
const (
	// ResultHandled: after a [Redrive], the letter was handled, and so were the held letters that could follow; after a
	// [Release], the key is no longer held.
	ResultHandled Result = notes.Handled
	// ResultFailed: the handler has failed on a letter, which stays with the new cause. If Handled is 0, the first
	// letter has failed. Otherwise the letters before the failed letter are done, and the key stays held from the
	// failed letter.
	ResultFailed Result = notes.Failed
	// ResultNothing: no letter was handled. The letter of a [Redrive] is gone, or is held behind another letter that
	// must be handled first; the key of a [Release] was not held.
	ResultNothing Result = notes.Nothing
)

// Redrive makes the handler handle a dead letter again and waits for the outcome. The owner of the range of the
// letter's key calls the handler once for the letter. If the handler succeeds, the letter is removed. If the key is
// held and none of the key's other letters has failed, the held letters follow, and the key is released. If the handler
// fails again, you receive [ResultFailed] and no error.
//
// The key is a JSON array in any spelling. The request is a record among the leases, and is served once. If two callers
// request the same letter at the same time, they share the record. The author of the record removes the record with the
// outcome; if the other caller has not read the outcome yet, the other caller requests the letter again.
//
// When ctx ends before the request is served, Redrive withdraws the request, which takes at most 5 seconds, and returns
// an error that is [ErrNotServed] and the cause of ctx. A letter that is in the handler by then may still be handled;
// see [Withdraw]. If the process of the caller dies, the lease store removes the request one minute after the deadline
// of ctx, and after 24 hours at the latest; without a deadline, after 24 hours.
//
// Redrive also returns [ErrNotServed] if [Withdraw] withdraws the request. Redrive returns an [errors.ErrUnsupported]
// if source is no [feed.Locator], because then the owner of a key cannot be found, and a [feed.ErrBadRequest] if key is
// not a partition key of the source, or if letter is empty. If the request cannot be written, Redrive returns the error
// of the lease store.
func Redrive(ctx context.Context, source feed.Source, leases feed.LeaseStore, key feed.PartitionKey,
	letter string,
) (Outcome, error) {
	if letter == "" {
		return Outcome{},
			fmt.Errorf("%w: the ID of the letter is empty: want that of a letter of key %s, or Release for a held key",
				feed.ErrBadRequest, key)
	}
	return ask(ctx, source, leases, notes.Request{Action: notes.Retry, Key: string(spelled(key)), Letter: letter})
}

// Release lets a held key go on without the failed changes: the held changes are handled, in their order, and then the
// key is no longer held. If such a change fails, the key stays held from that change, and you receive [ResultFailed].
// The letters of the earlier failed changes stay. Release waits and is withdrawn as [Redrive] is, with the same errors.
func Release(ctx context.Context, source feed.Source, leases feed.LeaseStore, key feed.PartitionKey) (Outcome, error) {
	return ask(ctx, source, leases, notes.Request{Action: notes.Release, Key: string(spelled(key))})
}

// ask writes a request and waits for the outcome.
func ask(ctx context.Context, source feed.Source, leases feed.LeaseStore, q notes.Request) (o Outcome, err error) {
	locator, ok := source.(feed.Locator)
	if !ok {
		return o, fmt.Errorf("%s %s: %w: source %T cannot locate a key: want one that is a feed.Locator", q.Action,
			q.Key, errors.ErrUnsupported, source)
	}
	var served notes.Outcome
	if q.EPK, err = locator.Locate(ctx, feed.PartitionKey(q.Key)); err == nil {
		served, err = inquiry.Ask(ctx, leases, q, " that has the dead letters")
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("%s %s: %w", q.Action, q.Key, err)
	}
	return Outcome{
		Result: Result(served.Result), Cause: served.Cause, Handled: served.Count, Held: served.Left,
	}, nil
}

// Withdraw withdraws the unserved requests of [Redrive] and [Release] for a key, and returns their number; with an
// empty key Withdraw withdraws the requests for all keys of the unit. The callers may have died; a caller who still
// waits receives [ErrNotServed].
//
// If an instance has begun with a request, the request is counted. The instance reads the withdrawal within a second if
// the store is a [feed.Follower], and otherwise within a round; letters outside the handler by then are not handled.
// Such a request stays among the records, retired, for 15 minutes, as does every withdrawn request if you lack the
// right to delete. If the lease store returns an error, Withdraw returns the error with the number of requests
// withdrawn before.
func Withdraw(ctx context.Context, leases feed.LeaseStore, key feed.PartitionKey) (n int, err error) {
	key = spelled(key)
	for range inquiry.MaxConflicts {
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
			switch err := inquiry.Withdraw(ctx, leases, r); {
			case err == nil:
				n++
			case errors.Is(err, feed.ErrConflict): // the owner has written the request
				again = true
			case errors.Is(err, feed.ErrNotFound): // the caller has withdrawn the request
			default:
				return n, fmt.Errorf("withdraw request %s: %w", r.ID, err)
			}
		}
		if !again {
			return n, nil
		}
	}
	return n, fmt.Errorf("withdraw requests: %w: they were written %d times meanwhile: try again", feed.ErrConflict,
		inquiry.MaxConflicts)
}
