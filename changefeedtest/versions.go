package changefeedtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// In this mode the order of an item's versions is the content: a handler follows an item from its create to its delete.
// So each version names the previous version, and the tests follow these links across pages, splits and merges.

// retaining is a container with an hour of all versions and deletes.
var retaining = Container{Retention: time.Hour}

// versionCases test the feed of all versions and deletes.
var versionCases = []containerCase{
	{
		name: "all versions and deletes shows every operation, chained by LSN", needs: []Ability{AllVersions},
		container: retaining, test: everyVersion,
	},
	{
		name: "all versions and deletes shows the image before", needs: []Ability{AllVersions, PreviousImages},
		container: retaining, test: imagesBefore,
	},
	{
		name: "all versions and deletes starts from now or a token only", needs: []Ability{AllVersions},
		container: retaining, test: versionStarts,
	},
	{
		name: "all versions and deletes keeps transactions whole, in pages that join", needs: []Ability{AllVersions},
		container: retaining, test: versionPages,
	},
	{
		name: "all versions and deletes goes on through a split", needs: []Ability{AllVersions, Splitting},
		container: retaining, test: versionsThroughSplit,
	},
	{name: "all versions and deletes goes on through a merge", needs: []Ability{
		AllVersions, Splitting, Merging,
		SubRanges,
	}, container: retaining, test: versionsThroughMerge},
	{
		name: "all versions and deletes of a logical partition", needs: []Ability{AllVersions, KeyReads},
		container: retaining, test: versionsOfKey,
	},
	{
		name: "a position before the retention is too old", needs: []Ability{AllVersions, Retention, PassingTime},
		container: retaining, test: tooOld,
	},
	{
		name: "an expired item is a delete that says so", needs: []Ability{AllVersions, Expiry, PassingTime},
		container: Container{Retention: time.Hour, Expiry: true}, test: expiredItem,
	},
	{
		name: "latest version forgets an expired item", needs: []Ability{Expiry, PassingTime},
		container: Container{Expiry: true}, test: expiredLatest,
	},
}

var versions = feed.ReadOptions{Mode: feed.AllVersionsAndDeletes}

// liveFourVersions gives an item four versions and a delete, with a neighbour's writes in between.
func (s *containerTest) liveFourVersions(pk, id string) []feed.Result {
	s.Helper()
	key := s.key(pk)
	var all []feed.Result
	for n, op := range []feed.WriteOp{feed.WriteCreate, feed.WriteReplace, feed.WriteUpsert} {
		all = append(all, s.commit(key, feed.Write{Op: op, Body: doc(id, s.paddedKey(pk), n)})...)
		s.put(pk, "neighbour of "+id)
	}
	third := feed.Write{
		Op: feed.WritePatch, ID: id,
		Patch: []feed.PatchOp{{Op: "set", Path: "/n", Value: json.RawMessage("3")}},
	}
	if s.h.lacksAbility(Patching) {
		third = feed.Write{Op: feed.WriteReplace, Body: doc(id, s.paddedKey(pk), 3)}
	}
	all = append(all, s.commit(key, third)...)
	return append(all, s.remove(pk, id))
}

// of returns the changes of an item.
func of(id string, changes []feed.Change) []feed.Change {
	return slices.DeleteFunc(slices.Clone(changes), func(c feed.Change) bool { return c.ID != id })
}

// everyVersion expects each operation, chained by LSN, so that a handler notices a missing version. The same position
// must also work for the feed of latest versions.
func everyVersion(s *containerTest) {
	from := s.tokenAtEnd(s.wholeRange(), feed.AllVersionsAndDeletes)
	results := s.liveFourVersions("k", "a")
	all, _ := s.readAll(s.wholeRange(), from, versions)
	s.wantOrder("all versions", all)
	s.wantLife(of("a", all), results, "k")
	s.wantIDs("neighbours", of("neighbour of a", all), "neighbour of a", "neighbour of a", "neighbour of a")
	all, _ = s.readAll(s.wholeRange(), from, feed.ReadOptions{})
	s.wantIDs("latest version from the same position", all, "neighbour of a")
}

// wantLife checks the changes of life.
func (s *containerTest) wantLife(changes []feed.Change, results []feed.Result, pk string) {
	s.Helper()
	ops := []feed.Op{feed.OpCreate, feed.OpReplace, feed.OpReplace, feed.OpReplace, feed.OpDelete}
	if len(changes) != len(ops) {
		s.Fatalf("%d versions, want %d: %+v", len(changes), len(ops), changes)
	}
	var previous int64
	for i, c := range changes {
		if c.Op != ops[i] || c.LSN != results[i].LSN || c.PreviousLSN != previous || c.PartitionKey != s.key(pk) ||
			c.Time.IsZero() || c.Expired {
			s.Errorf("version %d is %+v, want %v with LSN %d, previous LSN %d, key %s", i, c, ops[i], results[i].LSN,
				previous, s.key(pk))
		}
		// Only a delete has no body. Every other change has the body and the ETag of its write.
		if (c.Body == nil) != (c.Op == feed.OpDelete) ||
			(c.Body != nil && (number(c.Body) != i || c.ETag != results[i].ETag)) {
			s.Errorf("version %d has body %s, ETag %q, want n %d", i, c.Body, c.ETag, i)
		}
		previous = c.LSN
	}
}

// number returns the n of an item, -1 if there is no item.
func number(body json.RawMessage) int {
	item := struct{ N int }{-1}
	if err := json.Unmarshal(body, &item); err != nil {
		return -1
	}
	return item.N
}

// imagesBefore expects the previous image with each change, which handlers use to see the difference; a create has
// none.
func imagesBefore(s *containerTest) {
	from := s.tokenAtEnd(s.wholeRange(), feed.AllVersionsAndDeletes)
	s.liveFourVersions("k", "a")
	all, _ := s.readAll(s.wholeRange(), from, versions)
	for i, c := range of("a", all) {
		if (i == 0) != (c.Previous == nil) || (i > 0 && number(c.Previous) != i-1) {
			s.Errorf("version %d (%v) has previous image %s, want n %d", i, c.Op, c.Previous, i-1)
		}
	}
}

// versionStarts refuses starts before now: versions before the retention are gone, and a feed with a silent gap at its
// beginning would look complete.
func versionStarts(s *containerTest) {
	s.put("k", "a")
	s.wantRefused(feed.ErrBadRequest, s.wholeRange(), beginning, versions)
	past := feed.Position{Start: feed.FromTime(time.Now().Add(-time.Minute))}
	s.wantRefused(feed.ErrBadRequest, s.wholeRange(), past, versions)
	all, next := s.readAll(s.wholeRange(), feed.Position{}, versions)
	s.wantIDs("from now", all)
	s.remove("k", "a")
	all, _ = s.readAll(s.wholeRange(), next, versions)
	s.wantIDs("after now", all, "a")
}

// versionPages reads with small pages, as for latest versions.
func versionPages(s *containerTest) {
	from := s.tokenAtEnd(s.wholeRange(), feed.AllVersionsAndDeletes)
	want := []string{}
	for range 4 {
		s.put("k", "a", "b", "c")
		s.put("k", "a")
		s.remove("k", "b")
		want = append(want, "a", "b", "c", "a", "b")
	}
	for most := 1; most <= 6; most++ {
		var all []feed.Change
		for at := from; ; {
			page := s.read(s.wholeRange(), at, feed.ReadOptions{Mode: feed.AllVersionsAndDeletes, MaxItems: most})
			if len(page.Changes) == 0 {
				break
			}
			s.wantWhole(most, all, page.Changes)
			all, at = append(all, page.Changes...), page.Next
		}
		s.wantIDs(fmt.Sprint("pages of ", most), all, want...)
	}
}

// versionsThroughSplit splits between the versions of an item. The delete must name the previous replace, although the
// replace is in the parent's log.
func versionsThroughSplit(s *containerTest) {
	s.putSpread("i", 20)
	from := s.tokenAtEnd(s.wholeRange(), feed.AllVersionsAndDeletes)
	before := s.putSpread("i", 20)
	parent := s.onlyPartition()
	children := s.split(parent)
	s.wantRefused(feed.ErrGone, parent.Range, from, versions)
	for i := range 20 {
		s.remove(fmt.Sprintf("key-i%03d", i), fmt.Sprintf("i%03d", i))
	}
	s.wantPairs(children, from, before)
}

// wantPairs reads a replace and a delete of each item from the children.
func (s *containerTest) wantPairs(children []feed.Partition, from feed.Position, items []string) {
	s.Helper()
	replaced := map[string]int64{}
	count := 0
	for _, child := range children {
		for _, c := range s.drainVersions(child.Range, from) {
			switch {
			case c.Op == feed.OpReplace && replaced[c.ID] == 0:
				replaced[c.ID] = c.LSN
			case c.Op == feed.OpDelete && c.PreviousLSN == replaced[c.ID]:
				count++
			default:
				s.Errorf("%v of %s has LSN %d, previous %d, after a replace with %d", c.Op, c.ID, c.LSN, c.PreviousLSN,
					replaced[c.ID])
			}
		}
	}
	if count != len(items) || len(replaced) != len(items) {
		s.Errorf("%d replaces and %d deletes, want %d of each", len(replaced), count, len(items))
	}
}

func (s *containerTest) drainVersions(r feed.Range, from feed.Position) []feed.Change {
	s.Helper()
	return s.drainAll(r, from, feed.ReadOptions{Mode: feed.AllVersionsAndDeletes, MaxItems: 3})
}

// versionsThroughMerge merges between the versions of an item.
func versionsThroughMerge(s *containerTest) {
	s.putSpread("i", 20)
	children := s.split(s.onlyPartition())
	positions := map[string]feed.Position{}
	for _, child := range children {
		positions[child.ID] = s.tokenAtEnd(child.Range, feed.AllVersionsAndDeletes)
	}
	items := s.putSpread("i", 20)
	s.merge()
	for i := range 20 {
		s.remove(fmt.Sprintf("key-i%03d", i), fmt.Sprintf("i%03d", i))
	}
	count := map[feed.Op]int{}
	for _, child := range children {
		for _, c := range s.drainVersions(child.Range, positions[child.ID]) {
			count[c.Op]++
		}
	}
	if count[feed.OpReplace] != len(items) || count[feed.OpDelete] != len(items) || len(count) != 2 {
		s.Errorf("changes after the children's positions: %v, want %d replaces and deletes", count, len(items))
	}
}

// versionsOfKey reads the versions of a logical partition beside another partition with the same id.
func versionsOfKey(s *containerTest) {
	o := feed.ReadOptions{Mode: feed.AllVersionsAndDeletes, Key: s.key("mine")}
	_, from := s.readAll(s.wholeRange(), feed.Position{}, o)
	results := s.liveFourVersions("mine", "a")
	s.liveFourVersions("others", "a")
	s.wantLife(of("a", s.drainAll(s.wholeRange(), from, o)), results, "mine")
}

// tooOld lets the retention pass with writes meanwhile, so that every store has had a reason to clean up. The position
// must then be refused, because an operator must learn about lost changes. The feed of latest versions still accepts
// the position.
func tooOld(s *containerTest) {
	old := s.tokenAtEnd(s.wholeRange(), feed.AllVersionsAndDeletes)
	s.put("k", "a")
	s.passTime(20 * time.Minute)
	s.put("k", "a")
	all, _ := s.readAll(s.wholeRange(), old, versions)
	s.wantIDs("within the retention", all, "a", "a")
	for range 10 {
		s.passTime(40 * time.Minute)
		s.put("k", "a")
		if _, err := s.Source.Read(s.Context(), s.wholeRange(), old, versions); errors.Is(err, feed.ErrTooOld) {
			all, _ = s.readAll(s.wholeRange(), old, feed.ReadOptions{})
			s.wantIDs("latest version from the same position", all, "a")
			return
		}
	}
	s.wantRefused(feed.ErrTooOld, s.wholeRange(), old, versions)
}

// writeWithTTL returns the write of an item with a time to live of ten seconds.
func (s *containerTest) writeWithTTL(id string) feed.Write {
	return feed.Write{Body: fmt.Appendf(nil, `{"id":%q,"pk":%q,"n":0,"ttl":10}`, id, s.paddedKey("k"))}
}

// passUntil lets time pass until done returns true, long enough for a store with background expiry.
func (s *containerTest) passUntil(done func() bool) bool {
	for range 60 {
		s.passTime(5 * time.Second)
		if done() {
			return true
		}
	}
	return false
}

// expiredItem expects an expiry in the feed, as a delete that differs from a user's delete.
func expiredItem(s *containerTest) {
	from := s.tokenAtEnd(s.wholeRange(), feed.AllVersionsAndDeletes)
	result := s.commit(s.key("k"), s.writeWithTTL("a"))[0]
	s.put("k", "stays")
	var all []feed.Change
	if !s.passUntil(func() bool { all, _ = s.readAll(s.wholeRange(), from, versions); return len(all) > 2 }) {
		s.Fatalf("an item with a ttl of 10 s has not expired: %+v", all)
	}
	s.wantIDs("with an expiry", all, "a", "stays", "a")
	end := all[2]
	if end.Op != feed.OpDelete || !end.Expired || end.Body != nil || end.PreviousLSN != result.LSN ||
		end.PartitionKey != s.key("k") {
		s.Errorf("expiry is %+v, want an expired delete with previous LSN %d", end, result.LSN)
	}
}

// expiredLatest expects an expired item to be absent from the feed of latest versions, and its id to be free.
func expiredLatest(s *containerTest) {
	s.commit(s.key("k"), s.writeWithTTL("a"))
	s.put("k", "stays")
	all, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("before it expires", all, "a", "stays")
	s.passUntil(func() bool { all, _ = s.readAll(s.wholeRange(), beginning, feed.ReadOptions{}); return len(all) < 2 })
	s.wantIDs("after it expired", all, "stays")
	s.commit(s.key("k"), feed.Write{Op: feed.WriteCreate, Body: doc("a", s.paddedKey("k"), 1)})
	all, _ = s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("created again", all, "stays", "a")
}
