package docstore

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A group waits for those who were in the groups before it, and for nobody else.
func TestAGroupWaitsForItsUsualCallers(t *testing.T) {
	const flush = 400 * time.Microsecond
	for _, c := range []struct {
		name   string
		noSync bool
		before []int         // sizes of the groups before
		flush  time.Duration // of each
		has    int
		waits  time.Duration
	}{
		{"first group", false, nil, flush, 1, 0},
		{"a caller alone", false, []int{1, 1, 1}, flush, 1, 0},
		{"two who met by chance", false, []int{1, 2}, flush, 1, 0},
		{"two who met and parted", false, []int{2, 2, 1}, flush, 1, 0},
		{"some are missing", false, []int{16, 16}, flush, 15, flush},
		{"all are there", false, []int{16, 16}, flush, 16, 0},
		{"a slow disk", false, []int{16, 16}, 50 * time.Millisecond, 2, maxGather},
		{"no disk is waited for", true, []int{16, 16}, flush, 1, 0},
		{"nothing was written", false, []int{16, 16}, 0, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newGather(make(chan *transaction, maxQueue), !c.noSync)
				a.flush = c.flush
				for _, n := range c.before {
					a.noteWritten(n, c.flush)
				}
				begun := time.Now()
				if tx := a.nextForGroup(c.has); tx != nil || time.Since(begun) != c.waits {
					t.Errorf("got %v after %v: want none after %v", tx, time.Since(begun), c.waits)
				}
				if a.nextForGroup(c.has); time.Since(begun) != c.waits {
					t.Errorf("asked again, it waited again: %v in all", time.Since(begun))
				}
			})
		})
	}
}

// However they trickle in, a group waits once.
func TestAGroupWaitsOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flush = 400 * time.Microsecond
		queue := make(chan *transaction, maxQueue)
		a := newGather(queue, true)
		a.flush = flush
		a.noteWritten(16, flush)
		a.noteWritten(16, flush)
		begun := time.Now()
		go func() {
			for range 16 {
				time.Sleep(flush / 4)
				queue <- new(transaction)
			}
		}()
		has := 1
		for a.nextForGroup(has) != nil {
			has++
		}
		if has < 4 || has > 5 || time.Since(begun) != flush {
			t.Errorf("the group has %d after %v: want those of %v", has, time.Since(begun), flush)
		}
		time.Sleep(time.Second)
	})
}

// Callers who write one after the other, all at once, share each flush. Those who left
// are not waited for.
func TestCallersShareFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			callers, writes = 4, 30
			flush           = 700 * time.Microsecond
		)
		var flushes atomic.Int64
		slow := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".log") {
				flushes.Add(1)
				time.Sleep(flush)
			}
			return nil
		})
		db, err := Open("store", Options{fs: errorfs.Wrap(vfs.NewMem(), slow)})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/id"}})
		if err != nil {
			t.Fatal(err)
		}
		upsert := func(id string) {
			if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q}`, id)); err != nil {
				t.Error(err)
			}
		}
		before := flushes.Load()
		var work sync.WaitGroup
		for i := range callers {
			work.Go(func() {
				for range writes {
					upsert(fmt.Sprint(i))
					time.Sleep(flush / 10) // until it has the answer, and comes again
				}
			})
		}
		work.Wait()
		if n := flushes.Load() - before; n > writes+5 {
			t.Errorf("%d flushes for %d writes of each of %d callers: want one for all callers", n, writes, callers)
		}
		upsert("last")
		begun := time.Now()
		upsert("last")
		if took := time.Since(begun); took != flush {
			t.Errorf("a caller alone waited %v: want %v, for one flush", took, flush)
		}
	})
}
