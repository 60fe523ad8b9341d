package docstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/internal/proof/detector"
)

// storeWith opens a store, writes documents, and closes the store.
func storeWith(t *testing.T, dir string, ids ...string) {
	t.Helper()
	db, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Container("c")
	if err != nil {
		c, err = db.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/p"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		upsertID(t, c, id)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// upsertID writes a document with an id.
func upsertID(t *testing.T, c *Container, id string) {
	t.Helper()
	if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"p":%q}`, id, id)); err != nil {
		t.Fatal(err)
	}
}

// newestFile is the last of the files of a directory with names of a pattern.
func newestFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no file %s in %s, %v", pattern, dir, err)
	}
	return slices.Max(names)
}

// awaitInFile waits until a file contains one of two texts. A store that does not wait for the disk writes its log soon
// after it has answered.
func awaitInFile(t *testing.T, name, text, other string) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; runtime.Gosched() {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(text)) || bytes.Contains(content, []byte(other)) {
			return
		}
	}
	t.Fatalf("%s has neither %s nor %s after a minute", name, text, other)
}

// rewrite changes a file.
func rewrite(t *testing.T, name string, edit func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, edit(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isRefused checks that a directory is not opened because a file of it is damaged.
func isRefused(t *testing.T, dir, file string) {
	t.Helper()
	db, err := Open(dir, Options{})
	if err == nil {
		_ = db.Close()
	}
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(file)) {
		t.Errorf("open: %v, want that %s is damaged", err, filepath.Base(file))
	}
}

// The newest log of a closed store is known to its last byte: the same log of an older copy of the store lacks writes.
func TestTheLogOfAnOlderCopyIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	storeWith(t, dir)
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	storeWith(t, old, "1")
	storeWith(t, dir, "1", "2")
	log := newestFile(t, dir, "*.log")
	rewrite(t, log, func([]byte) []byte {
		older, err := os.ReadFile(filepath.Join(old, filepath.Base(log)))
		if err != nil {
			t.Fatal(err)
		}
		return older
	})
	isRefused(t, dir, log)
}

// The library reads its newest file of options: that one is verified, although an older one is intact.
func TestTheNewestFileOfOptionsIsVerified(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	storeWith(t, dir, "1")
	newest := newestFile(t, dir, "OPTIONS-*")
	rewrite(t, newest, func(content []byte) []byte {
		if err := os.WriteFile(filepath.Join(dir, "OPTIONS-000001"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		const comparer = "comparer=leveldb.BytewiseComparator"
		if !bytes.Contains(content, []byte(comparer)) {
			t.Fatalf("no %s in %s", comparer, content)
		}
		return bytes.Replace(content, []byte(comparer), []byte("comparer=other"), 1)
	})
	isRefused(t, dir, newest)
}

// The end of its context ends a backup.
func TestABackupEndsWithItsContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	storeWith(t, dir, "1")
	db, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.BackupTo(ctx, new(bytes.Buffer)); !errors.Is(err, context.Canceled) {
		t.Errorf("back up: %v, want that the context is canceled", err)
	}
}

// tableFaults is a file system on which tables cannot be made while fault says so, with so much room.
type tableFaults struct {
	vfs.FS
	fault func() error
	free  *atomic.Uint64
}

func (f tableFaults) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		if err := f.fault(); err != nil {
			return nil, &os.PathError{Op: "create", Path: name, Err: err}
		}
	}
	return f.FS.Create(name, category)
}

func (f tableFaults) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: f.free.Load(), TotalBytes: 1 << 40}, nil
}

const roomy = 1 << 39

// openOn opens a store with a container on a file system, until the test ends.
func openOn(t *testing.T, fs vfs.FS) (*DB, *Container) {
	t.Helper()
	db, err := Open("store", Options{fs: fs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/p"}})
	if err != nil {
		t.Fatal(err)
	}
	return db, c
}

// compact brings all into tables, unless that takes a minute.
func compact(t *testing.T, db *DB) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_ = db.eng.Compact(ctx, []byte{0}, []byte{255}) // what follows shows whether the store has failed
}

// Two short faults of the disk, long after each other, are not one long fault: the store goes on.
func TestTwoShortFaultsAreNotALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults atomic.Int64
		var free atomic.Uint64
		free.Store(roomy)
		fault := func() error {
			if faults.Add(-1) < 0 {
				return nil
			}
			return syscall.EIO
		}
		db, c := openOn(t, tableFaults{vfs.NewMem(), fault, &free})
		for range 2 {
			upsertID(t, c, "1")
			faults.Store(1)
			compact(t, db)
			time.Sleep(time.Minute) // of virtual time: longer than a fault may last
		}
		upsertID(t, c, "2")
	})
}

// A quota that is used up is waited for as a disk that is full.
func TestAFullQuotaIsAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		var free atomic.Uint64
		free.Store(roomy)
		fault := func() error {
			if full.Load() {
				return syscall.EDQUOT
			}
			return nil
		}
		db, c := openOn(t, tableFaults{vfs.NewMem(), fault, &free})
		full.Store(true)
		free.Store(0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			compact(t, db)
		}()
		time.Sleep(30 * time.Second) // of virtual time: the quota is used up for as long
		full.Store(false)
		free.Store(roomy)
		<-done
		time.Sleep(time.Minute) // of virtual time: for the next look at the disk
		upsertID(t, c, "1")
	})
}

// unwritable is a medium that cannot be written.
type unwritable struct{ vfs.FS }

func (unwritable) Lock(name string) (io.Closer, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EROFS}
}

// A store on a medium that cannot be written is salvaged.
func TestAStoreOnAnUnwritableMediumIsSalvaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	storeWith(t, dir, "1")
	n := 0
	_, err := salvage(t.Context(), unwritable{vfs.Default}, dir, func(string, Item) error {
		n++
		return nil
	})
	if err != nil || n != 1 {
		t.Errorf("%d documents, %v, want 1", n, err)
	}
}

// What is lost is listed once, though salvage reads each table several times.
func TestWhatIsLostIsListedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	db, err := Open(dir, Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/p"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		upsertID(t, c, fmt.Sprint("item-", i))
	}
	compact(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	table := newestFile(t, dir, "*.sst")
	info, err := os.Stat(table)
	if err != nil {
		t.Fatal(err)
	}
	losses := 0
	for at := int64(100); at < info.Size(); at += int64(detector.Rounds(128, 1024)) << 10 {
		flip := func(content []byte) []byte {
			content[at] ^= 0x55
			return content
		}
		rewrite(t, table, flip)
		found, err := Salvage(t.Context(), dir, func(string, Item) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		seen := map[Loss]bool{}
		for _, l := range found.Lost {
			if seen[l] {
				t.Errorf("byte %d: %v is listed twice", at, l)
			}
			seen[l] = true
			if strings.Contains(l.Reason, "another table") {
				t.Errorf("byte %d: for a damaged block the whole table is lost: %v", at, l)
			}
			losses++
		}
		rewrite(t, table, flip)
	}
	if losses == 0 {
		t.Error("nothing was lost")
	}
}

// A gap in the newest log is damage if the store waited for the disk, and a loss that is reported if it did not: how
// the store was opened when the log was begun decides, and not how it was opened before.
func TestAGapInTheNewestLogIsJudgedByHowTheLogWasWritten(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "store")
		before, err := Open(dir, Options{NoSync: !noSync})
		if err == nil {
			_, err = before.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/p"}})
		}
		if err = errors.Join(err, before.Close()); err != nil {
			t.Fatal(err)
		}
		db, err := Open(dir, Options{NoSync: noSync})
		if err != nil {
			t.Fatal(err)
		}
		c, err := db.Container("c")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			upsertID(t, c, fmt.Sprint("item-", i, strings.Repeat("-", 200)))
		}
		awaitInFile(t, newestFile(t, dir, "*.log"), "item-150-", "item-151-") // either may be cut, as below
		killed := filepath.Join(t.TempDir(), "killed")
		if err := errors.Join(os.CopyFS(killed, os.DirFS(dir)), db.Close()); err != nil {
			t.Fatal(err)
		}
		log := newestFile(t, killed, "*.log")
		rewrite(t, log, func(content []byte) []byte {
			for i := range 2 { // the name of one item may be cut by the end of a block of the log
				if at := bytes.Index(content, fmt.Append(nil, "item-", 100+i, "-")); at >= 0 {
					clear(content[at : at+100])
					return content
				}
			}
			t.Fatal("the log contains no item to damage")
			return nil
		})
		if !noSync {
			isRefused(t, killed, log)
			continue
		}
		db, err = Open(killed, Options{})
		if err != nil {
			t.Errorf("without waiting for the disk: %v", err)
			continue
		}
		if r := db.Recovery(); r.Lost == 0 {
			t.Errorf("recovery says %+v, though the writes after the gap are lost", r)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// storeWithRemovedRange makes a store of which a table has the removal of the ranges of a deleted container.
func storeWithRemovedRange(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	storeWith(t, dir, "1")
	db, err := Open(dir, Options{})
	if err == nil {
		err = db.DeleteContainer(t.Context(), "c")
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	storeWith(t, dir, "2") // what was in the log is in a table now
	return dir
}

// The block of a table with the ranges that were removed is verified like those with keys: without it what was deleted
// returns.
func TestARemovedRangeOfATableIsVerified(t *testing.T) {
	dir := storeWithRemovedRange(t)
	damaged := 0
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sstable.NewMemReader(content, sstable.ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		layout, err := r.Layout()
		if err = errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if layout.RangeDel.Length == 0 {
			continue
		}
		damaged++
		flip := func(content []byte) []byte {
			content[layout.RangeDel.Offset+layout.RangeDel.Length/2] ^= 1
			return content
		}
		rewrite(t, name, flip)
		before := namesAndSizes(t, dir)
		isRefused(t, dir, name)
		if after := namesAndSizes(t, dir); after != before {
			t.Errorf("a store that is refused has the files %s, and had %s", after, before)
		}
		rewrite(t, name, flip)
	}
	if damaged == 0 {
		t.Error("no table has ranges that were removed")
	}
}

// namesAndSizes are the files of a directory, but for the lock, which may be made anew.
func namesAndSizes(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != "LOCK" {
			fmt.Fprintf(&text, "%s %d, ", e.Name(), info.Size())
		}
	}
	return text.String()
}
