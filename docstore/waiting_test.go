package docstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// letOthersRun gives goroutines that are ready the time to come to a lock.
func letOthersRun() {
	for range 10_000 {
		runtime.Gosched()
	}
}

// A change that comes while a reader takes the channel of the gate opens a gate at which nobody
// waits. The reader looks for news after that.
func TestAWaiterSleepsThroughNoChange(t *testing.T) {
	c := container(t, openUnchecked(t), docstore.ContainerSpec{})
	upsert(t, c, "a", "p", 1)
	release := c.HoldGate()
	done := make(chan error, 1)
	go func() { done <- c.Wait(t.Context(), feed.FullRange(), feed.At("1")) }()
	letOthersRun() // it is at the gate
	c.PublishAtTheGate()
	release()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the reader sleeps")
	}
}

// A reader that is woken finds the change.
func TestGatesOpenWhenTheHeadHasMoved(t *testing.T) {
	c := container(t, openUnchecked(t), docstore.ContainerSpec{})
	release := c.HoldGate()
	var writing sync.WaitGroup
	writing.Go(func() { upsert(t, c, "a", "p", 1) })
	for begun := time.Now(); c.Head() == 0; runtime.Gosched() {
		if time.Since(begun) > 10*time.Second {
			t.Error("the head has not moved before the gate opens")
			break
		}
	}
	release()
	writing.Wait()
}

// openUnchecked is a store in memory whose positions a test changes.
func openUnchecked(t *testing.T) *docstore.DB {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// A store is killed at each write with which versions are forgotten. The feed of all versions then
// refuses a position before its floor; it shows no gap.
func TestTheFloorIsLiftedBeforeVersionsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		var mu sync.Mutex
		armed := false
		var moments []*vfs.MemFS
		fs := docstore.Failing(mem, func(write bool, _ string) bool {
			mu.Lock()
			defer mu.Unlock()
			if armed && write {
				moments = append(moments, mem.CrashClone(vfs.CrashCloneCfg{
					UnsyncedDataPercent: 0,
					RNG:                 rand.New(rand.NewPCG(1, 2)),
				}))
			}
			return false
		})
		db, err := docstore.Open("db", docstore.Options{}.WithFS(fs).Resting())
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{Retention: time.Minute})
		const versions = 8
		for v := range versions {
			upsert(t, c, fmt.Sprint("i", v%2), "p", v)
		}
		time.Sleep(2 * time.Minute)
		mu.Lock()
		armed = true
		mu.Unlock()
		db.Sweep(c)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		whole, refused := 0, 0
		for n, left := range moments {
			switch got, err := killedFeed(t, left); {
			case errors.Is(err, feed.ErrTooOld):
				refused++
			case err != nil || len(got) != versions:
				t.Errorf("killed before write %d: %d versions, %v: want %d, or %v", n, len(got), err, versions,
					feed.ErrTooOld)
			default:
				whole++
			}
		}
		if whole == 0 || refused == 0 {
			t.Errorf("whole at %d and refused at %d of %d moments: the test is about nothing", whole, refused,
				len(moments))
		}
	})
}

// killedFeed opens a store and reads its feed from the beginning.
func killedFeed(t *testing.T, fs vfs.FS) ([]feed.Change, error) {
	t.Helper()
	db, err := docstore.Open("db", docstore.Options{}.WithFS(fs).Resting())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	}()
	c, err := db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	page, err := c.Read(t.Context(), feed.FullRange(), feed.At("0"), feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
	return page.Changes, err
}
