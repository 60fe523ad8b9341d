package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// inOrder is a handler that notes the items it is done with, and stops at a bad one.
type inOrder struct {
	bad  atomic.Value // item
	done []string
	met  func(*feed.Batch) // may be nil
}

func (h *inOrder) Handle(_ context.Context, b *feed.Batch) error {
	if h.met != nil {
		h.met(b)
	}
	for i, c := range b.Changes {
		if c.ID == h.bad.Load() {
			return &feed.Failure{Done: i, Err: feed.Poison(errHandler)}
		}
		h.done = append(h.done, c.ID)
	}
	return nil
}

// A reset ends the hold of a key and leaves its letters, of which an operator has dropped some. Their changes come
// again, and one of them fails while the box is away. Then the key is released, and the box is back when the first
// letter is in the handler: the letter of a later change still waits for the changes before it. A change may be handled
// twice in a row: for its letter, and because it comes again.
func TestAReleasePassesNoChangeThatComesAgainAfterAReset(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var isAway atomic.Bool
		var refused atomic.Int64
		box := &letterBox{refuse: func(feed.DeadLetter) error {
			if isAway.Load() {
				refused.Add(1)
				return errors.New("the box is away")
			}
			return nil
		}}
		h := &inOrder{met: func(b *feed.Batch) {
			if b.Redriven && isAway.CompareAndSwap(true, false) {
				time.Sleep(5 * time.Second) // for the changes behind to be parked meanwhile
			}
		}}
		h.bad.Store("bad")
		for n, id := range []string{"bad", "early", "failing", "middle", "late"} {
			w.put("oslo", id, n)
		}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box, HoldKeys: true},
		})
		w.until(5*time.Minute, "all parked", func() bool {
			return box.names() == "bad poison, early held, failing held, middle held, late held"
		})
		for _, l := range box.all() {
			if slices.Contains([]string{"bad", "failing", "middle"}, l.Change.ID) {
				_ = box.Remove(t.Context(), l.Change.PartitionKey, l.ID)
			}
		}
		h.bad.Store("failing")
		isAway.Store(true)
		if _, err := w.admin(admin.Options{}).Reset(t.Context(), admin.All(), feed.FromBeginning()); err != nil {
			t.Fatal(err)
		}
		w.until(5*time.Minute, "a letter refused", func() bool { return refused.Load() > 0 })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		o, err := deadletters.Release(ctx, w.orders, w.leases, feed.Key("oslo"))
		time.Sleep(5 * time.Minute) // for all that comes again
		p.stop(t)
		want := []string{"bad", "early", "middle", "late"}
		done := slices.Compact(h.done)
		if !slices.Equal(done, want) || err != nil || o.Handled != 3 || box.names() != "failing poison" {
			t.Errorf("handled in the order %v, want %v; the release: %+v, %v; letters %q", done, want, o, err, box.names())
		}
	})
}
