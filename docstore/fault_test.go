package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// fault is a disk that fails at one kind of call, from one of them on, for a while.
type fault struct {
	call errorfs.OpKind
	err  syscall.Errno
	from int           // which call is the first to fail, from 0
	last time.Duration // how long it fails after the first; 0 is once

	mu     sync.Mutex
	armed  bool
	seen   int
	failed int
	begin  time.Time
}

const forEver = 1 << 62

func (f *fault) on(fs vfs.FS) vfs.FS {
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.armed || op.Kind != f.call {
			return nil
		}
		f.seen++
		switch {
		case f.seen <= f.from:
			return nil
		case f.failed == 0:
			f.begin = time.Now()
		case time.Since(f.begin) >= f.last:
			return nil
		}
		f.failed++
		return f.err
	})
	return reusing{errorfs.Wrap(fs, inject), inject}
}

// reusing has the faults also in files that are made out of old ones.
type reusing struct {
	vfs.FS
	inject errorfs.Injector
}

func (r reusing) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := r.FS.ReuseForWrite(old, name, category)
	if err != nil {
		return nil, err
	}
	return errorfs.WrapFile(f, r.inject), nil
}

func (f *fault) arm(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = yes
}

// hits is how often it has failed.
func (f *fault) hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

var diskCalls = map[string]errorfs.OpKind{
	"create": errorfs.OpCreate, "open": errorfs.OpOpen, "open directory": errorfs.OpOpenDir, "remove": errorfs.OpRemove,
	"rename": errorfs.OpRename, "reuse": errorfs.OpReuseForWrite, "make directory": errorfs.OpMkdirAll,
	"lock": errorfs.OpLock,
	"list": errorfs.OpList, "stat": errorfs.OpStat, "stat file": errorfs.OpFileStat,
	"preallocate": errorfs.OpFilePreallocate,
	"disk usage":  errorfs.OpGetDiskUsage, "read": errorfs.OpFileRead, "read at": errorfs.OpFileReadAt,
	"write": errorfs.OpFileWrite, "sync": errorfs.OpFileSync, "sync data": errorfs.OpFileSyncData,
}

// TestNoErrorOfTheDiskLosesAWriteOrHangs has each call of the disk fail in turn: once, for less
// time than the store waits, and for ever.
func TestNoErrorOfTheDiskLosesAWriteOrHangs(t *testing.T) {
	errnos := []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EMFILE}
	lasts := []time.Duration{0, 3 * time.Second, forEver}
	if detector.On {
		lasts = lasts[1:2] // the others take minutes with the detector
	}
	n, hit := 0, map[string]int{}
	for name, call := range diskCalls {
		for _, last := range lasts {
			for _, from := range []int{0, 3} {
				n++
				f := &fault{call: call, err: errnos[n%len(errnos)], from: from, last: last}
				t.Run(fmt.Sprintf("%s %d %v %v", name, from, last, f.err), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { storeOnFaultyDisk(t, f) })
				})
				hit[name] += f.hits()
			}
		}
	}
	for name, n := range hit {
		if n == 0 {
			t.Errorf("%s never failed: the test is about nothing", name)
		}
	}
}

// storeOnFaultyDisk writes to a store whose disk fails after some writes, and then opens
// it anew on the disk as it is.
func storeOnFaultyDisk(t *testing.T, f *fault) {
	mem := vfs.NewMem()
	o := docstore.Options{CacheBytes: 1 << 20}.WithFS(f.on(mem)).WithBuffer(256 << 10)
	db, err := docstore.Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{})
	acked := map[string]int{}
	pad := strings.Repeat("x", 10000)
	for i := range 250 { // two megabytes and a half: several logs and tables
		f.arm(i >= 50)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		id := fmt.Sprint("i", i%60)
		_, err = c.Upsert(ctx, fmt.Appendf(nil, `{"id":%q,"pk":"p","v":%d,"pad":%q}`, id, i, pad))
		if err == nil {
			acked[id] = i
			_, rerr := c.Item(ctx, feed.Key("p"), fmt.Sprint("i", i*7%min(i+1, 60)))
			if rerr != nil && !errors.Is(rerr, f.err) {
				t.Errorf("read: %v, want %v", rerr, f.err)
			}
		}
		cancel()
		if err != nil {
			break
		}
	}
	if errors.Is(err, docstore.ErrFailed) {
		if !errors.Is(err, f.err) {
			t.Errorf("the store failed with %v, want the reason %v", err, f.err)
		}
		if _, err := c.Item(t.Context(), feed.Key("p"), "i0"); !errors.Is(err, docstore.ErrFailed) {
			t.Errorf("read of a failed store: %v, want %v", err, docstore.ErrFailed)
		}
	} else if err != nil && !errors.Is(err, f.err) {
		t.Errorf("write: %v, want %v", err, f.err)
	}
	closed := time.Now()
	_ = db.Close() // may tell the same
	if took := time.Since(closed); took > time.Minute {
		t.Errorf("Close took %v", took)
	}
	if f.hits() > 5000 {
		t.Errorf("the disk was asked %d times while it failed: want pauses between", f.hits())
	}
	openOnFaultyDisk(t, mem, f)
	reopenAndVerify(t, mem, acked)
}

// openOnFaultyDisk opens the store while the disk fails: it opens or says why not, soon.
func openOnFaultyDisk(t *testing.T, mem vfs.FS, f *fault) {
	t.Helper()
	again := &fault{call: f.call, err: f.err, from: f.from, last: f.last, armed: true}
	begin := time.Now()
	db, err := docstore.Open("db", docstore.Options{CacheBytes: 1 << 20}.WithFS(again.on(mem)))
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("Open took %v", took)
	}
	f.failed += again.hits()
	if err == nil {
		_ = db.Close() // may fail too
	} else if !errors.Is(err, f.err) {
		t.Errorf("Open: %v, want %v", err, f.err)
	}
}

// TestAFullDiskIsWaitedOut: a store goes on by itself when the disk has room again soon.
func TestAFullDiskIsWaitedOut(t *testing.T) {
	for _, call := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpFilePreallocate} {
		synctest.Test(t, func(t *testing.T) {
			f := &fault{call: call, err: syscall.ENOSPC, last: 5 * time.Second}
			db, err := docstore.Open("db", docstore.Options{}.WithFS(f.on(vfs.NewMem())).WithBuffer(256<<10))
			if err != nil {
				t.Fatal(err)
			}
			c := container(t, db, docstore.ContainerSpec{})
			f.arm(true)
			pad := strings.Repeat("x", 10000)
			for i := range 250 {
				if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"p","pad":%q}`, i,
					pad)); err != nil {
					t.Fatalf("write %d: %v", i, err)
				}
			}
			if f.hits() == 0 {
				t.Error("the disk was never full")
			}
			if err := errors.Join(db.Check(), db.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOpenEndsWithItsContextAndSaysWhatItWaitsFor opens a store whose log must become a
// table, on a disk that is full.
func TestOpenEndsWithItsContextAndSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		db, err := docstore.Open("db", docstore.Options{}.WithFS(mem))
		if err != nil {
			t.Fatal(err)
		}
		upsert(t, container(t, db, docstore.ContainerSpec{}), "a", "p", 1)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		full := docstore.Options{}.WithFS(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst") {
				return syscall.ENOSPC
			}
			return nil
		})))
		for _, test := range []struct {
			within time.Duration
			took   time.Duration
			want   error
		}{
			{2 * time.Second, 2 * time.Second, context.DeadlineExceeded},
			{time.Hour, 12 * time.Second, docstore.ErrFailed},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), test.within)
			begin := time.Now()
			_, err := docstore.OpenContext(ctx, "db", full)
			cancel()
			if took := time.Since(begin); took > test.took {
				t.Errorf("within %v: took %v", test.within, took)
			}
			if !errors.Is(err, test.want) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), ".sst") {
				t.Errorf("within %v: %v, want %v, %v and the file", test.within, err, test.want, syscall.ENOSPC)
			}
		}
		reopenAndVerify(t, mem, map[string]int{"a": 1})
	})
}
