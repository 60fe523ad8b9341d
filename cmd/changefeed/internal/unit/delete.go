package unit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// A delete loses the progress of a unit, so Delete refuses while a processor works. The check can be late: a processor
// may begin after the check. Each delete is conditional on the listed ETag, so the delete of the first lease that the
// processor has written fails.

// silence is how long an owner may be silent if the record does not say: the default of [changefeed.Options].
const silence = time.Minute

// Delete removes the records of a unit, so that processors with this name begin anew. Delete refuses while a processor
// of the unit works. The marker is deleted last: a processor that finds the marker without leases makes them again from
// the unit's start, and skips nothing. Before the first deletion, Delete calls approve with the number of leases, and
// deletes nothing unless the answer is true.
func Delete(ctx context.Context, name string, units []Unit, approve func(u Unit, leases int) (bool, error)) (u Unit,
	leases int, err error,
) {
	if u, err = chooseUnit(units, name); err != nil {
		return u, 0, err
	}
	records, err := idleRecords(ctx, u, name)
	if err != nil {
		return u, 0, err
	}
	for _, record := range records {
		if record.Kind == feed.KindLease {
			leases++
		}
	}
	if sure, err := approve(u, leases); !sure || err != nil {
		return u, leases, err
	}
	slices.SortStableFunc(records, func(a, b feed.Record) int {
		return cmp.Compare(deletedAfter(a.Kind), deletedAfter(b.Kind))
	})
	leases = 0
	for _, record := range records {
		err := u.store.Delete(ctx, record)
		if errors.Is(err, feed.ErrConflict) {
			return u, leases, fmt.Errorf("a processor of unit %q has begun to work: stop it, then delete again: %w",
				name, err)
		}
		if err != nil && !errors.Is(err, feed.ErrNotFound) {
			return u, leases, err
		}
		if record.Kind == feed.KindLease {
			leases++
		}
	}
	return u, leases, nil
}

// chooseUnit returns the unit with a name, or the unit whose documents begin with the name.
func chooseUnit(units []Unit, name string) (Unit, error) {
	var named []Unit
	var known []string
	for _, u := range units {
		switch {
		case u.store == nil:
			continue
		// The beginning of the ids identifies a set exactly, so it takes precedence over a name, which several units
		// may share.
		case u.hasSet(name):
			return u, nil
		case u.Processor == name:
			named = append(named, u)
		}
		known = append(known, u.Processor)
	}
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(named) == 0:
		return Unit{}, NoUnit(name, known)
	}
	var prefixes []string
	for _, u := range named {
		prefixes = append(prefixes, u.store.Prefix())
	}
	return Unit{},
		usage.Flag("name", name,
			"one of several units of this name, as their documents begin: "+strings.Join(prefixes, " or "))
}

// hasSet reports whether documents of the unit have ids that begin with a prefix. Only a whole prefix counts: the ids
// of a unit mail.eu begin with "mail.", and those of a unit without a name with the first word of the account's host.
func (u *Unit) hasSet(prefix string) bool {
	return slices.Contains(u.store.Searched(), prefix) &&
		slices.ContainsFunc(u.Rows, func(r Row) bool { return strings.HasPrefix(r.ID, prefix+".") })
}

// idleRecords returns the records of a unit, or of the set whose ids begin with name, if no processor works.
func idleRecords(ctx context.Context, u Unit, name string) ([]feed.Record, error) {
	records, now, err := u.store.List(ctx)
	if err != nil {
		return nil, err
	}
	if name != u.Processor {
		records = slices.DeleteFunc(records, func(record feed.Record) bool {
			return !strings.HasPrefix(record.ID, name+".")
		})
	}
	for _, record := range records {
		// A second more, because stores keep whole seconds.
		allowed := cmp.Or(record.Expiration, silence) + time.Second
		busy := record.Owner != "" && record.State != feed.StateRetired && now.Sub(record.Updated) <= allowed
		if busy || record.Kind == feed.KindLock && now.Sub(record.Updated) <= silence {
			return nil,
				fmt.Errorf("unit %q is at work: %s was written %v ago by %q: stop its processors, or wait until %v "+
					"of silence have passed",
					u.Processor, record.ID, terminal.Exact(now.Sub(record.Updated).Round(time.Second)), record.Owner,
					terminal.Exact(allowed))
		}
	}
	return records, nil
}

// deletedAfter orders the kinds in which records are deleted: the marker last, see [Delete].
func deletedAfter(k feed.Kind) int {
	if k == feed.KindInfo {
		return 1
	}
	return 0
}
