package docstore_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace/changefeed/docstore"
)

// A store at rest says so, with the sizes of its files and of its volume. After Close it says that it is closed.
func TestAStoreAtRestIsHealthy(t *testing.T) {
	db, err := docstore.Open(t.TempDir(), docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := large(t, container(t, db, docstore.ContainerSpec{}), 1); err != nil {
		t.Fatal(err)
	}
	h := db.Health()
	if h.Bytes < 10_000 || h.Bytes > 1<<20 || h.Disk.Free <= 0 || h.Disk.Free > h.Disk.Size {
		t.Errorf("the store takes %d bytes of %+v", h.Bytes, h.Disk)
	}
	if h.Bytes, h.Disk = 0, (docstore.Disk{}); h != (docstore.Health{}) {
		t.Errorf("a store at rest says %+v", h)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if h := db.Health(); !errors.Is(h.Err, docstore.ErrClosed) || !h.Since.IsZero() || h.Bytes < 10_000 {
		t.Errorf("a closed store says %+v", h)
	}
}

// The space of a store in memory is unknown.
func TestAStoreInMemoryHasNoDisk(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	if h := db.Health(); h.Disk != (docstore.Disk{}) || h.Err != nil || h.Full != nil {
		t.Errorf("a store in memory says %+v", h)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// A full disk is told with its figures, before anybody writes.
func TestHealthTellsAFullDisk(t *testing.T) {
	onNarrowDisk(t, func(t *testing.T, d *narrow, db *docstore.DB, _ *docstore.Container) {
		if h := db.Health(); h.Full != nil || h.Disk != (docstore.Disk{Free: narrowSize, Size: narrowSize}) {
			t.Errorf("with room: %+v", h)
		}
		d.left.Store(5)
		h := db.Health()
		if !errors.Is(h.Full, docstore.ErrDiskFull) || h.Err != nil || h.Disk.Free != 5 || h.Bytes == 0 {
			t.Errorf("on a full disk: %+v", h)
		}
		d.left.Store(narrowSize)
		if h := db.Health(); h.Full != nil {
			t.Errorf("with room again: %+v", h)
		}
	})
}

// Each write that waits for a disk is counted until it has an answer, also if it is in the group that the committer
// writes.
func TestWritesThatWaitAreCounted(t *testing.T) {
	onNarrowDisk(t, func(t *testing.T, d *narrow, db *docstore.DB, c *docstore.Container) {
		trap := ".log"
		d.trap.Store(&trap)
		const writers = 5
		errs := make(chan error, 100)
		for i := 0; d.denied.Load() == 0; i++ { // until a log wants room and finds none
			go func() { errs <- large(t, c, 100+i) }()
			synctest.Wait()
		}
		for i := range writers - 1 {
			go func() { errs <- large(t, c, 1000+i) }()
		}
		synctest.Wait()
		if n := db.Health().Waiting; n != writers {
			t.Errorf("%d writes wait, want %d", n, writers)
		}
		d.trap.Store(nil)
		d.left.Store(narrowSize)
		time.Sleep(time.Minute)
		if n := db.Health().Waiting; n != 0 {
			t.Errorf("%d writes wait for a disk with room", n)
		}
		for len(errs) > 0 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// While the disk hangs, in whatever file, the store says how it is, and how many writes wait.
func TestHealthDoesNotWaitForADiskThatHangs(t *testing.T) {
	for _, file := range []string{".log", "MANIFEST", ".sst"} {
		synctest.Test(t, func(t *testing.T) {
			var hanging atomic.Bool
			var hung atomic.Int64
			recovered := make(chan struct{})
			fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				isSync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
				if isSync && hanging.Load() && strings.Contains(op.Path, file) {
					hung.Add(1)
					<-recovered
				}
				return nil
			}))
			db, err := docstore.Open("db", docstore.Options{CacheBytes: 1 << 20}.WithFS(fs).WithBuffer(256<<10))
			if err != nil {
				t.Fatal(err)
			}
			c := container(t, db, docstore.ContainerSpec{})
			hanging.Store(true)
			written := make(chan error, 1000)
			for i := 0; hung.Load() == 0 || db.Health().Waiting == 0; i++ {
				go func() { written <- large(t, c, i) }()
				synctest.Wait()
			}
			if h := db.Health(); h.Err != nil || h.Waiting != 1 || h.Bytes < 10_000 {
				t.Errorf("while %s hangs: %+v", file, h)
			}
			close(recovered)
			synctest.Wait()
			if h := db.Health(); h.Waiting != 0 {
				t.Errorf("after %s: %+v", file, h)
			}
			for len(written) > 0 {
				if err := <-written; err != nil {
					t.Error(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store that has failed says why and since when, also after Close.
func TestHealthTellsAFailureAndItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
				return syscall.EIO
			}
			return nil
		}))
		db, err := docstore.Open("db", docstore.Options{CacheBytes: 1 << 20}.WithFS(fs))
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		time.Sleep(time.Hour)
		broken.Store(true)
		at := time.Now()
		if err := large(t, c, 1); !errors.Is(err, docstore.ErrFailed) {
			t.Fatalf("write: %v", err)
		}
		for _, step := range []func() error{func() error { return nil }, db.Close} {
			time.Sleep(time.Hour)
			_ = step() // a failed store may say why, when it is closed
			h := db.Health()
			if !errors.Is(h.Err, docstore.ErrFailed) || !errors.Is(h.Err, syscall.EIO) || !h.Since.Equal(at) ||
				h.Waiting != 0 || h.Bytes == 0 {
				t.Errorf("the store says %+v, want %v since %v", h, docstore.ErrFailed, at)
			}
		}
	})
}

// Each sync of the log is told to each listener with its duration, until that one stops; without syncs nothing is told.
func TestEachSyncIsTold(t *testing.T) {
	for noSync, writes := range map[bool]int{false: 3, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			const slow = 7 * time.Millisecond
			fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				isSync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
				if isSync && strings.HasSuffix(op.Path, ".log") {
					time.Sleep(slow)
				}
				return nil
			}))
			db, err := docstore.Open("db", docstore.Options{CacheBytes: 1 << 20, NoSync: noSync}.WithFS(fs))
			if err != nil {
				t.Fatal(err)
			}
			c := container(t, db, docstore.ContainerSpec{})
			var one, other []time.Duration
			stopOne := db.OnSync(func(took time.Duration) { one = append(one, took) })
			stopOther := db.OnSync(func(took time.Duration) { other = append(other, took) })
			for i := range 3 {
				if err := large(t, c, i); err != nil {
					t.Fatal(err)
				}
			}
			stopOne()
			if err := large(t, c, 3); err != nil {
				t.Fatal(err)
			}
			stopOther()
			if err := large(t, c, 4); err != nil {
				t.Fatal(err)
			}
			want := slices.Repeat([]time.Duration{slow}, writes)
			if !slices.Equal(one, want) {
				t.Errorf("no sync %t: one is told %v, want %v", noSync, one, want)
			}
			if want = slices.Repeat([]time.Duration{slow}, writes*4/3); !slices.Equal(other, want) {
				t.Errorf("no sync %t: the other is told %v, want %v", noSync, other, want)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Syncs of tables, of manifests and of the directory are not told: no write waits for them.
func TestOnlySyncsOfTheLogAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ofLogs, others atomic.Int64
		inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch {
			case op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData:
			case strings.HasSuffix(op.Path, ".log") || op.Path == "": // a log made out of an old one has no path here
				ofLogs.Add(1)
			default:
				others.Add(1)
			}
			return nil
		})
		fs := reusing{errorfs.Wrap(vfs.NewMem(), inject), inject}
		db, err := docstore.Open("db", docstore.Options{CacheBytes: 1 << 20}.WithFS(fs).WithBuffer(256<<10))
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		synctest.Wait()
		var told atomic.Int64
		defer db.OnSync(func(time.Duration) { told.Add(1) })()
		logs, rest := ofLogs.Load(), others.Load()
		for i := range 200 {
			if err := large(t, c, i); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := ofLogs.Load() - logs; told.Load() != n || n < 200 || others.Load()-rest < 5 {
			t.Errorf("%d syncs are told, there were %d of logs and %d others", told.Load(), n, others.Load()-rest)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
