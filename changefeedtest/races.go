package changefeedtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Each writer numbers its commits, so that a missing, doubled or misplaced commit shows, although the order of the
// writers is unknown.

// raceCases test readers beside writers. If a store publishes commits out of order, or a head before its changes, it
// skips changes that no later read returns.
var raceCases = []containerCase{
	{name: "a reader after concurrent writers misses nothing and sees nothing twice", test: raceReaders},
	{name: "readers after concurrent writers go on through a split", needs: []Ability{Splitting}, test: raceSplit},
}

const (
	raceWriters = 8
	raceCommits = 40
)

// startWriters starts writers, each with its own logical partition and two new items per commit. The result becomes
// true when all have finished.
func (s *containerTest) startWriters(wg *sync.WaitGroup) *atomic.Bool {
	var left atomic.Int64
	var finished atomic.Bool
	left.Store(raceWriters)
	for w := range raceWriters {
		wg.Go(func() {
			defer func() { finished.Store(left.Add(-1) == 0) }()
			for i := range raceCommits {
				id := fmt.Sprintf("w%d-%04d", w, i)
				if err := s.tryPut(fmt.Sprint("writer", w), id, id+"b"); err != nil {
					s.Errorf("Commit %s: %v", id, err)
					return
				}
			}
		})
	}
	return &finished
}

// wantRace checks that each writer's items appear once and in order.
func (s *containerTest) wantRace(changes []feed.Change) {
	s.Helper()
	next := map[feed.PartitionKey][]string{}
	for _, c := range changes {
		next[c.PartitionKey] = append(next[c.PartitionKey], c.ID)
	}
	for w := range raceWriters {
		got := next[s.key(fmt.Sprint("writer", w))]
		if len(got) != 2*raceCommits {
			s.Errorf("writer %d: %d changes, want %d", w, len(got), 2*raceCommits)
			continue
		}
		for i := range raceCommits {
			id := fmt.Sprintf("w%d-%04d", w, i)
			if got[2*i] != id || got[2*i+1] != id+"b" {
				s.Errorf("writer %d: commit %d came as %v", w, i, got[2*i:2*i+2])
				break
			}
		}
	}
}

// raceReaders follows the writers with small pages, so that most positions lie between
// two commits.
func raceReaders(s *containerTest) {
	r := s.wholeRange()
	from := s.tokenAtEnd(r, feed.LatestVersion)
	var wg sync.WaitGroup
	defer wg.Wait()
	finished := s.startWriters(&wg)
	var all []feed.Change
	for done := false; !done; {
		done = finished.Load() // before the read: commits up to now must appear
		changes, next := s.readAll(r, from, feed.ReadOptions{MaxItems: 7})
		all, from = append(all, changes...), next
		s.letOthersRun(len(changes))
	}
	s.wantOrder("after concurrent writers", all)
	s.wantRace(all)
}

// raceSplit splits the partition while writers write and a reader reads, and hands the reader's position to the
// children: no change may be lost in between.
func raceSplit(s *containerTest) {
	s.putSpread("i", 20)
	parent := s.onlyPartition()
	_, from := s.readAll(parent.Range, beginning, feed.ReadOptions{})
	var writers, reader sync.WaitGroup
	defer writers.Wait()
	finished := s.startWriters(&writers)
	var all []feed.Change
	reader.Go(func() { all, from = s.readUntilGone(parent.Range, from) })
	s.Split(s.T, parent.ID)
	reader.Wait()
	readers := map[feed.Range]feed.Position{}
	for _, child := range s.partitions() {
		readers[child.Range] = from
	}
	for done := false; !done; {
		done = finished.Load()
		found := 0
		for r, from := range readers {
			changes, next := s.readAll(r, from, feed.ReadOptions{MaxItems: 7})
			all, readers[r] = append(all, changes...), next
			found += len(changes)
		}
		s.letOthersRun(found)
	}
	s.wantRace(all)
}

// readUntilGone reads a range until it is gone, on a goroutine that may not end the test.
func (s *containerTest) readUntilGone(r feed.Range, from feed.Position) ([]feed.Change, feed.Position) {
	var all []feed.Change
	for {
		page, err := s.Source.Read(s.Context(), r, from, feed.ReadOptions{MaxItems: 7})
		if err != nil {
			if !errors.Is(err, feed.ErrGone) {
				s.Errorf("Read(%v) during a split: %v, want ErrGone", r, err)
			}
			return all, from
		}
		all, from = append(all, page.Changes...), page.Next
		if len(page.Changes) == 0 && wait(s.Context(), time.Millisecond) != nil {
			return all, from
		}
	}
}
