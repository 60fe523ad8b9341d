package docstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// brokenSync is a disk on which one sync of the store's directory fails, once. It counts what is asked of it
// afterwards.
type brokenSync struct {
	n int // which sync fails, of those since it is armed

	mu     sync.Mutex
	armed  bool
	seen   int
	reads  int // after the failure, as are the next two
	writes []errorfs.Op
	halt   chan struct{} // who asks too often waits for it, so that virtual time goes on
}

const tooOften = 1000

func (d *brokenSync) on(fs vfs.FS) vfs.FS {
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		d.mu.Lock()
		if d.armed && op.Kind == errorfs.OpFileSync && op.Path == "db" {
			if d.seen++; d.seen == d.n {
				d.mu.Unlock()
				return syscall.EIO
			}
		}
		if d.seen < d.n {
			d.mu.Unlock()
			return nil
		}
		switch {
		case op.Kind.ReadOrWrite() == errorfs.OpIsRead:
			d.reads++
		case op.Kind != errorfs.OpFileClose:
			d.writes = append(d.writes, op)
		}
		often := d.reads+len(d.writes) > tooOften
		d.mu.Unlock()
		if often {
			<-d.halt
		}
		return nil
	})
	return reusing{errorfs.Wrap(fs, inject), inject}
}

// asked returns how often the disk was read since it failed, or since the last call, and what was written.
func (d *brokenSync) asked() (failed bool, reads int, writes []errorfs.Op) {
	d.mu.Lock()
	defer d.mu.Unlock()
	reads, writes = d.reads, d.writes
	d.reads, d.writes = 0, nil
	return d.seen >= d.n, reads, writes
}

// A store whose disk has failed at a durable write says so, changes nothing more, and rests: nothing in it looks again
// and again for what it could not write.
func TestAStoreWhoseDiskHasFailedRests(t *testing.T) {
	failures, syncs := 0, detector.Rounds(40, 10)
	for n := 1; n <= syncs; n++ {
		synctest.Test(t, func(t *testing.T) {
			if failsAndRests(t, n) {
				failures++
			}
		})
		if t.Failed() {
			t.Fatalf("at the %dth sync of the directory", n)
		}
	}
	if failures < syncs*3/4 {
		t.Errorf("the store has failed %d times of %d: the test is about nothing", failures, syncs)
	}
}

// failsAndRests writes to a store until a sync of its directory has failed, and reports whether one did.
func failsAndRests(t *testing.T, n int) bool {
	d := &brokenSync{n: n, halt: make(chan struct{})}
	mem := vfs.NewMem()
	db, err := docstore.Open("db", docstore.Options{CacheBytes: 1}.WithFS(d.on(mem)).Small())
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{})
	d.mu.Lock()
	d.armed = true
	d.mu.Unlock()
	acked := map[string]int{}
	for i := 0; i < 600 && err == nil; i++ {
		id := fmt.Sprint("i", i%200)
		if _, err = c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":"p","v":%d,"pad":"%01500d"}`, id, i,
			i)); err == nil {
			acked[id] = i
		}
		synctest.Wait()
	}
	if err != nil && (!errors.Is(err, docstore.ErrFailed) || !errors.Is(err, syscall.EIO)) {
		t.Errorf("write: %v, want %v with %v", err, docstore.ErrFailed, syscall.EIO)
	}
	synctest.Wait()
	if _, reads, writes := d.asked(); reads+len(writes) > tooOften { // else it was what was under way at the failure
		t.Errorf("after the failure there were %d reads and %d writes", reads, len(writes))
	}
	time.Sleep(10 * time.Minute)
	failed, reads, writes := d.asked()
	if failed {
		if _, err := c.Item(t.Context(), feed.Key("p"), "i0"); !errors.Is(err, docstore.ErrFailed) ||
			!errors.Is(err, syscall.EIO) {
			t.Errorf("read of a failed store: %v, want %v with %v", err, docstore.ErrFailed, syscall.EIO)
		}
		if reads > 100 || len(writes) > 0 {
			t.Errorf("in the ten minutes after the failure there were %d reads and the writes %v", reads, writes)
		}
	}
	close(d.halt)
	if err := db.Close(); failed != errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v", err)
	}
	reopenAndVerify(t, mem, acked)
	return failed
}

// The size of a log that was made out of an old one is a figure: that it cannot be read stops nothing.
func TestTheSizeOfALogIsNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var denied atomic.Int64
		inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
			// files that were made out of old ones have no path here
			if op.Kind == errorfs.OpFileStat && op.Path == "" {
				denied.Add(1)
				return syscall.EIO
			}
			return nil
		})
		db, err := docstore.Open("db", docstore.Options{}.WithFS(reusing{
			errorfs.Wrap(vfs.NewMem(), inject),
			inject,
		}).Small())
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		for i := range 40 {
			if err := large(t, c, i); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if denied.Load() == 0 {
			t.Error("no size was asked for: the test is about nothing")
		}
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}

// The error of a read is its caller's alone: whichever call of the disk has failed, the same read succeeds when it is
// tried again.
func TestAReadThatFailedOnceSucceedsAgain(t *testing.T) {
	failed := 0
	for n, calls := int64(1), int64(1); n <= calls; n++ {
		synctest.Test(t, func(t *testing.T) {
			f := &nthCall{n: n}
			s := fill(t, f.on(vfs.NewMem()))
			f.armed.Store(true)
			for id, want := range s.numbers {
				item, err := s.c.Item(t.Context(), feed.Key(id), id)
				if errors.Is(err, syscall.EIO) && !errors.Is(err, docstore.ErrFailed) {
					failed++
					item, err = s.c.Item(t.Context(), feed.Key(id), id)
				}
				if want == 0 && !errors.Is(err, feed.ErrNotFound) ||
					want != 0 && (err != nil || valueOf(t, item.Body) != want) {
					t.Errorf("%s is %.50s, %v, want %d", id, item.Body, err, want)
				}
			}
			if err := s.db.Check(); errors.Is(err, syscall.EIO) {
				failed++
			} else if err != nil {
				t.Error(err)
			}
			if calls = f.calls.Load(); *faultCalls > 0 {
				calls = min(calls, int64(detector.Rounds(30, 8)))
			}
			s.verify("again")
			if err := s.db.Close(); err != nil {
				t.Error(err)
			}
		})
		if t.Failed() {
			t.Fatalf("call %d of %d", n, calls)
		}
	}
	if failed < detector.Rounds(20, 5) {
		t.Errorf("%d reads have failed: the test is about nothing", failed)
	}
}

// A file that cannot be read while a store is opened is not damaged: nobody is told to restore a copy for it.
func TestAnOpenThatCannotReadSaysSoAndNothingOfDamage(t *testing.T) {
	refused := 0
	step := int64(detector.Rounds(1, 4))
	for n, calls := int64(0), int64(0); n <= calls; n += step { // none fails first, which tells how many there are
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewMem()
			keepStore(t, mem, false, nothing)
			f := &nthCall{n: n}
			f.armed.Store(true)
			db, err := docstore.Open("db", docstore.Options{}.WithFS(f.on(mem)))
			if f.armed.Store(false); n == 0 {
				calls = f.calls.Load()
			}
			switch {
			case err == nil:
				_ = db.Close() // may have failed since
			case !errors.Is(err, syscall.EIO) || errors.Is(err, docstore.ErrCorrupt):
				t.Errorf("call %d: %v, want %v and nothing of damage", n, err, syscall.EIO)
			default:
				refused++
			}
			opens(t, mem)
		})
	}
	if refused < detector.Rounds(20, 5) {
		t.Errorf("the store was refused %d times: the test is about nothing", refused)
	}
}
