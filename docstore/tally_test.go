package docstore_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// wantPending compares a count from each LSN with the changes that a reader gets.
func wantPending(t *testing.T, c *docstore.Container, step int64) {
	t.Helper()
	parts, err := c.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for from := int64(0); from <= c.Head(); from += step {
		pos := feed.At(fmt.Sprint(from))
		var want feed.Backlog
		for _, p := range parts {
			got, _ := drain(t, c, p.Range, pos, feed.ReadOptions{})
			want.Items += int64(len(got))
			for _, ch := range got[:min(1, len(got))] {
				if want.Oldest.IsZero() || ch.Time.Before(want.Oldest) {
					want.Oldest = ch.Time
				}
			}
		}
		if got, err := c.Pending(t.Context(), feed.FullRange(), pos, feed.ReadOptions{}); err != nil || got != want {
			t.Fatalf("pending from %d: %+v, %v, want %+v", from, got, err, want)
		}
	}
}

// Backlogs of many cells and rows, of single writes and of batches, with documents that
// are overwritten, deleted and expired, are what a reader gets.
func TestABacklogIsWhatAReaderGets(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(docstore.NoDefaultTTL), Ranges: 2},
		func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
			rng := rand.New(rand.NewPCG(3, 4))
			for n := range 2500 {
				pk := fmt.Sprint("p", rng.IntN(20))
				id := fmt.Sprint("i", rng.IntN(60))
				switch rng.IntN(20) {
				case 0:
					if _, err := c.Commit(t.Context(), feed.Key(pk), batchOf(pk, 10, n)); err != nil {
						t.Fatal(err)
					}
				case 1:
					_ = c.Delete(t.Context(), feed.Key(pk), id, "") // may be absent
				case 2:
					if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":%q,"ttl":5}`, id,
						pk)); err != nil {
						t.Fatal(err)
					}
				default:
					upsert(t, c, id, pk, n)
				}
				if n%100 == 0 {
					time.Sleep(time.Second / 2)
				}
			}
			wantPending(t, c, 37)
			split(t, c)
			wantPending(t, c, 301) // perhaps while versions are moved
			synctest.Wait()
			wantPending(t, c, 37)
		})
}

// The age of a backlog is that of its first change, however many cells before are empty.
func TestABacklogIsAsOldAsItsFirstChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, docstore.Options{InMemory: true}.WithCells(2))
		c := container(t, db, docstore.ContainerSpec{})
		var times []time.Time
		for n := range 8 {
			times = append(times, upsert(t, c, fmt.Sprint("i", n), "p", n).Time)
			time.Sleep(time.Second)
		}
		for n := range 4 {
			if err := c.Delete(t.Context(), feed.Key("p"), fmt.Sprint("i", n), ""); err != nil {
				t.Fatal(err)
			}
		}
		// Nothing has been read yet, so no low-water mark leads to the first change.
		want := feed.Backlog{Items: 4, Oldest: times[4]}
		got, err := c.Pending(t.Context(), feed.FullRange(), feed.At("0"), feed.ReadOptions{})
		if err != nil || got != want {
			t.Errorf("pending is %+v, %v: want %+v", got, err, want)
		}
	})
}

// A store of the version before has no tallies. It gets them when it is opened, and
// what is written while they are counted is counted too.
func TestAnOlderStoreGetsItsTallies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := docstore.Options{}.WithFS(docstore.NewMem()).WithCells(2)
		db, err := docstore.Open("db", o.Resting())
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		for n := range 50 {
			upsert(t, c, fmt.Sprint("i", n%30), "p", n)
		}
		if err := db.Untally(c); err != nil {
			t.Fatal(err)
		}
		wantPending(t, c, 1)
		release := db.Hold()
		var busy sync.WaitGroup
		busy.Go(func() {
			if err := db.Tally(c); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // its view is the next thing that the committer makes
		busy.Go(func() { upsert(t, c, "i3", "p", 1) })
		synctest.Wait()
		release()
		busy.Wait()
		if !c.Tallied() {
			t.Error("a container was counted, and has no tallies")
		}
		upsert(t, c, "i4", "p", 1)
		wantPending(t, c, 1)
		if err := db.Check(); err != nil {
			t.Error(err)
		}
		if err := db.Untally(c); err != nil {
			t.Fatal(err)
		}
		for _, resting := range []bool{true, false} {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			again := o
			if resting {
				again = o.Resting()
			}
			if db, err = docstore.Open("db", again); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if c, err = db.Container("c"); err != nil {
				t.Fatal(err)
			}
			if c.Tallied() == resting {
				t.Errorf("tallied is %v in a store that rests: %v", c.Tallied(), resting)
			}
			wantPending(t, c, 1)
		}
		if err := db.Check(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What is applied and not yet acknowledged is not pending, though its tallies are there.
func TestABacklogEndsAtTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		disk := make(chan struct{})
		fs := docstore.Failing(docstore.NewMem(), func(write bool, path string) bool {
			if write && slow.Load() && filepath.Ext(path) == ".log" {
				<-disk
			}
			return false
		})
		db, err := docstore.Open("db", docstore.Options{}.WithFS(fs).WithCells(4))
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		for n := range 10 {
			upsert(t, c, fmt.Sprint("i", n), "p", n)
		}
		slow.Store(true)
		var busy sync.WaitGroup
		busy.Go(func() { upsert(t, c, "another", "p", 1) })
		synctest.Wait()
		busy.Go(func() {
			got, err := c.Pending(t.Context(), feed.FullRange(), feed.At("2"), feed.ReadOptions{})
			if err != nil || got.Items != 8 {
				t.Errorf("pending is %+v, %v: want 8, those up to the head", got, err)
			}
		})
		synctest.Wait()
		close(disk)
		busy.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A tally that is wrong is found, whether too large, absent, or for no version.
func TestWrongTalliesAreFound(t *testing.T) {
	for _, spoil := range []func(*docstore.DB, *docstore.Container) error{
		(*docstore.DB).RaiseTally, (*docstore.DB).DropTallies,
	} {
		db, err := docstore.Open(t.TempDir(), docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		upsert(t, c, "a", "p", 1)
		if err := spoil(db, c); err != nil {
			t.Fatal(err)
		}
		if err := db.Check(); err == nil || !strings.Contains(err.Error(), "tallies") {
			t.Errorf("a check of wrong tallies finds %v", err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
