package changefeed_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// What is confirmed by hand is done, whatever becomes of its handler: here the handler checkpoints each batch and then
// hangs, until its time is over.
func TestABatchThatIsConfirmedByHandDoesNotComeAgainAfterItsTimeout(t *testing.T) {
	for _, o := range []changefeed.Options{
		{Concurrency: 1},
		{Concurrency: 1, MaxItems: 3},
		{Concurrency: 1, MaxWait: time.Second},
		{Concurrency: 2},
	} {
		t.Run(fmt.Sprintf("concurrency %d, %d items, wait %v", o.Concurrency, o.MaxItems, o.MaxWait),
			func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) {
					var mu sync.Mutex
					times := map[string]int{}
					var refused []error
					h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
						err := b.Checkpoint(ctx)
						mu.Lock()
						for _, c := range b.Changes {
							times[string(c.PartitionKey)+c.ID]++
						}
						if err != nil {
							refused = append(refused, err)
						}
						mu.Unlock()
						<-ctx.Done()
						return context.Cause(ctx)
					})
					o.Start, o.Manual, o.HandlerTimeout, o.Drain = feed.FromBeginning(), true, 10*time.Second,
						time.Second
					w.many(10, 5)
					p := w.run("a", h, o)
					time.Sleep(20 * time.Minute)
					w.many(20, 5) // the same ten once more, and ten others
					time.Sleep(20 * time.Minute)
					if n := w.pending(); n != 0 {
						t.Errorf("%d changes are pending", n)
					}
					p.stop(t)
					p = w.run("b", h, o)
					time.Sleep(20 * time.Minute)
					p.stop(t)
					again := 0
					for _, n := range times {
						again += n
					}
					if again -= 30; len(times) != 20 || again != 0 || len(refused) != 0 {
						t.Errorf("%d items, %d deliveries too many, %d checkpoints were refused: %v", len(times), again,
							len(refused), refused)
					}
					if n := w.pending(); n != 0 {
						t.Errorf("%d changes are pending for the next owner", n)
					}
				})
			})
	}
}
