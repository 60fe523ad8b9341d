package changefeed_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// movedByDotNet has a host of .NET's read the only lease's range from its position, and write the position after that
// page into the document: it leaves the properties as they are.
func (w *world) movedByDotNet(changes int) {
	w.t.Helper()
	l := w.records(feed.KindLease)[0]
	page, err := w.orders.Read(w.t.Context(), l.Range, l.Position, feed.ReadOptions{})
	if err != nil || len(page.Changes) != changes || page.Next == l.Position {
		w.t.Fatalf("the page has %d changes, want %d, and leads from %v to %v: %v", len(page.Changes), changes,
			l.Position, page.Next, err)
	}
	item, err := w.container.Item(w.t.Context(), feed.Key(l.ID), l.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	document := map[string]any{}
	if err := json.Unmarshal(item.Body, &document); err != nil {
		w.t.Fatal(err)
	}
	document["Owner"], document["ContinuationToken"], document["timestamp"] = nil, page.Next.Token, time.Now().UTC()
	body, err := json.Marshal(document)
	if err != nil {
		w.t.Fatal(err)
	}
	replace := []feed.Write{{Op: feed.WriteReplace, ID: l.ID, Body: body}}
	if _, err := w.container.Commit(w.t.Context(), feed.Key(l.ID), replace); err != nil {
		w.t.Fatal(err)
	}
}

// failedOnce has an instance fail once on the only change, and ends it.
func (w *world) failedOnce(crash bool, o changefeed.Options) {
	w.t.Helper()
	w.put("oslo", "first", 1)
	o.RetryMin, o.RetryMax = 20*time.Second, 20*time.Second
	h := &tally{before: failing}
	p := w.run("a", h, o)
	time.Sleep(5 * time.Second)
	if crash {
		p.kill(w.t)
	} else {
		p.stop(w.t)
	}
	if len(h.attempts) != 1 {
		w.t.Errorf("it was tried %d times: the test shows nothing", len(h.attempts))
	}
}

// Attempts belong to the position that they were written with, and an empty page is progress. A host of another kind
// knows nothing of attempts: when the item has been deleted, and it has moved the position over the empty page that is
// left, they are not those of the next change.
func TestAttemptsEndWhereAnotherHostPassesAnEmptyPage(t *testing.T) {
	for _, o := range []changefeed.Options{
		{},
		{OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: &letterBox{}}},
		{OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: &letterBox{}}, Concurrency: 4},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("concurrency %d, at most %d, crash %v", o.Concurrency, o.OnFailure.MaxAttempts, crash),
				func(t *testing.T) {
					inWorld(t, 1, func(t *testing.T, w *world) {
						o.Start = feed.FromBeginning()
						w.failedOnce(crash, o)
						erase := []feed.Write{{Op: feed.WriteDelete, ID: "first"}}
						if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"), erase); err != nil {
							t.Error(err)
						}
						w.movedByDotNet(0)
						w.isAttempt1("second", o)
					})
				})
		}
	}
}

// The same holds when that host has handled the change.
func TestAttemptsEndWhereAnotherHostHandlesTheChange(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				o := changefeed.Options{Start: feed.FromBeginning()}
				w.failedOnce(crash, o)
				w.movedByDotNet(1)
				w.isAttempt1("second", o)
			})
		})
	}
}

// isAttempt1 writes an item before an instance begins, and expects that nothing else comes, and in attempt 1.
func (w *world) isAttempt1(id string, o changefeed.Options) {
	w.t.Helper()
	lsn := w.put("oslo", id, 2)
	y := &tally{}
	p := w.run("b", y, o)
	time.Sleep(5 * time.Minute)
	p.stop(w.t)
	if !slices.Equal(y.order, []int64{lsn}) || !slices.Equal(y.attempts, []int{1}) {
		w.t.Errorf("LSNs %v came in attempts %v, want %d, which has never failed, in attempt 1", y.order, y.attempts,
			lsn)
	}
}

// After a merge the first change after the position may be another one, so attempts are not counted for it.
func TestAttemptsEndWhereTheirPartitionIsMerged(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		o := changefeed.Options{Start: feed.FromBeginning(), Concurrency: 4}
		w.failedOnce(false, o)
		l := w.records(feed.KindLease)[0]
		name := w.partitions()[0].ID + " -FF"
		if before := l.Properties[notes.DoneProperty]; !strings.Contains(before, name) || l.Attempts != 1 {
			t.Fatalf("%d attempts and the note %s: the test shows nothing", l.Attempts, before)
		}
		l.Properties = notes.Set(l.Properties, notes.DoneProperty,
			strings.Replace(l.Properties[notes.DoneProperty], name, "merged -FF", 1))
		if _, err := w.leases.Update(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		h := &tally{}
		p := w.run("b", h, o)
		time.Sleep(time.Minute)
		p.stop(t)
		if len(h.attempts) != 1 || h.attempts[0] != 1 {
			t.Errorf("attempts %d, want the first alone", h.attempts)
		}
	})
}
