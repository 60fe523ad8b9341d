package records

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// resolveRanges finds the ranges of old version 0 leases, which contain only the id of their partition; after a split,
// the range of its descendants.
func (v *View) resolveRanges(ctx context.Context, records []feed.Record) error {
	var partitions []feed.Partition
	for i := range records {
		record := &records[i]
		if record.Kind != feed.KindLease || record.Err != nil || !record.Range.Empty() {
			continue
		}
		if partitions == nil {
			var err error
			if partitions, err = v.source.Partitions(ctx); err != nil {
				return err
			}
		}
		if record.Range = lineage(record.Token, partitions); record.Range.Empty() {
			record.Err = fmt.Errorf("%w: %s has no FeedRange, and no partition %q is known: delete it",
				feed.ErrBadLease, record.ID, record.Token)
		}
	}
	return nil
}

// lineage returns the range of a partition, or of all partitions that came from it.
func lineage(id string, partitions []feed.Partition) (r feed.Range) {
	for _, partition := range partitions {
		if partition.ID == id {
			return partition.Range
		}
		if !slices.Contains(partition.Parents, id) {
			continue
		}
		if r.Empty() {
			r = partition.Range
		}
		r = feed.Range{Min: min(r.Min, partition.Range.Min), Max: max(r.Max, partition.Range.Max)}
	}
	return r
}

// RangesOf returns the ranges of partitions.
func RangesOf(partitions []feed.Partition) []feed.Range {
	ranges := make([]feed.Range, len(partitions))
	for i, partition := range partitions {
		ranges[i] = partition.Range
	}
	return ranges
}

// Noted lists the partitions of a source in the form of package notes.
func Noted(ctx context.Context, source feed.Source) ([]notes.Partition, error) {
	partitions, err := source.Partitions(ctx)
	return InNotes(partitions), err
}

// InNotes returns partitions in the form of package notes.
func InNotes(partitions []feed.Partition) (all []notes.Partition) {
	for _, p := range partitions {
		all = append(all, notes.Partition{ID: p.ID, Min: p.Range.Min, Max: p.Range.Max, Parents: p.Parents})
	}
	return all
}
