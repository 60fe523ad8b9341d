package changefeed

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/millrace/changefeed/feed"
)

// Item is a change with the body decoded.
type Item[T any] struct {
	feed.Change
	Value  T  // the current version; zero after a delete
	Before *T // the previous version, if any
}

// Items makes a [feed.Handler] from a function that receives documents decoded into T. A document that cannot be
// decoded fails alone, as [feed.Poison] with a [feed.DecodeError], and the function receives the others in batches
// without that document. If there is no limit ([FailurePolicy.MaxAttempts] or [FailurePolicy.MaxAge]), the document is
// retried for ever, and the lease waits. To park the document, set a limit and [FailurePolicy.DeadLetters]. With
// [Options.Manual] such a document fails the batch. items[i] is b.Changes[i], so an index in a [feed.Failure] means the
// same in both.
func Items[T any](handle func(ctx context.Context, b *feed.Batch, items []Item[T]) error) feed.Handler {
	return feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
		items := make([]Item[T], len(b.Changes))
		said := &feed.Failure{Items: map[int]error{}}
		for i, c := range b.Changes {
			if err := decode(c, &items[i]); err != nil {
				said.Items[i] = feed.Poison(err)
				said.Err = cmp.Or(said.Err, said.Items[i])
			}
		}
		switch {
		case said.Err == nil:
			return handle(ctx, b, items)
		case b.IsManual():
			return said.Err
		}
		for i := range items {
			said.Items[i] = cmp.Or(said.Items[i], feed.ErrUntried)
		}
		return said
	})
}

func decode[T any](c feed.Change, into *Item[T]) error {
	into.Change = c
	if c.Body != nil {
		if err := json.Unmarshal(c.Body, &into.Value); err != nil {
			return &feed.DecodeError{Change: c, Err: err}
		}
	}
	if c.Previous != nil {
		into.Before = new(T)
		if err := json.Unmarshal(c.Previous, into.Before); err != nil {
			return &feed.DecodeError{Change: c, Err: err}
		}
	}
	return nil
}
