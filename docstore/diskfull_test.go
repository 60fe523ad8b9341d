package docstore_test

import (
	"errors"
	"fmt"
	"strings"
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

// narrow is a disk of a size that somebody else fills, to the last byte or but for something.
type narrow struct {
	vfs.FS
	left atomic.Uint64
	// it becomes full when something is done to a file with this ending, and to these alone
	trap   atomic.Pointer[string]
	denied atomic.Int64
}

const narrowSize = 100 << 20

// newNarrow makes an empty one. Nothing can be written to it that takes room while nothing is left.
func newNarrow() *narrow {
	d := &narrow{}
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpFilePreallocate, errorfs.OpFileWrite, errorfs.OpReuseForWrite:
			if op.Kind == errorfs.OpFileWrite && !strings.HasSuffix(op.Path, ".sst") {
				return nil // a log has room for what is written
			}
			trap := d.trap.Load()
			if trap != nil && !strings.HasSuffix(op.Path, *trap) {
				return nil
			}
			if trap != nil && d.denied.Load() == 0 {
				d.left.Store(0)
			}
			if d.left.Load() == 0 {
				d.denied.Add(1)
				return syscall.ENOSPC
			}
		}
		return nil
	})
	d.FS = reusing{errorfs.Wrap(vfs.NewMem(), inject), inject}
	d.left.Store(narrowSize)
	return d
}

// GetDiskUsage implements [vfs.FS].
func (d *narrow) GetDiskUsage(string) (vfs.DiskUsage, error) {
	left := d.left.Load()
	return vfs.DiskUsage{AvailBytes: left, TotalBytes: narrowSize, UsedBytes: narrowSize - left}, nil
}

// onNarrowDisk runs a test with a store on a narrow disk whose container has some documents.
func onNarrowDisk(t *testing.T, test func(t *testing.T, d *narrow, db *docstore.DB, c *docstore.Container)) {
	synctest.Test(t, func(t *testing.T) {
		d := newNarrow()
		db, err := docstore.Open("db", docstore.Options{CacheBytes: 1 << 20}.WithFS(d).WithBuffer(256<<10))
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{DefaultTTL: new(docstore.NoDefaultTTL)})
		for i := range 40 {
			if err := large(t, c, i); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // no table is being written
		test(t, d, db, c)
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}

// large writes document i, which has 10,000 bytes.
func large(t *testing.T, c *docstore.Container, i int) error {
	t.Helper()
	_, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"p","pad":%q}`, i, strings.Repeat("x", 10000)))
	return err
}

// isReadable reads a container whole and by an id.
func isReadable(t *testing.T, c *docstore.Container, want int) {
	t.Helper()
	if _, err := c.Item(t.Context(), feed.Key("p"), "7"); err != nil {
		t.Errorf("read an item: %v", err)
	}
	all, _ := drain(t, c, feed.FullRange(), feed.Position{Start: feed.FromBeginning()}, feed.ReadOptions{})
	if len(all) != want {
		t.Errorf("the feed has %d documents, want %d", len(all), want)
	}
}

func TestAFullDiskRefusesWritesAndNothingElse(t *testing.T) {
	for name, left := range map[string]uint64{
		"to the last byte":              0,
		"but for less than the reserve": narrowSize/16 - 1,
	} {
		t.Run(name, func(t *testing.T) {
			onNarrowDisk(t, func(t *testing.T, d *narrow, db *docstore.DB, c *docstore.Container) {
				if err := db.CheckRoom(); err != nil {
					t.Errorf("there is room, and the store says %v", err)
				}
				d.left.Store(left)
				if err := db.CheckRoom(); !errors.Is(err, docstore.ErrDiskFull) {
					t.Errorf("the store says %v, want %v, as writes do", err, docstore.ErrDiskFull)
				}
				for i := range detector.Rounds(300, 60) {
					begun := time.Now()
					err := large(t, c, 1000+i)
					if took := time.Since(begun); !errors.Is(err, docstore.ErrDiskFull) ||
						errors.Is(err, docstore.ErrFailed) || took > 0 {
						t.Fatalf("write %d: %v after %v, want %v at once", i, err, took, docstore.ErrDiskFull)
					}
					if want := fmt.Sprintf("has %d KB left, and the store keeps %d KB", left>>10,
						narrowSize/16>>10); !strings.Contains(err.Error(), want) {
						t.Fatalf("%v does not say %q", err, want)
					}
					isReadable(t, c, 40)
					time.Sleep(time.Second)
				}
				if _, err := db.CreateContainer(t.Context(),
					docstore.ContainerSpec{ID: "more", Paths: []string{"/pk"}}); !errors.Is(err, docstore.ErrDiskFull) {
					t.Errorf("create a container: %v", err)
				}
				if _, err := c.Split(t.Context(), "0"); !errors.Is(err, docstore.ErrDiskFull) {
					t.Errorf("split: %v", err)
				}
				d.left.Store(narrowSize / 16)
				for i := range 300 { // several logs and tables
					if err := large(t, c, 2000+i); err != nil {
						t.Fatalf("with room again: %v", err)
					}
				}
				isReadable(t, c, 340)
			})
		})
	}
}

// What expires while the disk is full is hidden all the same, and deleted when there is room.
func TestWhatExpiresOnAFullDiskIsDeletedLater(t *testing.T) {
	onNarrowDisk(t, func(t *testing.T, d *narrow, _ *docstore.DB, c *docstore.Container) {
		if _, err := c.Upsert(t.Context(), []byte(`{"id":"brief","pk":"p","ttl":5}`)); err != nil {
			t.Fatal(err)
		}
		d.left.Store(0)
		time.Sleep(10 * time.Minute)
		isReadable(t, c, 40)
		d.left.Store(narrowSize)
		time.Sleep(time.Minute)
		if n := c.Count(); n != 40 {
			t.Errorf("%d documents, want the 40 that live", n)
		}
	})
}

// A container may be deleted from what is left of the reserve, because that gives room back.
func TestAContainerCanBeDeletedOnAFullDisk(t *testing.T) {
	onNarrowDisk(t, func(t *testing.T, d *narrow, db *docstore.DB, c *docstore.Container) {
		container(t, db, docstore.ContainerSpec{ID: "old"})
		d.left.Store(narrowSize/16 - 1)
		if err := db.DeleteContainer(t.Context(), "old"); err != nil {
			t.Errorf("with most of the reserve: %v", err)
		}
		d.left.Store(0)
		if err := db.DeleteContainer(t.Context(), "c"); !errors.Is(err, docstore.ErrDiskFull) {
			t.Errorf("with nothing left: %v", err)
		}
		isReadable(t, c, 40)
		d.left.Store(narrowSize)
	})
}

// The disk becomes full just when the engine writes a table: it tries until there is room, and nobody else notices.
func TestATableThatFindsNoRoomIsWrittenLater(t *testing.T) {
	onNarrowDisk(t, func(t *testing.T, d *narrow, _ *docstore.DB, c *docstore.Container) {
		d.trap.Store(new(".sst"))
		n := 40
		for ; d.left.Load() > 0 && n < 200; n++ {
			if err := large(t, c, n); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		time.Sleep(10 * time.Minute)
		if d.denied.Load() < 20 || d.denied.Load() > 5000 {
			t.Errorf("tried %d times in ten minutes, want now and then", d.denied.Load())
		}
		isReadable(t, c, n)
		if err := large(t, c, n); !errors.Is(err, docstore.ErrDiskFull) {
			t.Errorf("write: %v, want %v", err, docstore.ErrDiskFull)
		}
		d.left.Store(narrowSize)
		for i := range 100 {
			if err := large(t, c, n+i); err != nil {
				t.Fatalf("with room again: %v", err)
			}
		}
		isReadable(t, c, n+100)
	})
}

// narrowStore opens a store with small buffers on a disk with little room.
func narrowStore(t *testing.T) (*narrow, docstore.Options, *docstore.DB, *docstore.Container) {
	t.Helper()
	d := newNarrow()
	o := docstore.Options{CacheBytes: 1 << 20}.WithFS(d).WithBuffer(256 << 10)
	db, err := docstore.Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	return d, o, db, container(t, db, docstore.ContainerSpec{})
}

// isWhole opens a store with room again. It has the first n documents, and no violation.
func isWhole(t *testing.T, d *narrow, o docstore.Options, n int) {
	t.Helper()
	d.left.Store(narrowSize)
	db, err := docstore.Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	isReadable(t, c, n)
	if err := errors.Join(db.Check(), db.Close()); err != nil {
		t.Error(err)
	}
}

// What could not become a table before the end is in the logs.
func TestAStoreOnAFullDiskIsClosedAndOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, o, db, c := narrowStore(t)
		d.trap.Store(new(".sst"))
		n := 0
		for ; d.left.Load() > 0 && n < 200; n++ {
			if err := large(t, c, n); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		begun := time.Now()
		err := db.Close()
		if took := time.Since(begun); took > 30*time.Second || err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("closed after %v: %v", took, err)
		}
		isWhole(t, d, o, n)
	})
}

// The disk becomes full just when a log needs room: that write waits until there is some. Later ones are refused
// meanwhile, and other containers can be read.
func TestALogThatFindsNoRoomIsWrittenLater(t *testing.T) {
	onNarrowDisk(t, func(t *testing.T, d *narrow, db *docstore.DB, c *docstore.Container) {
		other := container(t, db, docstore.ContainerSpec{ID: "other"})
		d.trap.Store(new(".log"))
		var n atomic.Int64
		n.Store(40)
		ended := make(chan error)
		go func() {
			var err error
			for ; err == nil && n.Load() < 100; n.Add(1) {
				err = large(t, c, int(n.Load()))
			}
			ended <- err
		}()
		time.Sleep(5 * time.Minute)
		if d.denied.Load() < 20 || d.denied.Load() > 5000 {
			t.Errorf("tried %d times in five minutes, want now and then", d.denied.Load())
		}
		refused := make(chan error, 1)
		go func() { refused <- large(t, c, 1000) }()
		synctest.Wait()
		select {
		case err := <-refused:
			if !errors.Is(err, docstore.ErrDiskFull) {
				t.Errorf("write: %v, want %v", err, docstore.ErrDiskFull)
			}
		default:
			t.Errorf("a write waits for room, want %v at once", docstore.ErrDiskFull)
		}
		if all, _ := drain(t, other, feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
			feed.ReadOptions{}); len(all) > 0 {
			t.Errorf("the other container has %v", all)
		}
		d.left.Store(narrowSize)
		if err := <-ended; err != nil {
			t.Errorf("with room again: %v", err)
		}
		isReadable(t, c, 100)
	})
}

// A write that waits for room does not keep its store from being closed: it has as long as any write has on a disk that
// fails.
func TestAStoreIsClosedThoughAWriteWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, o, db, c := narrowStore(t)
		d.trap.Store(new(".log"))
		acked := 0
		failed := make(chan error, 1)
		go func() {
			for ; ; acked++ {
				if err := large(t, c, acked); err != nil || acked > 200 {
					failed <- err
					return
				}
			}
		}()
		time.Sleep(5 * time.Minute)
		if d.denied.Load() == 0 || len(failed) > 0 {
			t.Fatal("no write waits for room: the test is about nothing")
		}
		closed := make(chan error, 1)
		go func() { closed <- db.Close() }()
		select {
		case err := <-closed:
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("closed: %v, want %v", err, syscall.ENOSPC)
			}
		case <-time.After(time.Minute):
			t.Error("the store is not closed after a minute")
			d.left.Store(narrowSize)
			<-closed
		}
		if err := <-failed; !errors.Is(err, docstore.ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("the write: %v, want %v with %v", err, docstore.ErrFailed, syscall.ENOSPC)
		}
		isWhole(t, d, o, acked)
	})
}
