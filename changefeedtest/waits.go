package changefeedtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A processor can work without waiting and counting: then it polls and estimates. If a store has these abilities, it
// must be right, because then the processor asks nothing else.

// waitCases test [feed.Waiter]. If a wait ends too early, it costs a read. If a wait misses a change, a lease stalls
// until the next change, and no error reveals the mistake.
var waitCases = []containerCase{
	{name: "waiting ends at once when there are changes", needs: []Ability{Waiting}, test: waitAtOnce},
	{name: "waiting ends with a commit, and a read then finds it", needs: []Ability{Waiting}, test: waitWakes},
	{name: "waiting ends with the cause of its context", needs: []Ability{Waiting}, test: waitCause},
	{name: "waiting outlasts a split of its range", needs: []Ability{Waiting, Splitting}, test: waitSplit},
	{name: "many waiters all hear of a commit", needs: []Ability{Waiting}, test: waitMany},
}

// awaitChanges waits for necessary changes.
func (s *containerTest) awaitChanges(r feed.Range, from feed.Position) error {
	ctx, cancel := s.contextThatEndsSoon()
	defer cancel()
	return s.Source.(feed.Waiter).Wait(ctx, r, from)
}

// waitAtOnce waits for existing changes.
func waitAtOnce(s *containerTest) {
	from := s.tokenAtEnd(s.wholeRange(), feed.LatestVersion)
	s.put("k", "a")
	for _, at := range []feed.Position{from, beginning} {
		if err := s.awaitChanges(s.wholeRange(), at); err != nil {
			s.Errorf("Wait after %v with a change there: %v", at, err)
		}
	}
}

// waitWakes races commits with waits: a commit between read and wait must end the wait.
func waitWakes(s *containerTest) {
	const commits = 100
	r, from := s.wholeRange(), s.tokenAtEnd(s.wholeRange(), feed.LatestVersion)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range commits {
			if err := s.tryPut("k", fmt.Sprint(i)); err != nil {
				s.Errorf("Commit %d: %v", i, err)
			}
		}
	})
	for seen := 0; seen < commits; {
		if err := s.awaitChanges(r, from); err != nil {
			s.Fatalf("Wait after %d of %d commits: %v", seen, commits, err)
		}
		changes, next := s.readAll(r, from, feed.ReadOptions{})
		seen, from = seen+len(changes), next
		s.letOthersRun(len(changes))
	}
}

// letOthersRun lets other goroutines run, and in a bubble the clock, after a poll that found nothing.
func (s *containerTest) letOthersRun(found int) {
	s.Helper()
	if found > 0 {
		return
	}
	if err := wait(s.Context(), time.Millisecond); err != nil {
		s.Fatal(err)
	}
}

// tryPut is put for goroutines, which may not end the test.
func (s *containerTest) tryPut(pk string, ids ...string) error {
	var writes []feed.Write
	for i, id := range ids {
		writes = append(writes, feed.Write{Body: doc(id, s.paddedKey(pk), i)})
	}
	_, err := s.Committer.Commit(s.Context(), s.key(pk), writes)
	return err
}

// waitCause expects the cause of the context, because a processor ends waits for several reasons and acts according to
// the reason.
func waitCause(s *containerTest) {
	r, from := s.wholeRange(), s.tokenAtEnd(s.wholeRange(), feed.LatestVersion)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(s.Context())
	timer := time.AfterFunc(shortly, func() { cancel(cause) })
	defer timer.Stop()
	for range maxPages { // Wait may return early
		if err := s.Source.(feed.Waiter).Wait(ctx, r, from); err != nil {
			if !errors.Is(err, cause) {
				s.Errorf("Wait = %v, want the cause %v", err, cause)
			}
			return
		}
	}
	s.Error("Wait never blocks")
}

// waitSplit splits a partition while a reader waits. The wait must end, so that the reader notices the split.
func waitSplit(s *containerTest) {
	s.putSpread("i", 10)
	parent := s.onlyPartition()
	_, from := s.readAll(parent.Range, beginning, feed.ReadOptions{})
	done := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { done <- s.awaitChanges(parent.Range, from) })
	s.split(parent)
	s.putSpread("j", 10)
	if err := <-done; err != nil && !errors.Is(err, feed.ErrGone) {
		s.Errorf("Wait on a range that was split and written to: %v", err)
	}
}

// waitMany wakes twenty waiters with a commit: a store which wakes only one of them stalls the others.
func waitMany(s *containerTest) {
	r, from := s.wholeRange(), s.tokenAtEnd(s.wholeRange(), feed.LatestVersion)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 20 {
		wg.Go(func() {
			if err := s.awaitChanges(r, from); err != nil {
				s.Errorf("Wait: %v", err)
			}
		})
	}
	s.put("k", "a")
}

// countCases test [feed.Counter]: the lag for users and their alerts.
var countCases = []containerCase{
	{
		name: "pending counts items, in transactions too, and finds the oldest", needs: []Ability{Counting},
		test: pendingItems,
	},
	{name: "pending counts what a read will give: last versions", needs: []Ability{Counting}, test: pendingLatest},
	{
		name: "pending counts every version and delete", needs: []Ability{Counting, AllVersions}, container: retaining,
		test: pendingVersions,
	},
	{name: "pending takes any range", needs: []Ability{Counting, Splitting}, test: pendingAnyRange},
	{name: "pending counts a logical partition", needs: []Ability{Counting, KeyReads}, test: pendingKey},
	{name: "pending refuses what a read refuses", needs: []Ability{Counting}, test: pendingRefuses},
	{name: "pending counts from a time", needs: []Ability{Counting, PassingTime}, test: pendingFromTime},
}

// countPending counts, and expects success.
func (s *containerTest) countPending(r feed.Range, from feed.Position, o feed.ReadOptions) feed.Backlog {
	s.Helper()
	backlog, err := s.Source.(feed.Counter).Pending(s.Context(), r, from, o)
	if err != nil {
		s.Fatalf("Pending(%v, %v, %+v): %v", r, from, o, err)
	}
	return backlog
}

func (s *containerTest) wantPending(what string, got feed.Backlog, items int, oldest time.Time) {
	s.Helper()
	if got.Items != int64(items) || !got.Oldest.Truncate(time.Second).Equal(oldest.Truncate(time.Second)) {
		s.Errorf("%s: %d pending since %v, want %d since %v", what, got.Items, got.Oldest, items, oldest)
	}
}

// pendingItems counts items and not transactions, and finds the oldest: its age is the delay.
func pendingItems(s *containerTest) {
	r := s.wholeRange()
	s.wantPending("empty", s.countPending(r, beginning, feed.ReadOptions{}), 0, time.Time{})
	s.put("k", "1")
	s.put("k", "2", "3", "4")
	s.put("l", "5")
	all, end := s.readAll(r, beginning, feed.ReadOptions{})
	s.wantIDs("all", all, "1", "2", "3", "4", "5")
	if s.Failed() {
		return
	}
	s.wantPending("from the beginning", s.countPending(r, beginning, feed.ReadOptions{}), 5, all[0].Time)
	page := s.read(r, beginning, feed.ReadOptions{MaxItems: 1})
	s.wantPending("after one item", s.countPending(r, page.Next, feed.ReadOptions{}), 4, all[1].Time)
	s.wantPending("at the end", s.countPending(r, end, feed.ReadOptions{}), 0, time.Time{})
	s.wantPending("from now", s.countPending(r, feed.Position{}, feed.ReadOptions{}), 0, time.Time{})
	s.put("k", "6", "7")
	if got := s.countPending(r, end, feed.ReadOptions{}); got.Items != 2 {
		s.Errorf("%d pending after the former end, want 2", got.Items)
	}
}

// pendingLatest counts last versions, as a read would return them. If superseded versions counted, reads could never
// bring the lag to 0.
func pendingLatest(s *containerTest) {
	from := s.tokenAtEnd(s.wholeRange(), feed.LatestVersion)
	s.put("k", "a")
	s.put("k", "b")
	s.put("k", "a")
	s.put("k", "c")
	s.remove("k", "b")
	changes, _ := s.readAll(s.wholeRange(), from, feed.ReadOptions{})
	s.wantIDs("last versions", changes, "a", "c")
	if got := s.countPending(s.wholeRange(), from, feed.ReadOptions{}); got.Items != 2 {
		s.Errorf("%d pending, want the 2 last versions", got.Items)
	}
}

// pendingVersions counts every version and delete in that mode.
func pendingVersions(s *containerTest) {
	from := s.tokenAtEnd(s.wholeRange(), feed.AllVersionsAndDeletes)
	s.liveFourVersions("k", "a")
	if got := s.countPending(s.wholeRange(), from, versions); got.Items != 8 || got.Oldest.IsZero() {
		s.Errorf("pending %+v, want 8 versions", got)
	}
}

// pendingAnyRange counts across partitions and in parts: an estimate must not fail during a split, because users then
// look at the lag most.
func pendingAnyRange(s *containerTest) {
	s.putSpread("i", 30)
	parent := s.onlyPartition()
	page := s.read(parent.Range, beginning, feed.ReadOptions{MaxItems: 10})
	s.split(parent)
	if got := s.countPending(parent.Range, page.Next, feed.ReadOptions{}); got.Items != 20 {
		s.Errorf("%d pending over two partitions, want 20", got.Items)
	}
	var sum int64
	for _, part := range s.cutRange(parent.Range, 5) {
		sum += s.countPending(part, page.Next, feed.ReadOptions{}).Items
	}
	if sum != 20 {
		s.Errorf("%d pending in five parts, want 20", sum)
	}
}

// pendingKey counts a logical partition.
func pendingKey(s *containerTest) {
	s.putSpread("i", 10)
	s.put("mine", "a", "b", "c")
	if got := s.countPending(s.wholeRange(), beginning, feed.ReadOptions{Key: s.key("mine")}); got.Items != 3 {
		s.Errorf("%d pending in one logical partition, want 3", got.Items)
	}
}

// pendingRefuses expects the errors of a read, so that an invalid position shows here too.
func pendingRefuses(s *containerTest) {
	s.put("k", "a")
	for _, from := range []feed.Position{feed.At("garbage"), feed.At(`"1`)} {
		got, err := s.Source.(feed.Counter).Pending(s.Context(), s.wholeRange(), from, feed.ReadOptions{})
		if !errors.Is(err, feed.ErrBadRequest) {
			s.Errorf("Pending after %s: %+v, %v, want %v", from, got, err, feed.ErrBadRequest)
		}
	}
}

// pendingFromTime counts from a time, as for a unit before its first checkpoint.
func pendingFromTime(s *containerTest) {
	s.put("k", "a")
	s.passTime(2 * time.Second)
	s.put("k", "b")
	all, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	if len(all) != 2 {
		s.Fatalf("%d changes, want 2", len(all))
	}
	from := feed.Position{Start: feed.FromTime(all[0].Time.Add(time.Second))}
	s.wantPending("from a time", s.countPending(s.wholeRange(), from, feed.ReadOptions{}), 1, all[1].Time)
}
