package arg

import (
	"context"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/usage"
)

// Range is a range of effective partition keys. Its zero value is that of all keys.
type Range struct {
	set  bool
	read changefeed.Range
	cut  string // the text, if a table has cut its edges
}

// Value is the range that was given, or that of all keys. Edges that a table has cut are found by Complete first.
func (r *Range) Value() changefeed.Range {
	if !r.set {
		return changefeed.FullRange()
	}
	return r.read
}

// String is min-max; empty for all keys.
func (r *Range) String() string {
	if r.Value() == changefeed.FullRange() {
		return ""
	}
	return r.Value().String()
}

// Type is range.
func (r *Range) Type() string { return "range" }

// Set reads min-max. It accepts an ellipsis in an edge, because people copy ranges from
// tables that have shortened them.
func (r *Range) Set(text string) (err error) {
	if r.cut = ""; strings.Contains(text, terminal.Ellipsis) {
		r.cut, text = text, strings.ReplaceAll(text, terminal.Ellipsis, "")
	}
	r.set = true
	r.read, err = changefeed.ParseRange(text)
	return err
}

// Complete finds the edges that a table has shortened, among those of the source's partitions. If several fit, it
// refuses the flag --range.
func (r *Range) Complete(ctx context.Context, source changefeed.Source) error {
	if r.cut == "" {
		return nil
	}
	parts, err := source.Partitions(ctx)
	if err != nil {
		return err
	}
	lo, hi, _ := strings.Cut(r.cut, "-") // was read so by Set
	from, one := whole(parts, lo)
	to, other := whole(parts, hi)
	if !one || !other {
		return usage.Flag("range", r.cut, "a range of partitions, or the whole text of the edges, as changefeed leases writes them into a pipe")
	}
	r.read = changefeed.Range{Min: from, Max: to}
	return nil
}

// whole is the edge that a text stands for. One that was not cut is taken as it is; one that was must be the beginning
// of one edge only.
func whole(parts []changefeed.Partition, text string) (edge string, ok bool) {
	begin, isCut := strings.CutSuffix(strings.ToUpper(text), terminal.Ellipsis)
	if !isCut {
		return begin, true
	}
	found := map[string]bool{}
	for _, partition := range parts {
		for _, e := range []string{partition.Range.Min, partition.Range.Max} {
			if strings.HasPrefix(e, begin) {
				found[e], edge = true, e
			}
		}
	}
	return edge, len(found) == 1
}
