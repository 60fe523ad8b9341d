package changefeed_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A handler that does not know that it must confirm looks healthy until its lease moves: so that is said once.
func TestAHandlerThatNeverConfirmsIsReportedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		manual   bool
		confirms int64 // this batch, and no other one
		batches  int
		every    time.Duration
		want     int64
	}{
		"never":            {manual: true, batches: 30, every: 30 * time.Second, want: 1},
		"once":             {manual: true, confirms: 3, batches: 30, every: 30 * time.Second, want: 0},
		"few batches":      {manual: true, batches: 5, every: 2 * time.Minute, want: 0},
		"a short time":     {manual: true, batches: 12, every: 20 * time.Second, want: 0}, // may confirm later
		"not asked for it": {batches: 30, every: 30 * time.Second, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var calls, reports atomic.Int64
				h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
					if calls.Add(1) == c.confirms {
						return b.Checkpoint(ctx)
					}
					return nil
				})
				p, err := changefeed.New(w.orders, w.leases, h, changefeed.Options{
					Instance: "a", Start: feed.FromBeginning(), Manual: c.manual,
					Hooks: changefeed.Hooks{Error: func(_ context.Context, err *feed.Error) {
						if errors.Is(err, feed.ErrUnconfirmed) && strings.Contains(err.Error(), "confirmed none") {
							reports.Add(1)
						}
					}},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- p.Run(ctx) }()
				for range c.batches {
					w.put("oslo", "item", 1)
					time.Sleep(c.every)
				}
				if got := reports.Load(); got != c.want || calls.Load() != int64(c.batches) {
					t.Errorf("%d reports after %d batches, want %d", got, calls.Load(), c.want)
				}
				if err := p.Healthy(); err != nil {
					t.Errorf("it is not healthy: %v", err)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
