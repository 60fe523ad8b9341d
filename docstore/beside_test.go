package docstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// inMemory makes a store and a container for a test, and closes the store.
func inMemory(t *testing.T, spec ContainerSpec) (*DB, *Container) {
	t.Helper()
	db, err := Open("", Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	spec.ID, spec.Paths = "c", []string{"/pk"}
	c, err := db.CreateContainer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return db, c
}

// 0 and -0 are one value, also within an object or an array.
func TestNestedZerosAreOneValueOfAUniqueKey(t *testing.T) {
	_, c := inMemory(t, ContainerSpec{UniqueKeys: [][]string{{"/k"}}})
	if _, err := c.Create(t.Context(), []byte(`{"id":"1","pk":"a","k":{"a":[0]}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), []byte(`{"id":"2","pk":"a","k":{"a":[-0]}}`)); !errors.Is(err, ErrUniqueKey) {
		t.Errorf("got %v, want %v", err, ErrUniqueKey)
	}
}

// Neither partition of a merge may be in the midst of a split.
func TestAMergeConflictsWithASplitOfEither(t *testing.T) {
	for _, of := range []string{"0", "1"} {
		_, c := inMemory(t, ContainerSpec{Ranges: 2})
		_, err := c.Split(&askedOnce{Context: t.Context(), hook: func() {
			if _, err := c.Merge(t.Context(), "0", "1"); !errors.Is(err, feed.ErrConflict) {
				t.Errorf("a merge while %s is split: %v", of, err)
			}
		}}, of)
		if err != nil {
			t.Errorf("the split of %s: %v", of, err)
		}
	}
}

// A retention that is turned off and on again keeps the versions that its feed needs, and nothing else.
func TestNothingIsLeftOfARetentionThatWasOff(t *testing.T) {
	synctest.Test(t, turnRetentionOffAndOn)
}

func turnRetentionOffAndOn(t *testing.T) {
	db, c := inMemory(t, ContainerSpec{Retention: time.Hour})
	put := func(ids ...string) {
		var writes []feed.Write
		for _, id := range ids {
			writes = append(writes, feed.Write{Op: feed.WriteUpsert, Body: fmt.Appendf(nil, `{"id":%q,"pk":"a"}`,
				id)})
		}
		if _, err := c.Commit(t.Context(), feed.Key("a"), writes); err != nil {
			t.Fatal(err)
		}
	}
	retain := func(d time.Duration) {
		if _, err := db.UpdateContainer(t.Context(), "c", func(s *ContainerSpec) error {
			s.Retention = d
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	put("A", "B")
	put("A")
	// The sweeper runs now, and so not again within a second. A sweep between the two changes of the retention would
	// remove everything by itself.
	time.Sleep(2 * sweepPause)
	retain(time.Hour)
	synctest.Wait()
	retain(0)
	retain(time.Hour)
	if c.layout.Load().drain == 0 {
		t.Error("the sweeper came between the two changes of the retention")
	}
	put("B")
	time.Sleep(10 * time.Minute)
	page, err := c.Read(t.Context(), feed.FullRange(), feed.At(`"2"`),
		feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
	if err != nil || len(page.Changes) != 1 || page.Changes[0].Previous == nil {
		t.Errorf("%+v, %v, want the last version of B with the image before", page.Changes, err)
	}
	if n := db.Versions(c); n != 3 { // the last versions of both, and the image before that of B
		t.Errorf("the log has %d versions, want 3", n)
	}
}

// heldDisk is a file system whose syncs of logs wait, and then fail.
type heldDisk struct {
	vfs.FS
	armed            atomic.Bool
	reached, release chan struct{}
}

func (f *heldDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err == nil && strings.HasSuffix(name, ".log") {
		return heldFile{file, f}, nil
	}
	return file, err
}

type heldFile struct {
	vfs.File
	disk *heldDisk
}

func (f heldFile) sync(sync func() error) error {
	if !f.disk.armed.Load() {
		return sync()
	}
	f.disk.reached <- struct{}{}
	<-f.disk.release
	return errors.New("no disk")
}

func (f heldFile) Sync() error     { return f.sync(f.File.Sync) }
func (f heldFile) SyncData() error { return f.sync(f.File.SyncData) }
func (f heldFile) SyncTo(n int64) (bool, error) {
	return true, f.sync(func() error { _, err := f.File.SyncTo(n); return err })
}

// onHeldDisk makes a store, and a container with a document, on a disk that waits from then on.
func onHeldDisk(t *testing.T) (*DB, *Container, *heldDisk) {
	t.Helper()
	disk := &heldDisk{FS: vfs.NewMem(), reached: make(chan struct{}, 10), release: make(chan struct{})}
	db, err := Open("store", Options{fs: disk})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/pk"}})
	if err == nil {
		_, err = c.Upsert(t.Context(), []byte(`{"id":"1","pk":"a"}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	disk.armed.Store(true)
	return db, c, disk
}

// A read waits until what it shows is on the disk. If the disk fails, the read fails too, at once.
func TestAReadThatWaitsForTheDiskHearsOfItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, c, disk := onHeldDisk(t)
		wrote, read := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := c.Upsert(context.Background(), []byte(`{"id":"2","pk":"a"}`))
			wrote <- err
		}()
		<-disk.reached
		go func() {
			_, err := c.Read(context.Background(), feed.FullRange(), feed.At(`"0"`), feed.ReadOptions{})
			read <- err
		}()
		synctest.Wait()
		select {
		case err := <-read:
			t.Fatalf("the read does not wait for the disk: %v", err)
		default:
		}
		close(disk.release)
		if err := <-wrote; !errors.Is(err, ErrFailed) {
			t.Errorf("the write: %v", err)
		}
		synctest.Wait()
		select {
		case err := <-read:
			if !errors.Is(err, ErrFailed) {
				t.Errorf("the read: %v, want %v", err, ErrFailed)
			}
		default:
			t.Error("the read waits still")
		}
		_ = db.Close() // it has failed
	})
}

// A caller goes away for a reason of its own, which may be one of our errors: nobody has refused the write.
func TestTheCauseOfAContextIsNoRefusalOfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, c, disk := onHeldDisk(t)
		ctx, end := context.WithCancelCause(t.Context())
		wrote := make(chan error, 1)
		go func() {
			_, err := c.Commit(ctx, feed.Key("a"),
				[]feed.Write{{Op: feed.WriteUpsert, Body: []byte(`{"id":"2","pk":"a"}`)}})
			wrote <- err
		}()
		<-disk.reached
		end(fmt.Errorf("mine: %w", feed.ErrConflict))
		err := <-wrote
		if refused, ok := errors.AsType[*feed.WriteError](err); ok || !errors.Is(err, feed.ErrConflict) {
			t.Errorf("got %v, %v, want the cause alone", err, refused)
		}
		close(disk.release)
		_ = db.Close()
	})
}

// What a caller appends to a previous image is not written over the next change.
func TestAPreviousImageEndsWhereTheNextChangeBegins(t *testing.T) {
	_, c := inMemory(t, ContainerSpec{Retention: time.Hour})
	for _, doc := range []string{`{"id":"1","pk":"a"}`, `{"id":"1","pk":"a","n":2}`, `{"id":"2","pk":"a"}`} {
		if _, err := c.Upsert(t.Context(), []byte(doc)); err != nil {
			t.Fatal(err)
		}
	}
	page, err := c.Read(t.Context(), feed.FullRange(), feed.At(`"0"`),
		feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(page.Changes[2].Body)
	_ = append(page.Changes[1].Previous, "xxxxxxxxxxxx"...)
	if !bytes.Equal(page.Changes[2].Body, want) {
		t.Errorf("the next change is %s, and was %s", page.Changes[2].Body, want)
	}
}

// Previous images count for the size of a page.
func TestAPageWithPreviousImagesHasItsLimit(t *testing.T) {
	_, c := inMemory(t, ContainerSpec{Retention: time.Hour})
	for _, text := range []string{strings.Repeat("a", 1900<<10), ""} {
		for i := range 3 {
			if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"a","a":%q}`, i, text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	page, err := c.Read(t.Context(), feed.FullRange(), feed.At(`"3"`),
		feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, change := range page.Changes {
		size += len(change.Body) + len(change.Previous)
	}
	if size > 4<<20 || len(page.Changes) != 2 {
		t.Errorf("a page of %d changes has %d bytes, want 2 changes and at most 4 MB", len(page.Changes), size)
	}
}

// besideSplits calls f again and again while a container is split and merged so many times.
func besideSplits(t *testing.T, c *Container, times int, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range times {
			parts, err := c.Split(context.Background(), c.layout.Load().parts[0].id())
			if err == nil {
				_, err = c.Merge(context.Background(), parts[0].ID, parts[1].ID)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
			f()
		}
	}
}

// A snapshot that meets a split is taken anew, and the state that it held first is let go: otherwise the store could
// not be closed.
func TestSnapshotsBesideSplitsHoldNothing(t *testing.T) {
	db, err := Open("", Options{InMemory: true}) // not closed by a cleanup, which would wait for ever
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/pk"}})
	if err != nil {
		t.Fatal(err)
	}
	besideSplits(t, c, detector.Rounds(300, 100), func() {
		s, err := c.Snapshot(t.Context())
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a snapshot keeps the store from closing")
	}
}

// askedTimes is a context that calls a hook when its error is asked for so many times.
type askedTimes struct {
	context.Context
	left atomic.Int64
	hook func()
}

func (c *askedTimes) Err() error {
	if c.left.Add(-1) == 0 {
		c.hook()
	}
	return c.Context.Err()
}

// A follower of records hears nothing of splits of their container, in whichever step of a read a partition is split
// that is read later.
func TestAFollowerOfRecordsHearsOfNoSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, monitored := inMemory(t, ContainerSpec{})
		c, err := db.CreateContainer(t.Context(), LeaseSpec("leases"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewLeases(t.Context(), c, "mailer", monitored)
		if err != nil {
			t.Fatal(err)
		}
		_, cursor, _, err := s.Follow(t.Context(), "")
		if err == nil {
			_, err = s.Create(t.Context(), feed.Record{
				Kind: feed.KindHost, Token: "a", Owner: "a",
				Timestamp: time.Now(),
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		splitLast := func() {
			parts := c.layout.Load().parts
			if _, err := c.Split(context.Background(), parts[len(parts)-1].id()); err != nil {
				t.Error(err)
			}
		}
		splitLast()
		for step := range int64(8) {
			ctx := &askedTimes{Context: t.Context(), hook: splitLast}
			ctx.left.Store(step + 1)
			if records, _, _, err := s.Follow(ctx, cursor); err != nil || len(records) != 1 {
				t.Errorf("a split in step %d: %d records, %v, want one", step, len(records), err)
			}
		}
	})
}

// fillingDisk is a file system that becomes full when a file grows.
type fillingDisk struct {
	vfs.FS
	armed, full atomic.Bool
}

func (f *fillingDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	u := vfs.DiskUsage{TotalBytes: 1 << 40, AvailBytes: 1 << 39}
	if f.full.Load() {
		u.AvailBytes = 0
	}
	return u, nil
}

func (f *fillingDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return fillingFile{file, f}, err
}

func (f *fillingDisk) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, c)
	return fillingFile{file, f}, err
}

type fillingFile struct {
	vfs.File
	disk *fillingDisk
}

func (f fillingFile) Preallocate(at, n int64) error {
	if f.disk.armed.Load() {
		f.disk.full.Store(true)
		return syscall.ENOSPC
	}
	return f.File.Preallocate(at, n)
}

// A split that finds the disk full leaves nothing: the next one finds the partition as it was.
func TestASplitThatFoundNoRoomCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fillingDisk{FS: vfs.NewMem()}
		db, err := Open("store", Options{fs: disk})
		if err != nil {
			t.Fatal(err)
		}
		c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/pk"}})
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		// a write has found room, and then the disk becomes full
		_, err = c.Split(&askedOnce{Context: t.Context(), hook: func() {
			disk.armed.Store(true)
			go func() {
				_, err := c.Upsert(context.Background(), fmt.Appendf(nil, `{"id":"x","pk":"x","a":%q}`,
					strings.Repeat("a", 1<<20)))
				written <- err
			}()
			for begun := time.Now(); time.Since(begun) < time.Minute && db.eng.WritesStall() == nil; {
				time.Sleep(100 * time.Millisecond)
			}
		}}, "0")
		if !errors.Is(err, ErrDiskFull) {
			t.Errorf("a split on a full disk: %v", err)
		}
		disk.armed.Store(false)
		disk.full.Store(false)
		if err := <-written; err != nil {
			t.Errorf("the write, with room again: %v", err)
		}
		if _, err := c.Split(t.Context(), "0"); err != nil {
			t.Errorf("a split, with room again: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
