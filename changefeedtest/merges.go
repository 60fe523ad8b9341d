package changefeedtest

import (
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A merge is rarer than a split and harder: two readers with positions in two logs continue in one partition, each in
// its own half.

// mergeCases test ranges and positions after merges: they stay valid. Leases are not merged together with their
// partitions, so they go on reading parts of the merged partition.
var mergeCases = []containerCase{
	{name: "a merged partition names all that it came from", needs: []Ability{Splitting, Merging}, test: mergeNames},
	{
		name: "ranges and positions from before a merge stay valid", needs: []Ability{Splitting, Merging, SubRanges},
		test: mergeContinues,
	},
	{
		name: "a merged partition gives everything from the beginning", needs: []Ability{Splitting, Merging},
		test: mergeStarts,
	},
	{name: "a start time goes on filtering through a merge", needs: []Ability{
		Splitting, Merging, SubRanges,
		PassingTime,
	}, test: mergeFilters},
	{
		name: "positions survive merges and splits in turn", needs: []Ability{Splitting, Merging, SubRanges},
		test: mergeAndSplit,
	},
}

// merge merges the two partitions of a container.
func (s *containerTest) merge() feed.Partition {
	s.Helper()
	parts := s.partitions()
	if len(parts) != 2 {
		s.Fatalf("%d partitions, want two", len(parts))
	}
	s.Merge(s.T, parts[0].ID, parts[1].ID)
	return s.onlyPartition()
}

// mergeNames expects all ancestors to be named, as after a split.
func mergeNames(s *containerTest) {
	s.putSpread("i", 10)
	parent := s.onlyPartition()
	children := s.split(parent)
	merged := s.merge()
	for _, ancestor := range []string{parent.ID, children[0].ID, children[1].ID} {
		if !slices.Contains(merged.Parents, ancestor) || merged.ID == ancestor {
			s.Errorf("merged partition %+v does not name %s", merged, ancestor)
		}
	}
}

// mergeContinues reads child ranges from positions before the merge. The merged partition has the changes of both, and
// each reader must receive its own part, once.
func mergeContinues(s *containerTest) {
	s.putSpread("old", 30)
	children := s.split(s.onlyPartition())
	rest := map[string][]string{}
	positions := map[string]feed.Position{}
	for _, child := range children {
		page := s.read(child.Range, beginning, feed.ReadOptions{MaxItems: 4})
		positions[child.ID] = page.Next
		changes, _ := s.readAll(child.Range, page.Next, feed.ReadOptions{})
		rest[child.ID] = ids(changes)
	}
	s.merge()
	for _, child := range children {
		changes := s.drainAll(child.Range, positions[child.ID], feed.ReadOptions{MaxItems: 3})
		s.wantIDs("child range after its position, after the merge", changes, rest[child.ID]...)
	}
	want := s.putSpread("new", 30)
	var all []feed.Change
	for _, child := range children {
		changes := s.drainAll(child.Range, positions[child.ID], feed.ReadOptions{})
		s.wantOrder("after a merge", changes)
		all = append(all, changes[min(len(rest[child.ID]), len(changes)):]...)
	}
	s.wantSet("child ranges after later writes", all, want)
}

// mergeStarts reads the merged partition from the beginning: in LSN order, although the changes come from several logs.
func mergeStarts(s *containerTest) {
	want := s.putSpread("old", 20)
	s.split(s.onlyPartition())
	want = append(want, s.putSpread("split", 20)...)
	merged := s.merge()
	from := s.tokenAtEnd(merged.Range, feed.LatestVersion)
	changes := s.drainAll(merged.Range, beginning, feed.ReadOptions{MaxItems: 7})
	s.wantSet("merged partition from the beginning", changes, want)
	s.wantOrder("merged partition", changes)
	s.put("key-new", "new")
	changes, _ = s.readAll(merged.Range, from, feed.ReadOptions{})
	s.wantIDs("merged partition after now", changes, "new")
}

// mergeFilters starts from a time before the merge, which must still exclude older changes.
func mergeFilters(s *containerTest) {
	s.putSpread("old", 20)
	s.passTime(2 * time.Second)
	s.put("key-edge", "edge")
	edge, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	start := feed.Position{Start: feed.FromTime(edge[len(edge)-1].Time.Add(time.Second))}
	children := s.split(s.onlyPartition())
	s.passTime(2 * time.Second)
	want := s.putSpread("new", 20)
	positions := map[string]feed.Position{}
	var all []feed.Change
	for _, child := range children {
		page := s.read(child.Range, start, feed.ReadOptions{MaxItems: 2})
		positions[child.ID], all = page.Next, append(all, page.Changes...)
	}
	s.merge()
	for _, child := range children {
		all = append(all, s.drainAll(child.Range, positions[child.ID], feed.ReadOptions{})...)
	}
	s.wantSet("after the start time", all, want)
}

// mergeAndSplit lets two readers read through three rounds of splits and merges.
func mergeAndSplit(s *containerTest) {
	readers := map[feed.Range]feed.Position{}
	for _, child := range s.split(s.onlyPartition()) {
		readers[child.Range] = beginning
	}
	for _, name := range []string{"a", "b", "c"} {
		want := s.putSpread(name, 20)
		merged := s.merge()
		want = append(want, s.putSpread(name+"merged", 20)...)
		if name == "b" { // a round without a read between merge and split
			s.split(merged)
			want = append(want, s.putSpread(name+"split", 20)...)
		}
		var all []feed.Change
		for r, from := range readers {
			changes, next := s.readAll(r, from, feed.ReadOptions{MaxItems: 6})
			all, readers[r] = append(all, changes...), next
		}
		s.wantSet("round "+name, all, want)
		if name != "b" {
			s.split(merged)
		}
	}
}
