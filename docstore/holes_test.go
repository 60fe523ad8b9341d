package docstore

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// A reader that waits at the gate of a partition looks at the partition once more when the gate opens. So the partition
// must be retired by then, or the reader waits for a change that never comes.
func TestAPartitionIsRetiredBeforeItsGateOpens(t *testing.T) {
	_, c := inMemory(t, ContainerSpec{})
	part := c.layout.Load().parts[0]
	release := c.HoldGate()
	var splitting sync.WaitGroup
	splitting.Go(func() {
		if _, err := c.Split(t.Context(), part.id()); err != nil {
			t.Error(err)
		}
	})
	for begun := time.Now(); !part.retired.Load(); runtime.Gosched() {
		if time.Since(begun) > 10*time.Second {
			t.Error("the partition is not retired before the gate opens")
			break
		}
	}
	release()
	splitting.Wait()
}

// A reader that begins in the past has read nothing yet, so it waits for nothing.
func TestAReaderThatHasNotBegunDoesNotWait(t *testing.T) {
	_, c := inMemory(t, ContainerSpec{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, start := range []feed.Start{feed.FromBeginning(), feed.FromTime(time.Unix(1000, 0))} {
		if err := c.Wait(ctx, feed.FullRange(), feed.Position{Start: start}); err != nil {
			t.Errorf("from %s: %v", start, err)
		}
	}
}

// The last key of a table is the end of the ranges that a deleted container had. The table is whole, and salvage loses
// nothing.
func TestATableThatEndsWithARemovedRangeIsNoOther(t *testing.T) {
	dir := storeWithRemovedRange(t)
	found, err := Salvage(t.Context(), dir, func(string, Item) error { return nil })
	if err != nil || len(found.Lost) > 0 {
		t.Errorf("lost %+v, %v; want nothing", found.Lost, err)
	}
}

// The marks of superseded versions are lost. A version of a container that keeps no versions is in no doubt for that:
// such a container has no marks.
func TestLostMarksRaiseNoDoubtWhereNoneAreWritten(t *testing.T) {
	s := &salvager{w: &engine.Wreck{Lost: []engine.LostSpan{{From: []byte{tableDead}, To: []byte{tableDead + 1}}}}}
	for _, markless := range []bool{true, false} {
		at := versionAt{cont: 1, at: addr{lsn: 1}}
		if got := s.isDoubtful(&salvaged{markless: markless}, at, engine.Origin{}); got == markless {
			t.Errorf("without marks %v: doubtful %v", markless, got)
		}
	}
}
