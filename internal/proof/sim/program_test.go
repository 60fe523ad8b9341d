package sim

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
)

// The checkpoint of a later batch takes in what was handled before, but not what a program has handled that has ended
// meanwhile. What that has asked to confirm itself may be confirmed.
func TestACheckpointTakesInNothingOfAProgramThatHasEnded(t *testing.T) {
	for _, c := range []struct{ strict, hasEnded, hasAsked, want bool }{
		{want: true},
		{hasEnded: true},
		{hasEnded: true, hasAsked: true, want: true},
		{strict: true, want: true},
		{strict: true, hasEnded: true},
		{strict: true, hasEnded: true, hasAsked: true, want: true},
	} {
		g, key := newLedger(feed.LatestVersion, epk.HashV2), feed.Key("oslo")
		g.strict = c.strict
		by := &instance{name: "a", opts: changefeed.Options{Manual: true, Concurrency: 1}}
		read := &page{from: `"4"`, next: `"7"`, changes: []version{{key, "first", 5}, {key, "later", 7}}}
		made := newTenure(by)
		handle := func(n int) *call {
			v := read.changes[n]
			made.passed[v] = true
			return &call{
				by: by, tenure: made, page: read, end: n + 1,
				changes: []feed.Change{{ID: v.id, PartitionKey: key, LSN: v.lsn}},
			}
		}
		first := handle(0)
		if c.hasAsked {
			g.noteAsked(first)
		}
		if c.hasEnded {
			g.noteGone(first)
		}
		g.noteAsked(handle(1))
		if got := made.asked[read.changes[0]]; got != c.want || !made.asked[read.changes[1]] {
			t.Errorf("strict %v, ended %v, asked %v: taken in %v, want %v", c.strict, c.hasEnded, c.hasAsked, got, c.want)
		}
	}
}

// A batch whose time is over while it waits for a program counts as handed over, unless the processor does not wait for
// it any more, or is dead: by then an operator may have skipped its changes.
func TestABatchThatNobodyWaitsForIsNotHandedOver(t *testing.T) {
	for _, c := range []struct{ isOver, isDead bool }{{}, {isOver: true}, {isDead: true}} {
		g, key := newLedger(feed.LatestVersion, epk.HashV2), feed.Key("oslo")
		g.strict = false
		by := &instance{name: "a", world: &world{ledger: g}, opts: changefeed.Options{Manual: true, Concurrency: 2}}
		lease := feed.Lease{Token: "-FF", Range: feed.FullRange()}
		g.noteAcquired(by, lease)
		by.dead.Store(c.isDead)
		if c.isOver {
			g.noteReleased(by, lease, feed.ReasonStuck)
		}
		g.steering.skipped[version{key, "item", 5}] = time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(feed.ErrHandlerTimeout)
		p := &program{of: by, ended: map[string]handled{}}
		if err := p.Handle(ctx, &feed.Batch{
			LeaseToken: lease.Token, Range: lease.Range, Attempt: 1,
			Changes: []feed.Change{{ID: "item", PartitionKey: key, LSN: 5}},
		}); err == nil {
			t.Error("a batch that no program has had is done")
		}
		if isHandedOver := len(g.broken) > 0; isHandedOver == (c.isOver || c.isDead) {
			t.Errorf("%+v: handed over: %v", c, g.broken)
		}
	}
}
