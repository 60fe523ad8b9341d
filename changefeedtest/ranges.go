package changefeedtest

import (
	"slices"

	"github.com/millrace/changefeed/feed"
)

// Leases are ranges, and may be finer than partitions. So a store must be able to read any part of a partition, and to
// continue in the parts with a position of the whole, because after a split the parts replace a lease in this way.

// rangeCases test reads of parts of the key space, and splits.
var rangeCases = []containerCase{
	{name: "parts of a partition give each change once", needs: []Ability{SubRanges}, test: partsTile},
	{name: "a position of the whole continues in its parts", needs: []Ability{SubRanges}, test: positionsNarrow},
	{
		name: "after a split the children tile the parent and name all ancestors", needs: []Ability{Splitting},
		test: splitNames,
	},
	{
		name: "a range over several partitions is gone, from whatever position", needs: []Ability{Splitting},
		test: spanningGone,
	},
	{
		name: "children continue from the parent's position without loss or repetition", needs: []Ability{Splitting},
		test: splitContinues,
	},
	{
		name: "children give everything from the beginning and nothing from now", needs: []Ability{Splitting},
		test: splitStarts,
	},
	{
		name: "parts inside one child stay readable through a split", needs: []Ability{Splitting, SubRanges},
		test: partsThroughSplit,
	},
}

// partsTile reads parts of a partition, as finer leases do: each change is in exactly one part. Small pages may be
// empty before the end, and a reader must not take such a page for the end.
func partsTile(s *containerTest) {
	want := s.putSpread("i", 40)
	for _, n := range []int{2, 7} {
		var all []feed.Change
		filled := 0
		for _, part := range s.cutRange(s.wholeRange(), n) {
			changes := s.drainAll(part, beginning, feed.ReadOptions{MaxItems: 3})
			s.wantOrder(part.String(), changes)
			filled += min(len(changes), 1)
			all = append(all, changes...)
		}
		s.wantSet("all parts", all, want)
		if filled < 2 {
			s.Errorf("40 keys are in %d of %d parts: want them spread", filled, n)
		}
	}
}

// drainAll reads on after empty pages while their position still moves.
func (s *containerTest) drainAll(r feed.Range, from feed.Position, o feed.ReadOptions) []feed.Change {
	s.Helper()
	var all []feed.Change
	for range maxPages {
		changes, next := s.readAll(r, from, o)
		all = append(all, changes...)
		if len(changes) == 0 && next == from {
			return all
		}
		from = next
	}
	s.Fatalf("Read(%v) moves for ever", r)
	return nil
}

// positionsNarrow uses a position of the whole for its parts, as the children of a lease do.
func positionsNarrow(s *containerTest) {
	s.putSpread("old", 10)
	page := s.read(s.wholeRange(), beginning, feed.ReadOptions{MaxItems: 4})
	rest, _ := s.readAll(s.wholeRange(), page.Next, feed.ReadOptions{})
	var all []feed.Change
	for _, part := range s.cutRange(s.wholeRange(), 3) {
		all = append(all, s.drainAll(part, page.Next, feed.ReadOptions{})...)
	}
	s.wantSet("parts after a page", all, ids(rest))
	s.wantSet("the rest", rest, []string{"old004", "old005", "old006", "old007", "old008", "old009"})
}

// splitNames splits twice. The partitions must name all ancestors, because an instance which was away during both
// splits finds the successors of its lease by them.
func splitNames(s *containerTest) {
	s.putSpread("i", 10)
	parent := s.onlyPartition()
	children := s.split(parent)
	if !tiles(parent.Range, children) {
		s.Errorf("children %+v do not tile %v", children, parent.Range)
	}
	for _, child := range s.split(children[0]) {
		for _, ancestor := range []string{parent.ID, children[0].ID} {
			if !slices.Contains(child.Parents, ancestor) {
				s.Errorf("grandchild %+v does not name its ancestor %s", child, ancestor)
			}
		}
	}
}

// tiles reports whether sorted partitions cover a range.
func tiles(r feed.Range, parts []feed.Partition) bool {
	edge := r.Min
	for _, partition := range parts {
		if partition.Range.Min != edge {
			return false
		}
		edge = partition.Range.Max
	}
	return edge == r.Max
}

// spanningGone reads ranges across partitions. The read must return ErrGone and no changes: otherwise a lease would go
// on reading for two partitions, and the other instances would receive no share.
func spanningGone(s *containerTest) {
	s.putSpread("i", 10)
	parent := s.onlyPartition()
	middle := s.read(parent.Range, beginning, feed.ReadOptions{MaxItems: 3}).Next
	edge := s.split(parent)[0].Range.Max
	spanning := []feed.Range{parent.Range}
	if !s.h.lacksAbility(SubRanges) {
		spanning = append(spanning, feed.Range{Min: edge[:len(edge)-1], Max: edge + "80"})
	}
	for _, r := range spanning {
		for _, from := range []feed.Position{beginning, {}, middle} {
			s.wantRefused(feed.ErrGone, r, from, feed.ReadOptions{})
		}
	}
}

// splitContinues reads a part, splits, writes, and reads the rest from the children. A split must not lose or repeat a
// change.
func splitContinues(s *containerTest) {
	s.putSpread("before", 30)
	first := s.read(s.wholeRange(), beginning, feed.ReadOptions{MaxItems: 11})
	rest, _ := s.readAll(s.wholeRange(), first.Next, feed.ReadOptions{})
	children := s.split(s.onlyPartition())
	after := s.putSpread("after", 20)
	var all []feed.Change
	homes := map[feed.PartitionKey]feed.Range{}
	for _, child := range children {
		changes := s.drainAll(child.Range, first.Next, feed.ReadOptions{MaxItems: 4})
		s.wantOrder(child.Range.String(), changes)
		if len(changes) == 0 {
			s.Errorf("child %+v got none of 50 keys", child)
		}
		for _, c := range changes {
			homes[c.PartitionKey] = child.Range
		}
		all = append(all, changes...)
	}
	s.wantSet("children after the parent's position", all, append(ids(rest), after...))
	// Once more, from the children's own positions.
	again := s.secondSplit(children[1])
	for _, c := range again {
		if home, known := homes[c.PartitionKey]; known && home != children[1].Range {
			s.Errorf("key %s moved from %v to %v", c.PartitionKey, home, children[1].Range)
		}
	}
}

// secondSplit splits a child and rewrites all items after its own position.
func (s *containerTest) secondSplit(child feed.Partition) []feed.Change {
	s.Helper()
	_, end := s.readAll(child.Range, beginning, feed.ReadOptions{})
	s.putSpread("before", 30)
	s.putSpread("after", 20)
	want, _ := s.readAll(child.Range, end, feed.ReadOptions{})
	var all []feed.Change
	for _, grandchild := range s.split(child) {
		all = append(all, s.drainAll(grandchild.Range, end, feed.ReadOptions{})...)
	}
	s.wantSet("grandchildren after the child's position", all, ids(want))
	return all
}

// splitStarts reads children from the beginning and from now, as leases without a position.
func splitStarts(s *containerTest) {
	want := s.putSpread("i", 30)
	var all []feed.Change
	nows := map[string]feed.Position{}
	for _, child := range s.split(s.onlyPartition()) {
		changes := s.drainAll(child.Range, beginning, feed.ReadOptions{})
		s.wantOrder(child.Range.String(), changes)
		all = append(all, changes...)
		none, next := s.readAll(child.Range, feed.Position{}, feed.ReadOptions{})
		s.wantIDs("a child from now", none)
		nows[child.Range.String()] = next
	}
	s.wantSet("children from the beginning", all, want)
	want, all = s.putSpread("late", 20), nil
	for _, child := range s.partitions() {
		all = append(all, s.drainAll(child.Range, nows[child.Range.String()], feed.ReadOptions{})...)
	}
	s.wantSet("children after now", all, want)
}

// partsThroughSplit splits under finer leases. Leases within a child must not notice the split, because there is
// nothing to hand over; the lease across the edge is gone.
func partsThroughSplit(s *containerTest) {
	s.putSpread("old", 30)
	parent := s.onlyPartition()
	positions := map[feed.Range]feed.Position{}
	for _, part := range s.cutRange(parent.Range, 16) {
		_, positions[part] = s.readAll(part, beginning, feed.ReadOptions{})
	}
	children := s.split(parent)
	want := s.putSpread("new", 40)
	var all []feed.Change
	for part, from := range positions {
		if slices.ContainsFunc(children, func(c feed.Partition) bool { return c.Range.Contains(part) }) {
			all = append(all, s.drainAll(part, from, feed.ReadOptions{})...)
			continue
		}
		s.wantRefused(feed.ErrGone, part, from, feed.ReadOptions{})
		for _, child := range children {
			if half := part.Intersect(child.Range); !half.Empty() {
				all = append(all, s.drainAll(half, from, feed.ReadOptions{})...)
			}
		}
	}
	s.wantSet("parts after their positions", all, want)
}
