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

// How one instance hears of the others. The cursor has a continuation for each range,
// because the lease container may be split like any other; it travels through the
// processor as a text that only this file reads.

// cursor is how far the feed of the lease container has been followed: a continuation
// for each of its ranges.
type cursor map[string]string

// followGather is how long changes are gathered after the first: instances renew their
// leases in bursts, and one answer for a burst saves requests.
const followGather = 300 * time.Millisecond

// Follow implements [feed.Follower] by the change feed of the lease container. A
// server that can do so holds the read until there is a change; Azure is asked every
// [LeaseOptions].FollowEvery.
func (s *Leases) Follow(ctx context.Context, from string) ([]feed.Record, string, time.Time, error) {
	changed, next, now, err := s.followChanges(ctx, from)
	if err != nil {
		return nil, "", time.Time{}, fmt.Errorf("follow leases: %w", err)
	}
	return changed, next, now, nil
}

// followChanges polls until there is a change. The cursor moves on at empty answers too, and is returned
// only with changes: after an error the caller goes on from the cursor before.
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
			changed, now = append(changed, more...), later
		}
		return changed, at.String(), now, nil
	}
}

// gatherMore reads the changes that come shortly after the first.
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

// awaitTurn waits until the feed may be read again; where the server holds reads, at once.
func (s *Leases) awaitTurn(ctx context.Context, at cursor) error {
	if s.holdTime(at) > 0 {
		return nil
	}
	s.mu.Lock()
	wait := time.Until(s.polled.Add(s.every))
	s.mu.Unlock()
	return pause.For(ctx, wait)
}

// holdTime returns how long the server may hold a read at a cursor. With several ranges it
// must not, because a held range would keep the others waiting; lease containers have
// one range.
func (s *Leases) holdTime(at cursor) time.Duration {
	if len(at) > 1 {
		return 0
	}
	return s.hold
}

// presentCursor returns the cursor after all changes so far. A range that is split meanwhile leaves parts without a
// continuation, which would be followed from the next read on: so they are read until each has one.
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
func (s *Leases) pollRanges(ctx context.Context, at cursor, hold time.Duration) (changed []feed.Record, now time.Time, err error) {
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
			if s.isOwn(ch.ID) {
				changed = append(changed, s.readRecord(ch.Body))
			}
		}
	}
	return changed, now, nil
}

// pullRange reads a range of the cursor. A range that was split is replaced by its parts,
// which are read the next time.
func (s *Leases) pullRange(ctx context.Context, at cursor, text string, hold time.Duration) (feed.Page, time.Time, error) {
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

// divideCursor gives the continuation of a range to the partitions that the range spans.
// A continuation of the whole is one of each part, because the children of a split go
// on with the LSNs of their parent.
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
