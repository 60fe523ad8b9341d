package deadletters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
)

// Redrive has a dead letter handled again, by the instance that owns the range of its key, and
// waits until that was tried once. Whether it succeeded is seen in the letter box: then the
// letter is gone. If the key is held and this was its only letter that is not, its held letters
// follow, and the key is released. It is an error if ctx ends before: then the request stays
// among the leases, until it is served. A source that cannot locate a key, because it is no
// [changefeed.Locator], is an [errors.ErrUnsupported].
func Redrive(ctx context.Context, source changefeed.Source, leases changefeed.LeaseStore, key changefeed.PartitionKey, letter string) error {
	return ask(ctx, source, leases, notes.Request{Action: notes.Retry, Key: string(key), Letter: letter})
}

// Release lets a held key go on without the changes of it that have failed: those that are held
// are handled, in their order, and then the key is not held any more. If one of them fails,
// the key stays held from there. It waits as [Redrive] does, with the same errors.
func Release(ctx context.Context, source changefeed.Source, leases changefeed.LeaseStore, key changefeed.PartitionKey) error {
	return ask(ctx, source, leases, notes.Request{Action: notes.Release, Key: string(key)})
}

// ask writes a request and waits until it was served.
func ask(ctx context.Context, source changefeed.Source, leases changefeed.LeaseStore, q notes.Request) error {
	locator, ok := source.(changefeed.Locator)
	if !ok {
		return fmt.Errorf("%s %s: %w: source %T cannot locate a key", q.Action, q.Key, errors.ErrUnsupported, source)
	}
	epk, err := locator.Locate(ctx, changefeed.PartitionKey(q.Key))
	if err != nil {
		return fmt.Errorf("%s %s: %w", q.Action, q.Key, err)
	}
	q.EPK = epk
	r := changefeed.Record{
		Kind: changefeed.KindRequest, Token: q.Token(), Timestamp: time.Now().UTC(), Properties: q.Properties(nil),
	}
	if err := post(ctx, leases, r); err != nil {
		return fmt.Errorf("%s %s: %w", q.Action, q.Key, err)
	}
	asked, seen := time.Now(), false
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		_, there, err := find(ctx, leases, r)
		// A list may lag behind a write, so one without the request says something only after one that had it.
		if seen = seen || there; err == nil && !there && (seen || time.Since(asked) > maxLag) {
			return nil
		}
		if err := pause.For(ctx, wait); err != nil {
			return fmt.Errorf("%s %s: not served yet, it stays asked: is an instance running that has the dead letters? %w", q.Action, q.Key, err)
		}
	}
}

// post writes a request, unless the same was asked before and is not served yet. One that was served stays where nobody has
// the right to delete it.
func post(ctx context.Context, leases changefeed.LeaseStore, r changefeed.Record) error {
	_, err := leases.Create(ctx, r)
	if !errors.Is(err, changefeed.ErrConflict) {
		return err
	}
	old, asked, err := find(ctx, leases, r)
	if err != nil || asked || old.ID == "" {
		return err
	}
	old.State, old.Properties, old.Timestamp = changefeed.StateLive, r.Properties, r.Timestamp
	if _, err = leases.Update(ctx, old); errors.Is(err, changefeed.ErrConflict) { // somebody else asks the same
		return nil
	}
	return err
}

// find finds a request, and reports whether it is still to be served.
func find(ctx context.Context, leases changefeed.LeaseStore, r changefeed.Record) (found changefeed.Record, asked bool, err error) {
	records, _, err := leases.List(ctx)
	for _, o := range records {
		if o.Kind == r.Kind && o.Token == r.Token {
			found, asked = o, o.State == changefeed.StateLive
		}
	}
	return found, asked, err
}

// The waits until the records are listed again.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

// maxLag is how long a list may lack a request that was written, on an account whose consistency is weaker than strong.
const maxLag = 5 * time.Second
