package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// ResetKey delivers the changes of a partition key again, from a start, in their order. New changes of the key wait
// until that is done; the other keys go on, and the position of the lease stays as it is. If the key is held behind a
// dead letter, ResetKey ends the hold; the letters stay. Skipped changes of the key come again.
//
// The key is a JSON array, as [feed.PartitionKey] says. The source reads the key alone, so it must be a [feed.Locator],
// and a [feed.Sequencer], which compares two positions; otherwise the error is an [errors.ErrUnsupported]. A start that
// is not before the position of the lease is a [feed.ErrBadRequest]: a replay passes over nothing. If the key is being
// read again already from the start or before, or if the lease has no room for another key that is set aside, the error
// is a [feed.ErrConflict]. ResetKey is otherwise like [Unit.Reset].
func (u *Unit) ResetKey(ctx context.Context, key feed.PartitionKey, to feed.Start) ([]Step, error) {
	if to.IsZero() || to.IsNow() {
		return nil, fmt.Errorf("%w: the start is %q: want feed.FromBeginning or feed.FromTime, because a replay passes "+
			"over nothing", feed.ErrBadRequest, to)
	}
	return resetKey(ctx, u, key, feed.Position{Start: to.AsAgo(0)})
}

// ResetKeyTo is [Unit.ResetKey] with a position, such as the position of a [feed.Lease] or of a page.
func (u *Unit) ResetKeyTo(ctx context.Context, key feed.PartitionKey, to feed.Position) ([]Step, error) {
	return resetKey(ctx, u, key, to)
}

// resetKey checks the needs of a replay, and carries it out.
func resetKey(ctx context.Context, u *Unit, key feed.PartitionKey, to feed.Position) ([]Step, error) {
	if err := needSource(u); err != nil {
		return nil, err
	}
	key, err := pkey.Canonical(string(key))
	if err != nil {
		return nil, fmt.Errorf("%w: key: %w: want a JSON array of its values, such as [\"oslo\"]", feed.ErrBadRequest, err)
	}
	lease, partitions, err := leaseOf(ctx, u, key)
	if err != nil {
		return nil, err
	}
	steps := stepsOf(ActionReset, []feed.Record{lease})
	steps[0].Key = key
	if steps[0].To, err = u.resolve(ctx, lease, to); err != nil {
		return nil, err
	}
	if steps[0].To.Token == "" {
		if steps[0].To, err = firstAfter(ctx, u, lease, to); err != nil {
			return nil, err
		}
	}
	c := u.newControl(notes.Replay, lease.Range)
	c.Key, c.To = string(key), records.TargetOf(steps[0].To)
	if why, kind := records.StandingOf(u.source, lease, partitions).WhyNoReplay(c.Key, steps[0].To); why != "" {
		return nil, fmt.Errorf("%w: key %s of lease %s cannot be replayed from %s: %s", kind, key, lease.Token, steps[0].To,
			why)
	}
	if u.options.DryRun {
		return steps, nil
	}
	err = obey(ctx, u, lease.ID, c, rand.Text())
	steps[0].Done = err == nil
	return steps, u.record(ctx, ActionReset, lease.Range, steps, err)
}

// firstAfter returns the position before the first change of a lease after a start, as a token. Unlike resolve,
// firstAfter also knows the token if the page ends after its last change, at the end of the feed.
func firstAfter(ctx context.Context, u *Unit, lease feed.Record, start feed.Position) (feed.Position, error) {
	page, err := u.source.Read(ctx, lease.Range, start, feed.ReadOptions{Mode: lease.Mode, MaxItems: 1})
	if err != nil {
		return start, fmt.Errorf("lease %s: read position %s: %w", lease.Token, start, err)
	}
	if len(page.Changes) == 0 {
		return page.Next, nil
	}
	last := page.Changes[len(page.Changes)-1].LSN
	if end, known := records.TokenLSN(u.source, page.Next.Token); !known || end < last {
		return start, nil // the LSNs of the page are not those of the changes
	}
	before, _ := records.PositionAfter(u.source, page.Changes[0].LSN-1, start)
	return before, nil
}

// leaseOf returns the lease of a key, if that lease can be changed now, and the partitions of the source.
func leaseOf(ctx context.Context, u *Unit, key feed.PartitionKey) (lease feed.Record, all []notes.Partition,
	err error,
) {
	locator, readsKeys := u.source.(feed.Locator)
	_, orders := u.source.(feed.Sequencer)
	if !readsKeys || !orders {
		return lease, nil, fmt.Errorf("reset of key %s: %w: a %T cannot read a single key, or not order positions: reset "+
			"the lease instead", key, errors.ErrUnsupported, u.source)
	}
	epk, err := locator.Locate(ctx, key)
	if err != nil {
		return lease, nil, fmt.Errorf("key %s: %w", key, err)
	}
	v, err := u.list(ctx)
	if err != nil {
		return lease, nil, err
	}
	leases, bad := v.Leases()
	for _, l := range append(leases, bad...) {
		if !l.Range.Holds(epk) {
			continue
		}
		if lease, err = only(u, v, l.Range); err != nil {
			return lease, nil, err
		}
		if all, err = records.Noted(ctx, u.source); err != nil {
			return lease, nil, fmt.Errorf("read partitions: %w", err)
		}
		return lease, all, nil
	}
	return lease, nil, fmt.Errorf("%w: the unit has no lease of key %s", feed.ErrNotFound, key)
}
