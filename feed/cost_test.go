package feed_test

import (
	"testing"

	"github.com/millrace/changefeed/feed"
)

// A call may be measured by several callers, each for itself.
func TestMetersWithinEachOtherCountTheSameCalls(t *testing.T) {
	var outer, inner feed.Meter
	feed.AddCost(t.Context(), feed.Cost{Requests: 9}) // nobody asks
	ctx := feed.WithMeter(t.Context(), &outer)
	feed.AddCost(ctx, feed.Cost{Requests: 1, Charge: 2})
	feed.AddCost(feed.WithMeter(ctx, &inner), feed.Cost{Requests: 3, Charge: 0.5})
	feed.AddCost(ctx, feed.Cost{Requests: 1})
	if got := outer.Cost(); got != (feed.Cost{Requests: 5, Charge: 2.5}) {
		t.Errorf("the outer meter has %+v", got)
	}
	if got := inner.Cost(); got != (feed.Cost{Requests: 3, Charge: 0.5}) {
		t.Errorf("the inner meter has %+v", got)
	}
}
