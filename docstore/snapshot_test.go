package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// shown is what a snapshot shows in each way of reading it, as id:number.
func shown(t *testing.T, s *docstore.Snapshot) []string {
	t.Helper()
	var all []string
	take := func(way string, items iter.Seq2[docstore.Item, error]) {
		var ids []string
		for item, err := range items {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, fmt.Sprint(item.ID, ":", valueOf(t, item.Body)))
		}
		all = append(all, way+" "+strings.Join(ids, " "))
	}
	for _, p := range s.Partitions() {
		take(p.Range.Min, s.Documents(t.Context(), p.Range, 0))
	}
	take("after 3", s.Documents(t.Context(), s.Partitions()[0].Range, 3<<8))
	take("ids", s.WithIDs(t.Context(), "i", 0))
	for i := range 6 {
		id := fmt.Sprint("i", i)
		item, err := s.Item(t.Context(), feed.Key(id), id)
		if errors.Is(err, feed.ErrNotFound) {
			all = append(all, id+" is not there")
		} else if err != nil {
			t.Fatal(err)
		} else {
			take("key", s.Logical(t.Context(), feed.Key(item.ID), 0))
			all = append(all, fmt.Sprint(id, ":", valueOf(t, item.Body)))
		}
	}
	return all
}

func TestASnapshotStaysAsItIs(t *testing.T) {
	for _, retention := range []time.Duration{0, time.Minute} {
		db := open(t, docstore.Options{}.Resting())
		c := container(t, db, docstore.ContainerSpec{
			Paths: []string{"/id"}, Retention: retention,
			DefaultTTL: new(600),
		})
		for i := range 5 {
			upsert(t, c, fmt.Sprint("i", i), "", i)
		}
		upsert(t, c, "i0", "", 10)
		if err := c.Delete(t.Context(), feed.Key("i4"), "i4", ""); err != nil {
			t.Fatal(err)
		}
		s, err := c.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if lsn, err := s.LSN(); lsn != 7 || err != nil {
			t.Errorf("LSN is %d, %v, want 7", lsn, err)
		}
		want := shown(t, s)
		if got := want[0]; got != " i0:10 i1:1 i2:2 i3:3" {
			t.Errorf("the snapshot shows%s", got)
		}
		for _, step := range []func() error{
			func() error { _, err := c.Split(t.Context(), "0"); return err },
			func() error { upsert(t, c, "i1", "", 11); return nil },
			func() error { _, err := db.MoveSome(c); return err },
			func() error { return c.Delete(t.Context(), feed.Key("i2"), "i2", "") },
			func() error { db.Sweep(c); return nil },
			func() error { _, err := c.Merge(t.Context(), "1", "2"); return err },
			func() error {
				upsert(t, c, "i0", "", 12)
				upsert(t, c, "i3", "", 13)
				upsert(t, c, "i5", "", 14)
				return nil
			},
			func() error { db.Sweep(c); return nil },
			func() error { // raises the low-water mark
				drain(t, c, feed.FullRange(), feed.At("0"), feed.ReadOptions{})
				return nil
			},
			func() error { c.StepClock(time.Hour); db.Sweep(c); upsert(t, c, "i0", "", 15); return nil },
			func() error { return db.Compact(context.Background()) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
			if got := shown(t, s); !slices.Equal(got, want) {
				t.Errorf("retention %v: the snapshot shows\n%s, want\n%s", retention, strings.Join(got, "\n"),
					strings.Join(want, "\n"))
				break // the store could not be closed before the snapshot
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if s, err = c.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := shown(t, s); got[0] != " i0:15" {
			t.Errorf("a new snapshot shows%s, want the one that was written since the others expired", got[0])
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A walk within a snapshot begins at the low-water mark of its moment: a later one passes over
// versions that were replaced since.
func TestASnapshotIsOfTheLowWaterMarkOfItsMoment(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true}.Resting())
	c := container(t, db, docstore.ContainerSpec{})
	for i := range 40 {
		upsert(t, c, fmt.Sprint("i", i), "p", i)
	}
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		upsert(t, c, fmt.Sprint("i", i), "p", i+100)
	}
	drain(t, c, feed.FullRange(), feed.At("0"), feed.ReadOptions{}) // raises the mark
	n := 0
	for item, err := range s.Documents(t.Context(), feed.FullRange(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if v := valueOf(t, item.Body); item.ID != fmt.Sprint("i", v) {
			t.Errorf("%s is %d", item.ID, v)
		}
		n++
	}
	if n != 40 {
		t.Errorf("the snapshot shows %d documents, want 40", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestASnapshotIsRefused(t *testing.T) {
	db, err := docstore.Open(t.TempDir(), docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Snapshot(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Item(t.Context(), feed.Key("a", "b"), "i"); !errors.Is(err, docstore.ErrKeyMismatch) {
		t.Errorf("a key of two levels: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := db.DeleteContainer(t.Context(), c.Name()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Snapshot(t.Context()); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("of a deleted container: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Snapshot(t.Context()); !errors.Is(err, docstore.ErrClosed) {
		t.Errorf("of a closed store: %v", err)
	}
}

// A snapshot by the layout before a split lacks what was moved into the new logs.
func TestASnapshotIsTakenAgainWhenTheLayoutChanges(t *testing.T) {
	c := container(t, open(t, docstore.Options{InMemory: true}), docstore.ContainerSpec{})
	if err := c.SnapshotBehind(func() {}); err != nil {
		t.Error(err)
	}
	if err := c.SnapshotBehind(func() { split(t, c) }); !errors.Is(err, docstore.ErrMoved) {
		t.Errorf("the snapshot by a former layout: %v", err)
	}
}

// A version that is being overwritten is neither missing nor shown twice, and its successor is
// shown when it cannot be lost any more.
func TestASnapshotWaitsForTheWritesItShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, slow, disk := onSlowDisk(t)
		c := container(t, db, docstore.ContainerSpec{})
		upsert(t, c, "a", "p", 1)
		upsert(t, c, "b", "p", 1)
		slow.Store(true)
		var busy sync.WaitGroup
		busy.Go(func() {
			if _, err := c.Upsert(t.Context(), []byte(`{"id":"a","pk":"p","v":2}`)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		snapshots := make(chan *docstore.Snapshot, 1)
		busy.Go(func() {
			s, err := c.Snapshot(t.Context())
			if err != nil {
				t.Error(err)
			}
			snapshots <- s
		})
		synctest.Wait()
		if len(snapshots) != 0 {
			t.Error("the snapshot is there before the disk has the write")
		}
		slow.Store(false)
		close(disk)
		busy.Wait()
		s := <-snapshots
		var got []string
		for item, err := range s.Documents(t.Context(), feed.FullRange(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(item.ID, valueOf(t, item.Body)))
		}
		if !slices.Equal(got, []string{"a2", "b1"}) {
			t.Errorf("the snapshot has %v, want a2 and b1", got)
		}
		if err := errors.Join(s.Close(), db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}
