package unit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/records"
)

// SelectLeases returns the leases of a unit that a text selects: the leases of a range, or a lease by the beginning of
// its range.
func SelectLeases(ctx context.Context, source feed.Source, store feed.LeaseStore, text string) (
	admin.Selection, error,
) {
	v := records.NewView(store, source) // which knows the ranges of leases that have only a partition
	if err := v.List(ctx, time.Now()); err != nil {
		return admin.Selection{}, fmt.Errorf("read leases: %w", err)
	}
	return selectAmong(v.Kind(feed.KindLease), text)
}

// selectAmong returns those of the leases that a text selects.
func selectAmong(all []feed.Record, text string) (admin.Selection, error) {
	leases := slices.DeleteFunc(slices.Clone(all), func(l feed.Record) bool { return l.State == feed.StateRetired })
	r, noRange := feed.ParseRange(text)
	isIn := func(l feed.Record) bool { return !l.Range.Empty() && r.Contains(l.Range) }
	if noRange == nil && slices.ContainsFunc(leases, isIn) {
		return admin.Of(r), nil
	}
	lease, err := ChooseLease(text, leases)
	if _, isMissing := errors.AsType[usage.Missing](err); isMissing && noRange == nil {
		return admin.Of(r), checkCut(r, leases) // package admin reports other mistakes of the range
	}
	if err == nil && lease.Range.Empty() {
		err = fmt.Errorf("lease %s, whose range is unknown, cannot be steered: %w", lease.Token, lease.Err)
	}
	return admin.Of(lease.Range), err
}

// ChooseLease returns the lease that a text names: by the token, the range, or a unique beginning of either. A range
// may be in small letters. An error names the leases that the text can mean.
func ChooseLease(text string, leases []feed.Record) (feed.Record, error) {
	var all, near []string
	var found []feed.Record
	asRange := strings.ToUpper(text)
	for _, l := range leases {
		name := leaseName(l)
		switch {
		case l.Token == text || name == asRange:
			return l, nil
		case strings.HasPrefix(l.Token, text) || strings.HasPrefix(name, asRange):
			found, near = append(found, l), append(near, name)
		}
		all = append(all, name)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return feed.Record{}, usage.Flag("lease", text, "more of it, because it can mean each of "+listNames(near))
	}
	return feed.Record{}, usage.Missing{Err: usage.Flag("lease", text,
		"a lease of the unit, or the beginning of only one of them: "+listNames(all))}
}

// NoUnit returns the error of a name that no unit has, with the names of the units that exist.
func NoUnit(name string, known []string) error {
	want := "there is none"
	if len(known) > 0 {
		slices.Sort(known)
		want = "want one of " + strings.Join(slices.Compact(known), ", ")
	}
	return usage.Missing{Err: usage.Error{Err: fmt.Errorf("--name is %s: there is no such unit: %s", name, want)}}
}

// checkCut refuses a range that has only a part of a lease.
func checkCut(r feed.Range, leases []feed.Record) error {
	for _, l := range leases {
		if l.Err == nil && r.Overlaps(l.Range) && !r.Contains(l.Range) {
			return usage.Error{Err: fmt.Errorf("--lease is %s: the range cuts lease %s: want a range that ends where leases "+
				"do, such as %[2]s", r, l.Range)}
		}
	}
	return nil
}

// leaseName returns the name of a lease for people: its range, or the token of a lease whose range is unknown.
func leaseName(l feed.Record) string {
	if l.Range.Empty() {
		return l.Token
	}
	return l.Range.String()
}

// listNames returns some names, and says how many there are beside them.
func listNames(names []string) string {
	const most = 10
	if len(names) == 0 {
		return "it has none"
	}
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), most)], ", ")
	if n := len(names) - most; n > 0 {
		text += ", and others"
	}
	return text
}
