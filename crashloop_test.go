package changefeed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A change ends its process at once, each time before the position of the change before it is stored. The crashes count
// all the same, so the change becomes a letter, and the one before it is not handled for ever.
func TestAChangeThatEndsItsProcessDuringTheWriteBeforeIsParked(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const attempts = 3
		box := &letterBox{}
		calls := map[string]int{}
		w.put("oslo", "good", 1)
		w.put("rome", "killer", 1)
		w.put("bern", "last", 1)
		lives := 0
		for ; lives < 10 && w.pending() > 0 || lives == 0; lives++ {
			var before, after atomic.Int64
			before.Store(int64(50 * time.Millisecond))
			store, cut := w.mortal(&before, &after)
			dead := make(chan bool, 1)
			h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
				for _, c := range b.Changes {
					calls[c.ID]++
					if c.ID == "killer" {
						cut()
						dead <- true
						<-ctx.Done()
						return context.Cause(ctx)
					}
				}
				return nil
			})
			p := w.runWith(w.orders, store, fmt.Sprint("life-", lives), h, changefeed.Options{
				Start: feed.FromBeginning(), MaxItems: 1, Drain: time.Second,
				OnFailure: changefeed.FailurePolicy{MaxAttempts: attempts, DeadLetters: box},
			})
			select {
			case <-dead:
			case <-time.After(5 * time.Minute):
			}
			p.stop(t)
		}
		if names := box.names(); names != "killer crashed" || w.pending() != 0 {
			t.Errorf("after %d lives the letters are %q, %d pending", lives, names, w.pending())
		}
		if lives > attempts+2 || calls["good"] > 3 || calls["last"] != 1 {
			t.Errorf("%d lives, calls %v", lives, calls)
		}
	})
}
