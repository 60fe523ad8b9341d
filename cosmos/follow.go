package cosmos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// How an instance notices writes of other instances. The cursor has a continuation for each range, because the lease
// container may be split like any other; the processor carries the cursor as a text that only this file reads.

// cursor is the position in the feed of the lease container: a continuation for each of its ranges.
type cursor map[string]string

// followGather is how long changes are gathered after the first: instances renew their leases in bursts, and a single
// answer for a burst saves requests.
const followGather = 300 * time.Millisecond

// Follow implements [feed.Follower] with the change feed of the lease container. If the server can hold reads, it holds
// the read until there is a change; Azure is asked every [LeaseOptions].FollowEvery.
func (s *Leases) Follow(ctx context.Context, from string) ([]feed.Record, string, time.Time, error) {
	changed, next, now, err := s.followChanges(ctx, from)
	if err != nil {
		return nil, "", time.Time{}, fmt.Errorf("follow leases: %w", err)
	}
	return changed, next, now, nil
}

// followChanges polls until there is a change. The cursor also moves at empty answers, and is returned only with
// changes: after an error the caller goes on from the previous cursor.
func (s *Leases) followChanges(ctx context.Context, from string) ([]feed.Record, string, time.Time, error) {
	if from == "" {
		return s.presentCursor(ctx)
	}
	at := cursor{}
	if err := json.Unmarshal([]byte(from), &at); err != nil {
		return nil, "", time.Time{}, badRequest("cursor is %.100q: want one that Follow gave", from)
	}
	for n := 1; ; n++ {
		if err := s.awaitTurn(ctx, at); err != nil {
			return nil, "", time.Time{}, err
		}
		hold, begun := s.holdTime(at), time.Now()
		changed, now, err := s.pollRanges(ctx, at, hold)
		if err != nil {
			return nil, "", time.Time{}, err
		}
		if len(changed) == 0 {
			if err := pauseUnheld(ctx, begun, hold, n); err != nil {
				return nil, "", time.Time{}, err
			}
			continue
		}
		if hold > 0 {
			more, later, err := s.gatherMore(ctx, at)
			if err != nil {
				return nil, "", time.Time{}, err
			}
			changed = append(changed, more...)
			if later.After(now) { // zero if the range has just been split
				now = later
			}
		}
		return changed, at.String(), now, nil
	}
}

// gatherMore reads the changes that arrive shortly after the first.
func (s *Leases) gatherMore(ctx context.Context, at cursor) ([]feed.Record, time.Time, error) {
	if err := pause.For(ctx, followGather); err != nil {
		return nil, time.Time{}, err
	}
	return s.pollRanges(ctx, at, 0)
}

// String returns the cursor in the form that Follow takes.
func (c cursor) String() string {
	text, _ := json.Marshal(c) // strings always marshal
	return string(text)
}

// awaitTurn waits until the feed may be read again; if the server holds reads, awaitTurn returns at once.
func (s *Leases) awaitTurn(ctx context.Context, at cursor) error {
	if s.holdTime(at) > 0 {
		return nil
	}
	s.mu.Lock()
	wait := time.Until(s.polled.Add(s.every))
	s.mu.Unlock()
	return pause.For(ctx, wait)
}

// holdTime returns how long the server may hold a read at a cursor. If the cursor has several ranges, the result is 0,
// because a held range would delay the others; lease containers have a single range.
func (s *Leases) holdTime(at cursor) time.Duration {
	if len(at) > 1 {
		return 0
	}
	return s.hold
}

// presentCursor returns the cursor after all changes so far. If a range is split meanwhile, the parts have no
// continuation and would be followed only from the next read on: so they are read until each has a continuation.
func (s *Leases) presentCursor(ctx context.Context) ([]feed.Record, string, time.Time, error) {
	parts, err := s.c.Partitions(ctx)
	if err != nil {
		return nil, "", time.Time{}, err
	}
	at := cursor{}
	for _, partition := range parts {
		at[partition.Range.String()] = ""
	}
	for {
		_, now, err := s.pollRanges(ctx, at, 0)
		if err != nil || !slices.Contains(slices.Collect(maps.Values(at)), "") {
			return nil, at.String(), now, err
		}
	}
}

// pollRanges reads each range of the cursor once, and moves the cursor.
func (s *Leases) pollRanges(ctx context.Context, at cursor, hold time.Duration) (changed []feed.Record, now time.Time,
	err error,
) {
	s.mu.Lock()
	s.polled = time.Now()
	s.mu.Unlock()
	for text := range maps.Clone(at) {
		page, date, err := s.pullRange(ctx, at, text, hold)
		if err != nil {
			return nil, now, err
		}
		if date.After(now) {
			now = date
		}
		for _, ch := range page.Changes {
			s.prefix.Learn(ch.ID)
			if s.isOwn(ch.ID) {
				changed = append(changed, s.readRecord(ch.Body))
			}
		}
	}
	return changed, now, nil
}

// pullRange reads a range of the cursor. If the range was split, the parts replace the range and are read the next
// time.
func (s *Leases) pullRange(ctx context.Context, at cursor, text string, hold time.Duration) (feed.Page, time.Time,
	error,
) {
	r, err := feed.ParseRange(text)
	if err != nil {
		return feed.Page{}, time.Time{}, err
	}
	from := feed.At(at[text])
	a, err := s.c.feedAnswer(ctx, r, from, feed.ReadOptions{}, hold)
	if errors.Is(err, feed.ErrGone) {
		return feed.Page{}, time.Time{}, s.divideCursor(ctx, at, r)
	}
	if err != nil {
		return feed.Page{}, time.Time{}, err
	}
	page, err := s.c.pageOf(a, from, feed.LatestVersion)
	at[text] = page.Next.Token
	return page, s.now(a.header), err
}

// divideCursor gives the continuation of a range to the partitions that the range spans. A continuation of the whole
// range is valid for each part, because the children of a split continue the LSNs of their parent.
func (s *Leases) divideCursor(ctx context.Context, at cursor, r feed.Range) error {
	parts, err := s.c.Partitions(ctx)
	if err != nil {
		return err
	}
	token := at[r.String()]
	delete(at, r.String())
	for _, partition := range parts {
		if part := partition.Range.Intersect(r); !part.Empty() {
			at[part.String()] = token
		}
	}
	return nil
}
