package records

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// Marker returns the unit's marker, if its leases have been created.
func (v *View) Marker() (feed.Record, bool) {
	for _, info := range v.Kind(feed.KindInfo) {
		if info.Err == nil {
			return info, true
		}
	}
	return feed.Record{}, false
}

// Origin returns where the unit began, if the marker says so.
func (v *View) Origin() (feed.Start, bool) {
	info, _ := v.Marker()
	start, err := feed.ParseStart(notes.TimeOf(info.Properties[notes.OriginProperty]))
	return start, err == nil
}

// Vanished returns why the records of the unit are gone, if a listing with the result listed proves this. marker is the
// unit's marker when this instance joined.
func (v *View) Vanished(marker feed.Record, listed error) error {
	if missing, ok := errors.AsType[*missingError](listed); ok {
		return fmt.Errorf("%w: the lease container is missing: %w", feed.ErrLeasesGone, missing.error)
	}
	if listed != nil || marker.ID == "" {
		return nil
	}
	info, there := v.Marker()
	switch {
	case there && beginsAnew(info, marker):
		return fmt.Errorf("%w: the unit was begun anew at %s", feed.ErrLeasesGone, info.Timestamp.Format(time.RFC3339))
	case !there && len(v.Kind(feed.KindLease)) == 0:
		return fmt.Errorf("%w: the lease container has neither leases nor the marker of the unit, as when it was "+
			"deleted and made anew", feed.ErrLeasesGone)
	}
	return nil
}

// beginsAnew reports whether a unit with a later marker has new leases too. If somebody deletes only the marker, the
// next marker is made for the existing leases: some have had an owner, or have the same makers. If a marker is older,
// it has arrived late, from a dead instance.
func beginsAnew(later, marker feed.Record) bool {
	if !later.Timestamp.After(marker.Timestamp) || later.Properties[notes.RepairedProperty] != "" {
		return false
	}
	known := strings.Fields(marker.Properties[notes.MakersProperty])
	return !slices.ContainsFunc(strings.Fields(later.Properties[notes.MakersProperty]), func(maker string) bool {
		return slices.Contains(known, maker)
	})
}

// Makers returns the makers of the leases without any owner so far, each once.
func (v *View) Makers() (all []string) {
	for _, lease := range v.LeasesWhere(IsUntouched) {
		if maker := lease.Properties[notes.MakerProperty]; maker != "" {
			all = append(all, maker)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// HasNoStart reports whether a lease does not say where it begins.
func HasNoStart(l feed.Record) bool {
	return l.Err == nil && l.State != feed.StateRetired && l.Position.Token == "" && l.Position.Start.IsZero()
}

// Placed returns the valid leases, and the others: the invalid documents, and leases without a known start.
func (v *View) Placed() (good, bad []feed.Record) {
	good, bad = v.Leases()
	if _, known := v.Origin(); known {
		return good, bad
	}
	good = slices.DeleteFunc(good, func(lease feed.Record) bool {
		open := HasNoStart(lease)
		if open {
			lease.Err = &feed.StartError{Leases: []string{lease.ID}}
			bad = append(bad, lease)
		}
		return open
	})
	return good, bad
}

// IDs returns the ids of leases.
func IDs(leases []feed.Record) (list []string) {
	for _, lease := range leases {
		list = append(list, lease.ID)
	}
	return list
}

// Recorded returns where a lost lease must begin again: where the unit began; if that is unknown, at the earliest
// possible start of the mode.
func (v *View) Recorded(mode feed.Mode) feed.Start {
	if mode == feed.AllVersionsAndDeletes {
		return feed.FromNow()
	}
	if start, ok := v.Origin(); ok {
		return start
	}
	return feed.FromBeginning()
}
