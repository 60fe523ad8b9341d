package changefeedtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Each test of a source runs on a new container, and uses only Source and Committer: the other parts of a store are its
// own affair. Failures say which changes a reader would lose or see twice.

// TestSource proves a [feed.Source], and its optional abilities, against every sentence of their documentation.
// TestSource writes through the store's Committer.
//
// Most cases run a second time with long keys hashed in version 1, because the places of such keys vary in length: a
// store that assumes a fixed length passes all other tests and then skips documents.
func TestSource(t *testing.T, h Harness) {
	for _, c := range slices.Concat(pageCases, startCases, rangeCases, mergeCases, keyCases, versionCases, waitCases,
		countCases, tokenCases, raceCases) {
		t.Run(c.name, func(t *testing.T) { c.run(t, h) })
	}
	for _, c := range slices.Concat(rangeCases, mergeCases, keyCases, versionCases, countCases, raceCases) {
		if len(c.container.Paths) == 0 {
			c = c.withLongKeys()
			t.Run(c.name, func(t *testing.T) { c.run(t, h) })
		}
	}
}

// containerCase is a test on a new container.
type containerCase struct {
	name      string
	needs     []Ability
	container Container
	test      func(s *containerTest)
}

// withLongKeys returns the case with long keys hashed as in version 1, whose places differ much in length.
func (c containerCase) withLongKeys() containerCase {
	c.name += ", with long keys hashed as in version 1"
	c.needs = append(slices.Clone(c.needs), OldHashes)
	c.container.HashV1 = true
	return c
}

// run runs the case on a container of its own, unless the store lacks a necessary ability.
func (c containerCase) run(t *testing.T, h Harness) {
	if !h.hasAll(t, c.needs) {
		return
	}
	if len(c.container.Paths) == 0 {
		c.container.Paths = []string{"/pk"}
	}
	h.runIn(t, func(t *testing.T) {
		s := &containerTest{T: t, h: h, hashV1: c.container.HashV1, Store: h.Container(t, c.container)}
		s.checkHooks(c.needs)
		c.test(s)
	})
}

// containerTest is a container under test with methods for tests. Its methods end the test at the first unexpected
// error.
type containerTest struct {
	*testing.T
	h      Harness
	hashV1 bool
	Store
}

// checkHooks compares the declaration with the abilities of the store, and with those for the case.
func (s *containerTest) checkHooks(needs []Ability) {
	s.Helper()
	waits, counts := s.canWait(), s.canCount()
	_, locates := s.Source.(feed.Locator)
	sequences := s.canSequence()
	for _, a := range needs {
		switch a {
		case Splitting:
			needHook(s.T, s.Split != nil, "Store.Split is nil", a)
		case Merging:
			needHook(s.T, s.Merge != nil, "Store.Merge is nil", a)
		case Throttling:
			needHook(s.T, s.Throttle != nil, "Store.Throttle is nil", a)
		case Waiting:
			needHook(s.T, waits, "the source is no Waiter", a)
		case Counting:
			needHook(s.T, counts, "the source is no Counter", a)
		case Locating:
			needHook(s.T, locates, "the source is no Locator", a)
		case Sequencing:
			needHook(s.T, sequences, "the source is no Sequencer", a)
		}
	}
	if (waits && s.h.lacksAbility(Waiting)) || (counts && s.h.lacksAbility(Counting)) ||
		(locates && s.h.lacksAbility(Locating)) || (sequences && s.h.lacksAbility(Sequencing)) {
		s.Fatalf("the source has an ability that Lacks denies: %v", s.h.Lacks)
	}
}

// canWait reports whether the source is a Waiter and can wait.
func (s *containerTest) canWait() bool {
	waiter, ok := s.Source.(feed.Waiter)
	ended, cancel := context.WithCancel(s.Context())
	cancel()
	return ok && !errors.Is(waiter.Wait(ended, s.wholeRange(), feed.Position{}), errors.ErrUnsupported)
}

// canCount reports whether the source is a Counter and can count.
func (s *containerTest) canCount() bool {
	counter, ok := s.Source.(feed.Counter)
	if !ok {
		return false
	}
	_, err := counter.Pending(s.Context(), s.wholeRange(), feed.Position{Start: feed.FromBeginning()},
		feed.ReadOptions{})
	return !errors.Is(err, errors.ErrUnsupported)
}

func (s *containerTest) passTime(d time.Duration) { s.Helper(); s.h.passTime(s.T, d) }

// paddedKey returns the text of a partition key, padded if the case needs long keys.
func (s *containerTest) paddedKey(pk string) string {
	if s.hashV1 {
		return pk + strings.Repeat("-", 90)
	}
	return pk
}

func (s *containerTest) key(pk string) feed.PartitionKey { return feed.Key(s.paddedKey(pk)) }

// hashV1Edges cut the keys hashed in version 1 into four parts of about the same size. Range.Cut would leave all parts
// except one empty, because nearly all of these places begin with 05C1.
var hashV1Edges = []string{"", "05C1CFFFFFFFF8", "05C1DFFFFFFFFC", "05C1E7FFFFFFFE"}

// cutRange divides a range into parts with keys.
func (s *containerTest) cutRange(r feed.Range, n int) []feed.Range {
	if !s.hashV1 {
		return r.Cut(n)
	}
	var parts []feed.Range
	for i, edge := range hashV1Edges {
		next := feed.FullRange().Max
		if i+1 < len(hashV1Edges) {
			next = hashV1Edges[i+1]
		}
		if part := r.Intersect(feed.Range{Min: edge, Max: next}); !part.Empty() {
			parts = append(parts, part)
		}
	}
	return parts
}

// doc returns an item of the logical partition pk.
func doc(id, pk string, n int) json.RawMessage {
	return fmt.Appendf(nil, `{"id":%q,"pk":%q,"n":%d}`, id, pk, n)
}

// commit writes a batch and expects success.
func (s *containerTest) commit(key feed.PartitionKey, writes ...feed.Write) []feed.Result {
	s.Helper()
	results, err := s.Committer.Commit(s.Context(), key, writes)
	if err != nil {
		s.Fatalf("Commit(%s): %v", key, err)
	}
	if len(results) != len(writes) {
		s.Fatalf("Commit(%s) of %d writes has %d results", key, len(writes), len(results))
	}
	return results
}

// put upserts items of a logical partition in one transaction and returns its LSN.
func (s *containerTest) put(pk string, ids ...string) int64 {
	s.Helper()
	var writes []feed.Write
	for i, id := range ids {
		writes = append(writes, feed.Write{Body: doc(id, s.paddedKey(pk), i)})
	}
	return s.commit(s.key(pk), writes...)[0].LSN
}

// remove deletes an item.
func (s *containerTest) remove(pk, id string) feed.Result {
	s.Helper()
	return s.commit(s.key(pk), feed.Write{Op: feed.WriteDelete, ID: id})[0]
}

// putSpread puts n items, each alone in its logical partition, and returns their ids.
func (s *containerTest) putSpread(prefix string, n int) []string {
	s.Helper()
	var all []string
	for i := range n {
		id := fmt.Sprintf("%s%03d", prefix, i)
		s.put("key-"+id, id)
		all = append(all, id)
	}
	return all
}

// read reads a page, which must have a token: without a token a crash right after would restart from the beginning.
func (s *containerTest) read(r feed.Range, from feed.Position, o feed.ReadOptions) feed.Page {
	s.Helper()
	page, err := s.Source.Read(s.Context(), r, from, o)
	if err != nil {
		s.Fatalf("Read(%v, %v, %+v): %v", r, from, o, err)
	}
	if page.Next.Token == "" {
		s.Fatalf("Read(%v, %v, %+v): Next has no token", r, from, o)
	}
	return page
}

// wantRefused reads and expects an error.
func (s *containerTest) wantRefused(want error, r feed.Range, from feed.Position, o feed.ReadOptions) {
	s.Helper()
	page, err := s.Source.Read(s.Context(), r, from, o)
	if !errors.Is(err, want) {
		s.Errorf("Read(%v, %v, %+v) = %d changes, %v, want error %q", r, from, o, len(page.Changes), err, want)
	}
}

// maxPages ends an endless read.
const maxPages = 10_000

// readAll reads until a page is empty.
func (s *containerTest) readAll(r feed.Range, from feed.Position, o feed.ReadOptions) ([]feed.Change, feed.Position) {
	s.Helper()
	var all []feed.Change
	for range maxPages {
		page := s.read(r, from, o)
		all = append(all, page.Changes...)
		if len(page.Changes) == 0 {
			return all, page.Next
		}
		from = page.Next
	}
	s.Fatalf("Read(%v, %+v) has no end: %d changes", r, o, len(all))
	return nil, from
}

// wholeRange returns the range of the only partition.
func (s *containerTest) wholeRange() feed.Range {
	s.Helper()
	return s.onlyPartition().Range
}

// onlyPartition returns the single partition of an unsplit container.
func (s *containerTest) onlyPartition() feed.Partition {
	s.Helper()
	parts := s.partitions()
	if len(parts) != 1 {
		s.Fatalf("%d partitions, want one: %+v", len(parts), parts)
	}
	return parts[0]
}

// partitions returns the partitions sorted by range. In every test they must tile the key space and have different ids:
// a hole loses changes, an overlap repeats them.
func (s *containerTest) partitions() []feed.Partition {
	s.Helper()
	parts, err := s.Source.Partitions(s.Context())
	if err != nil {
		s.Fatalf("Partitions: %v", err)
	}
	slices.SortFunc(parts, func(a, b feed.Partition) int {
		if a.Range.Min < b.Range.Min {
			return -1
		}
		return 1
	})
	edge := feed.FullRange().Min
	seen := map[string]bool{}
	for _, partition := range parts {
		if partition.Range.Min != edge || partition.Range.Empty() || partition.ID == "" || seen[partition.ID] {
			s.Fatalf("partitions do not tile the key space under different ids: %+v", parts)
		}
		edge, seen[partition.ID] = partition.Range.Max, true
	}
	if edge != feed.FullRange().Max {
		s.Fatalf("partitions end at %q: %+v", edge, parts)
	}
	return parts
}

// split splits a partition and returns its children, sorted by range.
func (s *containerTest) split(partition feed.Partition) []feed.Partition {
	s.Helper()
	s.Split(s.T, partition.ID)
	children := slices.DeleteFunc(s.partitions(), func(c feed.Partition) bool {
		return !partition.Range.Contains(c.Range)
	})
	if len(children) < 2 || slices.ContainsFunc(children, func(c feed.Partition) bool {
		return !slices.Contains(c.Parents, partition.ID)
	}) {
		s.Fatalf("split of partition %+v: want two or more children that name it as parent, got %+v", partition,
			children)
	}
	return children
}

// tokenAtEnd returns the position after all present changes of r.
func (s *containerTest) tokenAtEnd(r feed.Range, mode feed.Mode) feed.Position {
	s.Helper()
	return s.read(r, feed.Position{}, feed.ReadOptions{Mode: mode}).Next
}

// contextThatEndsSoon returns a context for an immediate event.
func (s *containerTest) contextThatEndsSoon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.Context(), time.Minute)
}

// ids returns the ids of changes, in order.
func ids(changes []feed.Change) []string {
	list := []string{}
	for _, c := range changes {
		list = append(list, c.ID)
	}
	return list
}

// wantIDs compares ids in order.
func (s *containerTest) wantIDs(what string, changes []feed.Change, want ...string) {
	s.Helper()
	if got := ids(changes); !slices.Equal(got, want) && len(got)+len(want) > 0 {
		s.Errorf("%s: items %v, want %v", what, got, want)
	}
}

// wantSet compares ids in any order, each once.
func (s *containerTest) wantSet(what string, changes []feed.Change, want []string) {
	s.Helper()
	s.wantIDs(what, slices.SortedFunc(slices.Values(changes), func(a, b feed.Change) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	}), slices.Sorted(slices.Values(want))...)
}

// wantOrder checks that LSNs do not decrease.
func (s *containerTest) wantOrder(what string, changes []feed.Change) {
	s.Helper()
	if !slices.IsSortedFunc(changes, func(a, b feed.Change) int { return int(a.LSN - b.LSN) }) {
		s.Errorf("%s: changes are not in the order of their LSNs: %v", what, ids(changes))
	}
}

var beginning = feed.Position{Start: feed.FromBeginning()}
