package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/usage"
)

// deleteUnit removes the records of a unit, so that processors of its name begin anew.
// It refuses while one of them is at work. The marker goes last: whoever finds it without
// leases makes them again from where the unit began, and skips nothing.
func deleteUnit(ctx context.Context, w io.Writer, name string, units []unit) error {
	u, err := chooseUnit(units, name)
	if err != nil {
		return err
	}
	records, err := idleRecords(ctx, u, name)
	if err != nil {
		return err
	}
	slices.SortStableFunc(records, func(a, b changefeed.Lease) int {
		return cmp.Compare(deletedAfter(a.Kind), deletedAfter(b.Kind))
	})
	leases := 0
	for _, l := range records {
		err := u.store.Delete(ctx, l)
		if errors.Is(err, changefeed.ErrConflict) {
			return fmt.Errorf("a processor of unit %q has begun to work: stop it, then delete again: %w", name, err)
		}
		if err != nil && !errors.Is(err, changefeed.ErrNotFound) {
			return err
		}
		if l.Kind == changefeed.KindLease {
			leases++
		}
	}
	_, err = fmt.Fprintf(w, "deleted %s on %s, leases: %d\n", u.processor, u.container, leases)
	return err
}

// chooseUnit is the unit of a name, or the one that has documents beginning so.
func chooseUnit(units []unit, name string) (unit, error) {
	var named []unit
	var known []string
	for _, u := range units {
		switch {
		case u.store == nil:
			continue
		case slices.ContainsFunc(u.rows, func(r row) bool { return strings.HasPrefix(r.ID, name+".") }):
			return u, nil
		case u.processor == name:
			named = append(named, u)
		}
		known = append(known, u.processor)
	}
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(named) == 0:
		return unit{}, usage.Flag("delete", name, "the name of a unit that has leases here: "+cmp.Or(strings.Join(known, ", "), "there is none"))
	}
	var prefixes []string
	for _, u := range named {
		prefixes = append(prefixes, u.store.Prefix())
	}
	return unit{}, usage.Flag("delete", name, "one of several units of this name, as their documents begin: "+strings.Join(prefixes, " or "))
}

// idleRecords are the records of a unit, or of the one of its sets whose ids begin so,
// for which nobody works.
func idleRecords(ctx context.Context, u unit, name string) ([]changefeed.Lease, error) {
	records, now, err := u.store.List(ctx)
	if err != nil {
		return nil, err
	}
	if name != u.processor {
		records = slices.DeleteFunc(records, func(l changefeed.Lease) bool { return !strings.HasPrefix(l.ID, name+".") })
	}
	for _, l := range records {
		allowed := cmp.Or(l.Expiration, silence) + time.Second
		busy := l.Owner != "" && l.State != changefeed.StateRetired && now.Sub(l.Updated) <= allowed
		if busy || l.Kind == changefeed.KindLock && now.Sub(l.Updated) <= silence {
			return nil, fmt.Errorf("unit %q is at work: %s was written %v ago by %q: stop its processors, or wait until %v of silence have passed",
				u.processor, l.ID, now.Sub(l.Updated).Round(time.Second), l.Owner, allowed)
		}
	}
	return records, nil
}

// deletedAfter orders the kinds in which records are deleted.
func deletedAfter(k changefeed.Kind) int {
	if k == changefeed.KindInfo {
		return 1
	}
	return 0
}
