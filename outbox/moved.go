package outbox

import (
	"context"
	"fmt"

	"github.com/millrace/changefeed"
)

// How events stay in order that another unit's relay has moved
//
// A relay with ExpireAfter marks an event once it is published. The mark is a write, so the event moves in the feed. A relay
// of another unit, which lags behind, then finds e2 before e1. So before it publishes an event it reads the feed of the
// partition key, and publishes first what was committed before and lies behind it now. When it reaches such an event in the
// feed, it passes over it.
//
// An event that is not marked at the time of this read lay in its place when the feed was read before, so nothing is missed.

// publishMoved publishes the events that belong before those of a chain and lie behind them now.
func (r *Relay) publishMoved(ctx context.Context, b *changefeed.Batch, chain []event) error {
	if r.opts.Feed == nil || b.Redriven {
		return nil
	}
	first, last := int64(0), int64(0) // the events of the chain that may have been overtaken
	for _, e := range chain {
		if isForEver(e.change) && !isMarked(e.change) {
			if first == 0 {
				first = e.change.LSN
			}
			last = e.lsn
		}
	}
	if first == 0 {
		return nil
	}
	at := placeOf(b.LeaseToken, chain[0].change)
	moved, err := r.movedEvents(ctx, b.Range, chain[0].change.PartitionKey, first, last)
	if err != nil {
		return fmt.Errorf("look for events of key %q that another relay has marked: %w", chain[0].Key, err)
	}
	moved = r.hand.notEarly(at, moved, false)
	for len(moved) > 0 {
		n, err := r.publish(ctx, moved)
		r.hand.publishedEarly(at, moved[:n])
		if err != nil && !changefeed.IsPoison(err) {
			return err
		}
		moved = moved[min(n+1, len(moved)):] // one that can never be sent is parked in its place in the feed
	}
	return nil
}

// movedEvents are the marked events of a key that were committed before an LSN and lie behind another one now.
func (r *Relay) movedEvents(ctx context.Context, in changefeed.Range, key changefeed.PartitionKey, behind, before int64) (moved []event, err error) {
	from := changefeed.Position{Start: changefeed.FromBeginning()}
	for {
		page, err := r.opts.Feed.Read(ctx, in, from, changefeed.ReadOptions{Key: key})
		if err != nil {
			return nil, err
		}
		if len(page.Changes) == 0 {
			break
		}
		for i := range page.Changes {
			c := &page.Changes[i]
			lsn, marked := lsnBefore(c)
			if !marked || c.LSN <= behind || lsn >= before {
				continue
			}
			if m, ok, err := r.opts.Decode(c); ok && err == nil && m.ID != "" {
				moved = append(moved, event{Message: m, change: c, lsn: lsn})
			}
		}
		from = page.Next
	}
	for i := range moved {
		if moved[i].Source == "" {
			moved[i].Source = r.opts.Source
		}
	}
	sortChain(moved)
	return moved, nil
}

// withoutEarly leaves out the events that were published before their place in the feed was reached.
func (r *Relay) withoutEarly(b *changefeed.Batch, chain []event) []event {
	if r.opts.Feed == nil || b.Redriven {
		return chain
	}
	at := placeOf(b.LeaseToken, chain[0].change)
	return r.hand.notEarly(at, chain, true)
}

// notEarly are those of some events that were not published early. If their place in the feed is reached now, the others are
// forgotten.
func (h *hand) notEarly(at place, events []event, isReached bool) (rest []event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.early[at]) == 0 {
		return events
	}
	for _, e := range events {
		if !isMarked(e.change) || !h.early[at][e.ID] {
			rest = append(rest, e)
			continue
		}
		if isReached {
			delete(h.early[at], e.ID)
		}
	}
	if len(h.early[at]) == 0 {
		delete(h.early, at)
	}
	return rest
}

// publishedEarly notes events that were published before their place in the feed was reached.
func (h *hand) publishedEarly(at place, events []event) {
	if len(events) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.early[at] == nil {
		h.early[at] = map[string]bool{}
	}
	for _, e := range events {
		h.early[at][e.ID] = true
	}
}
