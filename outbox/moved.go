package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/feed"
)

// The order of events that another unit's relay has moved
//
// A relay with ExpireAfter marks a published event. The mark is a write, so the event moves in the feed. A slower relay
// of another unit then finds e2 before e1. So this relay reads the feed of the partition key before it publishes an
// event without a mark. The relay first publishes the events that were committed earlier and now lie behind. When the
// relay later reaches such an event in the feed, it skips the event.
//
// An event without a mark at the time of this read lay in its place when the feed was read before, so no event is
// missed.

// publishAll publishes a chain. Among these events, in their places, publishAll also publishes the moved events. It
// returns how many events of the chain are published.
func (r *Relay) publishAll(ctx context.Context, b *feed.Batch, chain []event) (n int, err error) {
	moved, err := r.findMoved(ctx, b, chain)
	if err != nil {
		return 0, fmt.Errorf("look for events of key %q that another relay has marked: %w", chain[0].Key, err)
	}
	for n < len(chain) {
		here := slices.IndexFunc(moved, func(e event) bool { return compare(e, chain[n]) > 0 })
		if here < 0 {
			here = len(moved)
		}
		if err := r.publishEarly(ctx, placeOf(b.LeaseToken, chain[n].change), moved[:here]); err != nil {
			return n, err
		}
		run := chain[n:]
		if moved = moved[here:]; len(moved) > 0 {
			run = run[:slices.IndexFunc(run, func(e event) bool { return compare(moved[0], e) < 0 })]
		}
		done, err := r.publishChain(ctx, run)
		if n += done; err != nil {
			return n, err
		}
	}
	return n, nil
}

// findMoved returns the unpublished events that belong before the last unmarked event of a chain and now lie behind the
// first. An event without a mark proves nothing about the events before it: it may have a time to live of its own, or
// no room for a mark, or it is the rest of a transaction.
func (r *Relay) findMoved(ctx context.Context, b *feed.Batch, chain []event) ([]event, error) {
	if r.opts.Feed == nil || b.Redriven {
		return nil, nil
	}
	isUnmarked := func(e event) bool { return !isMarked(e.change) }
	if !slices.ContainsFunc(chain, func(e event) bool { return isUnmarked(e) && isForEver(e.change) }) {
		return nil, nil
	}
	first := slices.IndexFunc(chain, isUnmarked)
	last := chain[first]
	for _, e := range chain[first:] {
		if isUnmarked(e) {
			last = e
		}
	}
	moved, err := r.movedEvents(ctx, b.Range, chain[first].change, last)
	if err != nil {
		return nil, err
	}
	moved = slices.DeleteFunc(moved, func(m event) bool { // remove the events of the chain
		return slices.ContainsFunc(chain, func(e event) bool { return e.change.ID == m.change.ID })
	})
	return r.hand.notEarly(placeOf(b.LeaseToken, last.change), moved, false), nil
}

// publishEarly publishes events before the relay reaches their place in the feed.
func (r *Relay) publishEarly(ctx context.Context, at place, moved []event) error {
	for len(moved) > 0 {
		n, err := r.publishChain(ctx, moved)
		r.hand.publishedEarly(at, moved[:n])
		if err != nil && !feed.IsPoison(err) {
			return err
		}
		moved = moved[min(n+1, len(moved)):] // an event that can never be sent is parked in its place in the feed
	}
	return nil
}

// movedEvents returns the marked events of a key that lie behind a change and belong before an event.
func (r *Relay) movedEvents(
	ctx context.Context, in feed.Range, behind *feed.Change, before event,
) (moved []event, err error) {
	from := feed.Position{Start: feed.FromBeginning()}
	for {
		page, err := r.opts.Feed.Read(ctx, in, from, feed.ReadOptions{Key: behind.PartitionKey})
		if err != nil {
			return nil, err
		}
		if len(page.Changes) == 0 {
			break
		}
		for i := range page.Changes {
			c := &page.Changes[i]
			lsn, marked := lsnBefore(c)
			if !marked || c.LSN <= behind.LSN || lsn > before.lsn {
				continue
			}
			m, ok, err := r.opts.Decode(c)
			if e := (event{Message: m, change: c, lsn: lsn}); ok && err == nil && m.ID != "" && compare(e, before) < 0 {
				e.Source = cmp.Or(m.Source, r.opts.Source)
				moved = append(moved, e)
			}
		}
		from = page.Next
	}
	sortChain(moved)
	return moved, nil
}

// withoutEarly removes the events published before the relay reached their place in the feed.
func (r *Relay) withoutEarly(b *feed.Batch, chain []event) []event {
	if r.opts.Feed == nil || b.Redriven {
		return chain
	}
	return r.hand.notEarly(placeOf(b.LeaseToken, chain[0].change), chain, true)
}

// notEarly returns the events that were not published early. If the relay has now reached the place of the others in
// the feed, notEarly forgets them.
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

// publishedEarly notes events published before the relay reached their place in the feed.
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
