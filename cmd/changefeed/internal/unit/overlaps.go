package unit

import (
	"slices"
	"strings"

	"github.com/millrace/changefeed/feed"
)

// noteOverlaps adds notes to overlapping leases, and adds holes between leases.
func (u *Unit) noteOverlaps() {
	var covering []*Row
	for i := range u.Rows {
		if r := &u.Rows[i]; r.Kind == KindLease && r.record.State != feed.StateRetired && !r.record.Range.Empty() {
			covering = append(covering, r)
		}
	}
	slices.SortFunc(covering, func(a, b *Row) int { return strings.Compare(a.record.Range.Min, b.record.Range.Min) })
	covered := ""
	var holes []Row
	for i, r := range covering {
		// Compare with all earlier leases and not only with the last: a wide lease may overlap several.
		for _, other := range covering[:i] {
			// A splitting parent overlaps its children for a while, and reads nothing.
			handedOver := r.record.State == feed.StateSplitting || other.record.State == feed.StateSplitting
			if !handedOver && r.record.Range.Overlaps(other.record.Range) {
				r.noteOverlap(other)
				other.noteOverlap(r)
			}
		}
		holes = append(holes, hole(covered, r.record.Range.Min)...)
		covered = max(covered, r.record.Range.Max)
	}
	u.Rows = append(u.Rows, append(holes, hole(covered, feed.FullRange().Max)...)...)
}

// noteOverlap notes that a lease overlaps another.
func (r *Row) noteOverlap(other *Row) {
	r.Overlaps = append(r.Overlaps, other.ID)
	r.note("overlaps %s: keys in both are handled twice", other.ID)
}

// hole returns the row of a range without a lease, if the range is not empty.
func hole(from, to string) []Row {
	r := feed.Range{Min: from, Max: to}
	if r.Empty() {
		return nil
	}
	return []Row{{
		Kind: KindHole, Range: r.String(), record: feed.Record{Range: r},
		Notes: []string{"no lease covers these keys: running processors repair that"},
	}}
}
