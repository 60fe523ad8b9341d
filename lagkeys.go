package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// The partition keys of a lease with positions of their own: those that are set aside have pending changes before the
// position, and changes of those that are held wait in dead letters.

// keyNotes are the keys that a lease names beside the position.
type keyNotes struct {
	aside []notes.AsideKey
	held  notes.Held
}

// readKeys reads the notes of a lease. A note for another position is outdated and has no keys. If a note cannot be
// read, the error is a [feed.ErrBadLease], and the keys of the other note are right.
func readKeys(source feed.Source, list func() ([]notes.Partition, error), lease feed.Lease) (keyNotes, error) {
	aside, held := lease.Properties[notes.AsideProperty], lease.Properties[notes.HeldProperty]
	if aside == "" && held == "" {
		return keyNotes{}, nil
	}
	partitions, err := list()
	if err != nil {
		return keyNotes{}, err
	}
	lsn, _ := records.TokenLSN(source, lease.Position.Token)
	in := notes.Place{
		Position: lease.Position.Token, LSN: lsn, Min: lease.Range.Min, Max: lease.Range.Max,
		Partitions: partitions,
	}
	var k keyNotes
	all, asideErr := notes.ReadAside(aside, in)
	k.aside = all.Keys
	k.held, err = notes.ReadHeld(held, in)
	for name, err := range map[string]error{notes.AsideProperty: asideErr, notes.HeldProperty: err} {
		if err != nil && !errors.Is(err, notes.ErrMoved) {
			return k, fmt.Errorf("%w: property %s: %w", feed.ErrBadLease, name, err)
		}
	}
	return k, nil
}

// addKeys adds the held keys and those set aside, and the changes of the latter before the position of the lease.
// addKeys returns the time of the oldest change for which a key is held; zero if there is none. heldKnown is false if
// that time is unknown.
func (m *meter) addKeys(ctx context.Context, lag *Lag) (heldSince time.Time, heldKnown bool, err error) {
	keys, err := readKeys(m.source, func() ([]notes.Partition, error) {
		all, _, err := m.partitions(ctx, 0)
		return all.noted, err
	}, lag.Lease)
	if err != nil {
		return heldSince, false, err
	}
	lag.Held, lag.SetAside = len(keys.held.Keys), len(keys.aside)
	if err := m.addAside(ctx, lag, keys.aside); err != nil {
		return heldSince, false, err
	}
	heldSince, heldKnown = m.findHeldSince(ctx, lag.Lease, keys.held)
	return heldSince, heldKnown, nil
}

// addAside adds the changes of keys that are set aside, as far as they are before the position of the lease.
func (m *meter) addAside(ctx context.Context, lag *Lag, aside []notes.AsideKey) error {
	at := lag.Lease.Position
	for _, k := range aside {
		o := feed.ReadOptions{Mode: lag.Lease.Mode, Key: feed.PartitionKey(k.Key)}
		all, err := m.countPending(ctx, lag.Lease.Range, m.asideFrom(k, at), o)
		if errors.Is(err, errors.ErrUnsupported) {
			// A later version of the change may be newer than the changes of other keys, so each key is asked.
			oldest := m.findTime(ctx, lag.Lease, k.Key, m.asideFrom(k, at), 0)
			lag.addBacklog(feed.Backlog{Items: 1, Oldest: oldest}) // or more
			lag.Exact = false
			continue
		}
		if err != nil {
			return err
		}
		after, err := m.countPending(ctx, lag.Lease.Range, at, o)
		if err != nil {
			return err
		}
		if all.Items -= after.Items; all.Items > 0 {
			lag.addBacklog(all)
		}
	}
	return nil
}

// asideFrom returns the position from which a key that is set aside must be read again.
func (m *meter) asideFrom(k notes.AsideKey, at feed.Position) feed.Position {
	from := records.AsideFrom(at, k)
	if k.LSN > 0 {
		from, _ = records.PositionAfter(m.source, k.LSN-1, from)
	}
	return from
}

// findHeldSince returns the commit time of the oldest change for which a key is held; zero if no key is held. The time
// is known only if the feed still has that version of the change: a later version in the feed means that the change was
// earlier.
func (m *meter) findHeldSince(ctx context.Context, lease feed.Lease, held notes.Held) (since time.Time, known bool) {
	if len(held.Keys) == 0 {
		return since, true
	}
	lsn := slices.Min(held.Since)
	if lsn == 0 {
		return since, false
	}
	from, ok := records.PositionAfter(m.source, lsn-1, lease.Position)
	if !ok {
		return since, false
	}
	since = m.findTime(ctx, lease, held.Keys[slices.Index(held.Since, lsn)], from, lsn)
	return since, !since.IsZero()
}

// findTime returns the commit time of the first change of a key after a position; zero if there is none, if the read
// fails, or if lsn is not 0 and the change has another LSN.
func (m *meter) findTime(ctx context.Context, lease feed.Lease, key string, from feed.Position, lsn int64) time.Time {
	page, err := m.source.Read(ctx, lease.Range, from, feed.ReadOptions{
		Mode: lease.Mode, Key: feed.PartitionKey(key), MaxItems: 1,
	})
	if err != nil || len(page.Changes) == 0 || lsn != 0 && page.Changes[0].LSN != lsn {
		return time.Time{}
	}
	return page.Changes[0].Time
}
