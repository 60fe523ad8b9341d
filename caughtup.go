package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// CaughtUp waits until a unit has handled every change in the feed at the time of the call. Later writes do not extend
// the wait. CaughtUp takes no part in the unit, so the instances may run in other processes, and leases may move or
// split meanwhile.
//
// A change counts as handled when the stored position of the lease is after the change: after the checkpoint, which
// [Options.CheckpointItems], [Options.CheckpointEvery] and Options.Manual delay, and, for changes refused by
// Options.Filter, when the idle lease is written, within [Options.Renew]. A parked or held change counts as handled,
// because a letter keeps the change, and so does a change before [Options.Start] of a new unit. A change of a partition
// key set aside does not count: CaughtUp waits until the changes of the key are handled or parked.
//
// If ctx ends first, CaughtUp returns the cause of the end, with the name and the position of a lease still behind. If
// the unit has no leases, because the unit does not exist or was never run, the error is [feed.ErrNotFound].
// [feed.ErrNotFound], [feed.ErrForbidden] and [feed.ErrBadRequest] of the source or the lease store end CaughtUp too;
// after any other error, CaughtUp retries. If an operator gives a lease an earlier position meanwhile, CaughtUp may
// return before the lease has come back.
//
// CaughtUp looks at the leases with growing pauses, up to 5 s, or when the lease store as a [feed.Follower] reports a
// write. A look lists the leases, and reads a change of each lease whose position does not tell by itself: these
// requests cost request units. If the source knows no LSN of the end, a range is done when a read finds no more changes
// there, so later writes may extend the wait.
func CaughtUp(ctx context.Context, source feed.Source, leases feed.LeaseStore) error {
	c := newCatchUp(source, leases)
	c.mustExist = true
	return c.waitUntilPast(ctx)
}

// CaughtUp is the function [CaughtUp] for the unit of this processor. If the unit has no leases yet, the method waits
// for them, so you may call the method as soon as Run has begun.
func (p *Processor) CaughtUp(ctx context.Context) error {
	return newCatchUp(p.source, p.leases).waitUntilPast(ctx)
}

// A range once seen past the end stays there, whichever leases it has later, because positions do not move back. So a
// catchUp removes the range from the remaining ranges, and is done when none is left. A range without a lease remains,
// as does a lease in the middle of a split.

// catchUp compares the leases of a unit with the end of a feed.
type catchUp struct {
	source    feed.Source
	store     feed.LeaseStore
	view      *records.View
	mustExist bool // a unit without leases is an error

	ends []feedEnd    // of the partitions at the call; nil before they are known
	left []feed.Range // not yet seen past their end
	late []string     // the lease behind at the last look, in words
}

// feedEnd is the end of a partition's feed.
type feedEnd struct {
	partition feed.Range
	lsn       int64 // of the last change; 0 if unknown, or if there is none
}

func newCatchUp(source feed.Source, leases feed.LeaseStore) *catchUp {
	return &catchUp{
		source: source, store: leases, view: records.NewView(leases, source), left: []feed.Range{feed.FullRange()},
	}
}

// waitUntilPast looks at the leases until nothing is left.
func (c *catchUp) waitUntilPast(ctx context.Context) error {
	var follower leaseWatch
	follower.Follower, _ = c.store.(feed.Follower)
	for wait := instance.FirstPoll; ; wait = min(2*wait, defaultPoll) {
		follower.begin(ctx)
		err := c.look(ctx)
		switch {
		case err == nil && len(c.left) == 0:
			return nil
		case ctx.Err() != nil:
			return c.describe(context.Cause(ctx), nil)
		case is(err, []error{feed.ErrNotFound, feed.ErrForbidden, feed.ErrBadRequest}) != nil:
			return fmt.Errorf("wait until the unit has caught up: %w", err)
		}
		if throttled, ok := errors.AsType[*feed.ThrottledError](err); ok {
			wait = max(wait, throttled.After)
		}
		if follower.pause(ctx, wait) != nil {
			return c.describe(context.Cause(ctx), err)
		}
	}
}

// describe adds to the end of a context the lease behind, and the error of the last look.
func (c *catchUp) describe(end, last error) error {
	what := "the leases are not known"
	if len(c.late) > 0 {
		what = c.late[0]
	}
	if n := len(c.late) - 1; n > 0 {
		what += fmt.Sprintf(" (and %d more)", n)
	}
	if last != nil {
		what += fmt.Sprintf("; the last look failed: %v", last)
	}
	return fmt.Errorf("the unit has not caught up: %s: %w", what, end)
}

// look reads the positions of the leases, and removes from the remaining ranges those past their end.
func (c *catchUp) look(ctx context.Context) error {
	if c.ends == nil {
		if err := c.findEnds(ctx); err != nil {
			return fmt.Errorf("find the end of the feed: %w", err)
		}
	}
	if err := c.view.List(ctx, time.Now()); err != nil {
		return fmt.Errorf("list the leases: %w", err)
	}
	good, bad := c.view.Placed()
	c.late = nil
	if len(good)+len(bad) == 0 {
		c.late = []string{"the unit has no leases yet"}
		if c.mustExist {
			return fmt.Errorf("%w: the unit has no leases: no processor has run under its name", feed.ErrNotFound)
		}
		return nil
	}
	for _, lease := range bad {
		c.late = append(c.late, fmt.Sprintf("lease %s is not valid: %v", lease.Token, lease.Err))
	}
	origin, _ := c.view.Origin()
	for _, lease := range good {
		if records.HasNoStart(lease) {
			lease.Position.Start = origin
		}
		if err := c.passLease(ctx, lease, owed(lease, good)); err != nil {
			return fmt.Errorf("compare lease %s with the end of the feed: %w", lease.Token, err)
		}
	}
	for _, open := range c.left {
		for _, hole := range records.Holes(open, good) {
			c.late = append(c.late, fmt.Sprintf("no lease covers %s", hole))
		}
	}
	return nil
}

// findEnds asks each partition for the end: the position of a read from now.
func (c *catchUp) findEnds(ctx context.Context) error {
	partitions, err := c.source.Partitions(ctx)
	if err != nil {
		return err
	}
	var ends []feedEnd
	for _, p := range partitions {
		page, err := c.source.Read(ctx, p.Range, feed.Position{Start: feed.FromNow()}, feed.ReadOptions{MaxItems: 1})
		if err != nil {
			return err
		}
		lsn, _ := records.TokenLSN(c.source, page.Next.Token)
		ends = append(ends, feedEnd{p.Range, cmp.Or(lsn, page.Head)})
	}
	c.ends = ends
	return nil
}

// passLease removes the ranges of a lease past their end.
func (c *catchUp) passLease(ctx context.Context, lease feed.Record, owes []feed.Range) error {
	keys, err := readKeys(c.source, func() ([]notes.Partition, error) { return records.Noted(ctx, c.source) },
		lease.Lease())
	if err != nil {
		return err
	}
	aside := keys.aside
	for _, end := range c.ends {
		for _, part := range keyspace.CutAt(keyspace.CutAt(c.left, owes), []feed.Range{end.partition}) {
			i := slices.IndexFunc(aside, func(k notes.AsideKey) bool { return end.lsn == 0 || k.LSN <= end.lsn })
			past := false
			if i < 0 {
				if past, err = c.isPast(ctx, lease, part, end.lsn); err != nil {
					return err
				}
			}
			if past {
				c.left = without(c.left, part)
				continue
			}
			late := fmt.Sprintf("lease %s of %s is at %s, the feed ended at LSN %d", lease.Token,
				cmp.Or(lease.Owner, "no instance"), lease.Position, end.lsn)
			if i >= 0 {
				late = fmt.Sprintf("lease %s has set aside partition key %s at LSN %d, the feed ended at LSN %d",
					lease.Token, aside[i].Key, aside[i].LSN, end.lsn)
			}
			if records.IsPaused(lease, c.view.Pauses()) {
				late = strings.Replace(late, "lease ", "paused lease ", 1)
			}
			c.late = append(c.late, late)
		}
	}
	return nil
}

// isPast reports whether no change of a range up to an LSN comes after the position of a lease. A position that has
// come so far is enough. Otherwise the next change of each partition does.
func (c *catchUp) isPast(ctx context.Context, lease feed.Record, r feed.Range, end int64) (bool, error) {
	if lsn, ok := records.TokenLSN(c.source, lease.Position.Token); ok && end > 0 && lsn >= end {
		return true, nil
	}
	seen := map[feed.Range]bool{}
	o := PullOptions{ReadOptions: feed.ReadOptions{Mode: lease.Mode, MaxItems: 1}}
	for page, err := range Pull(ctx, c.source, r, lease.Position, o) {
		if err != nil || end == 0 || page.Changes[0].LSN <= end {
			return false, err
		}
		if seen[page.Range] { // Pull has read all the others since
			break
		}
		seen[page.Range] = true
	}
	return ctx.Err() == nil, context.Cause(ctx)
}

// without returns the parts of ranges outside of a range.
func without(ranges []feed.Range, r feed.Range) (rest []feed.Range) {
	for _, of := range ranges {
		rest = append(rest, keyspace.Uncovered(of, []feed.Range{r})...)
	}
	return rest
}

// leaseWatch ends a pause early when leases are written, if their store is a [feed.Follower].
type leaseWatch struct {
	feed.Follower
	cursor string
}

// begin notes the present writes, so pause waits for later ones. After an error pause waits as without a follower.
func (w *leaseWatch) begin(ctx context.Context) {
	if w.Follower == nil || w.cursor != "" {
		return
	}
	if _, cursor, _, err := w.Follow(ctx, ""); err == nil {
		w.cursor = cursor
	}
}

// pause pauses for d, or until leases are written, and returns an error if ctx ends.
func (w *leaseWatch) pause(ctx context.Context, d time.Duration) error {
	if err := pause.For(ctx, instance.FirstPoll); err != nil || w.cursor == "" {
		return cmp.Or(err, pause.For(ctx, d))
	}
	following, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	_, next, _, err := w.Follow(following, w.cursor)
	switch {
	case err == nil:
		w.cursor = next
	case following.Err() == nil:
		w.cursor = "" // the next look begins again
		return pause.For(ctx, d)
	}
	return context.Cause(ctx)
}
