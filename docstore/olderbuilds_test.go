package docstore_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// olderStore is a store that an older build wrote: testdata/stores/README.md says which builds there are.
type olderStore struct {
	files    map[string][]byte
	acked    []ackedWrite
	numbered bool // its build gave documents the numbers of their creation
}

// ackedWrite is a write that the older build acknowledged. One without a body is a delete.
type ackedWrite struct {
	Container, ID, Key string
	Body               json.RawMessage
	LSN                int64
}

// document is what names a document in its container.
func (w ackedWrite) document() string { return w.Key + " " + w.ID }

// olderStores reads the stores that were left in this way: close, kill or tried.
func olderStores(t *testing.T, left string) map[string]olderStore {
	t.Helper()
	names, err := filepath.Glob("testdata/stores/*-" + left + ".tar.gz")
	if err != nil || len(names) < 10 {
		t.Fatalf("stores of older builds that were left by %s: %v, %v", left, names, err)
	}
	stores := map[string]olderStore{}
	for _, name := range names {
		store, err := unpackStore(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		build, _, _ := strings.Cut(filepath.Base(name), "-")
		store.numbered = left != "tried" && !slices.Contains(hashing, build)
		stores[strings.TrimSuffix(filepath.Base(name), ".tar.gz")] = store
	}
	return stores
}

func unpackStore(name string) (olderStore, error) {
	store := olderStore{files: map[string][]byte{}}
	packed, err := os.ReadFile(name)
	if err != nil {
		return store, err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return store, err
	}
	archive := tar.NewReader(unzipped)
	for {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return store, nil
		}
		if err != nil {
			return store, err
		}
		b, err := io.ReadAll(archive)
		if err != nil {
			return store, err
		}
		switch {
		case head.Name == "acked.json":
			for line := range bytes.Lines(b) {
				var w ackedWrite
				if err := json.Unmarshal(line, &w); err != nil {
					return store, err
				}
				store.acked = append(store.acked, w)
			}
		case head.Typeflag == tar.TypeReg:
			store.files[head.Name] = b
		}
	}
}

// on writes the files to a disk, as if they had been there for long.
func (s olderStore) on(t *testing.T, mem *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	s.files["db/LOCK"] = nil
	if err := mem.MkdirAll("db", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range s.files {
		file, err := mem.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.Write(bytes.Clone(b)) // with the race detector the engine's file system spoils what it was given
		if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "db"} {
		dir, err := mem.OpenDir(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// latest are the last writes of each document of a container.
func (s olderStore) latest(container string) map[string]ackedWrite {
	latest := map[string]ackedWrite{}
	for _, w := range s.acked {
		if w.Container == container {
			latest[w.document()] = w
		}
	}
	return latest
}

// verify compares an open store with what was acknowledged: documents, versions and positions.
func (s olderStore) verify(t *testing.T, db *docstore.DB, when string) {
	t.Helper()
	if err := db.Check(); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	for _, id := range []string{"docs", "plain", "users", "leases"} {
		c, err := db.Container(id)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		latest := s.latest(id)
		maps.DeleteFunc(latest, func(_ string, w ackedWrite) bool {
			item, err := c.Item(t.Context(), feed.PartitionKey(w.Key), w.ID)
			switch {
			case w.Body == nil:
				if !errors.Is(err, feed.ErrNotFound) {
					t.Errorf("%s: %s %s, which was deleted: %s, %v", when, id, w.document(), item.Body, err)
				}
			case err != nil || item.LSN != w.LSN || !sameMembers(item.Body, w.Body):
				t.Errorf("%s: %s %s is %s at %d, %v: want %s at %d", when, id, w.document(), item.Body, item.LSN, err,
					w.Body, w.LSN)
			}
			return w.Body == nil
		})
		if n := c.Count(); int(n) != len(latest) {
			t.Errorf("%s: %s counts %d documents, want %d", when, id, n, len(latest))
		}
		for _, position := range []int64{0, 10, 25, c.Head()} {
			var want []string
			for _, w := range latest {
				if w.LSN > position {
					want = append(want, fmt.Sprint(w.document(), " ", w.LSN))
				}
			}
			compareFeed(t, fmt.Sprintf("%s: the feed of %s after %d", when, id, position), c, position,
				feed.LatestVersion, want)
		}
		s.verifyOrder(t, c, when)
	}
	s.verifyVersions(t, db, when)
}

// verifyOrder compares the order of creation. Builds before numbers gave documents hashes, whose order says nothing.
func (s olderStore) verifyOrder(t *testing.T, c *docstore.Container, when string) {
	t.Helper()
	born := map[string]int{} // by document, the place among the acknowledged writes
	for i, w := range s.acked {
		_, lives := born[w.document()]
		switch {
		case w.Container != c.ID():
		case w.Body == nil:
			delete(born, w.document())
		case !lives:
			born[w.document()] = i
		}
	}
	snapshot, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	n := 0
	for _, p := range snapshot.Partitions() {
		last, number := -1, int64(0)
		for item, err := range snapshot.Documents(t.Context(), p.Range, 0) {
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			at, ok := born[fmt.Sprint(item.Key, " ", item.ID)]
			if !ok || item.Number <= number || s.numbered && at <= last {
				t.Errorf("%s: in the order of %s, %s %s, number %d, created by write %d (%t), comes after number %d, write %d",
					when, c.ID(), item.Key, item.ID, item.Number, at, ok, number, last)
			}
			last, number = at, item.Number
			n++
		}
	}
	if n != len(born) {
		t.Errorf("%s: the order of %s has %d documents of %d", when, c.ID(), n, len(born))
	}
}

// hashing are the builds that gave documents hashes for numbers.
var hashing = []string{"997eba4", "b6ae313", "bab295b", "9c3e2f3", "bb4bef5"}

// verifyVersions compares the feed of all versions.
func (s olderStore) verifyVersions(t *testing.T, db *docstore.DB, when string) {
	t.Helper()
	c, err := db.Container("docs")
	if err != nil {
		t.Fatal(err)
	}
	for _, position := range []int64{0, 10, 25, c.Head()} {
		var want []string
		for _, w := range s.acked {
			if w.Container != "docs" || w.LSN <= position {
				continue
			}
			text := fmt.Sprint(w.document(), " ", w.LSN)
			if w.Body == nil {
				text += " deleted"
			}
			want = append(want, text)
		}
		compareFeed(t, fmt.Sprintf("%s: all versions after %d", when, position), c, position,
			feed.AllVersionsAndDeletes, want)
	}
}

// compareFeed reads the feed of each partition from a position, and compares what is there and its order.
func compareFeed(t *testing.T, what string, c *docstore.Container, after int64, mode feed.Mode, want []string) {
	t.Helper()
	parts, err := c.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range parts {
		last := after
		changes, _ := drain(t, c, p.Range, feed.At(fmt.Sprint(after)), feed.ReadOptions{Mode: mode, MaxItems: 7})
		for _, ch := range changes {
			text := fmt.Sprint(ch.PartitionKey, " ", ch.ID, " ", ch.LSN)
			if ch.Op == feed.OpDelete {
				text += " deleted"
			}
			if got = append(got, text); ch.LSN < last {
				t.Errorf("%s: LSN %d after %d", what, ch.LSN, last)
			}
			last = ch.LSN
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s has\n%q, want\n%q", what, got, want)
	}
}

// sameMembers reports whether two documents have the same members, in whatever order.
func sameMembers(a, b []byte) bool {
	var x, y map[string]any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// openOlder opens a store whose files are in memory.
func openOlder(t *testing.T, fs vfs.FS) *docstore.DB {
	t.Helper()
	db, err := docstore.Open("db", docstore.Options{}.WithFS(fs))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// eachOlder runs a test with each older store that was left in this way, in virtual time: a store's time goes on from
// its last write there, whenever that was.
func eachOlder(t *testing.T, left string, test func(t *testing.T, s olderStore)) {
	for name, s := range olderStores(t, left) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, s) })
		})
	}
}

// howLeft is how the older stores were left; with the race detector the killed ones stand for all, because each takes
// seconds.
func howLeft() []string {
	if detector.On {
		return []string{"kill"}
	}
	return []string{"close", "kill"}
}

// A store of every form that there has been is upgraded, and holds what its build acknowledged, whether it was closed
// or killed.
func TestAStoreOfEveryOlderBuildHoldsWhatItHeld(t *testing.T) {
	for _, left := range howLeft() {
		eachOlder(t, left, func(t *testing.T, s olderStore) {
			mem := s.on(t, vfs.NewMem())
			db := openOlder(t, mem)
			s.verify(t, db, "upgraded")
			time.Sleep(time.Minute) // versions are moved and tallied meanwhile
			s.verify(t, db, "a minute later")
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			if format, err := docstore.FormatOf(mem, "db"); format != "3" || err != nil {
				t.Errorf("the format is %q, %v, want 3", format, err)
			}
			db = openOlder(t, mem)
			s.verify(t, db, "opened again")
			s.goOn(t, db)
			if err := errors.Join(db.Check(), db.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// goOn uses a store that was upgraded: it keeps unique keys, expires and forgets as its specifications say.
func (s olderStore) goOn(t *testing.T, db *docstore.DB) {
	t.Helper()
	docs, err := db.Container("docs")
	if err != nil {
		t.Fatal(err)
	}
	users, err := db.Container("users")
	if err != nil {
		t.Fatal(err)
	}
	if _,
		err := users.Create(t.Context(),
		[]byte(`{"id":"other","tenant":"t","user":"u1","email":"u1@example.com"}`)); !errors.Is(err,
		docstore.ErrUniqueKey) {
		t.Errorf("a unique key that is taken: %v", err)
	}
	if _,
		err := users.Create(t.Context(),
		[]byte(`{"id":"other","tenant":"t","user":"u3","email":"u3@example.com"}`)); err != nil {
		t.Errorf("a unique key that a delete has freed: %v", err)
	}
	head, live := docs.Head(), docs.Count()
	upsert(t, docs, "new", "new", 1)
	if docs.Head() != head+1 {
		t.Errorf("the head is %d after a write at %d", docs.Head(), head)
	}
	time.Sleep(20 * time.Minute)
	expired := 0
	parts, err := docs.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		changes, _ := drain(t, docs, p.Range, feed.At(fmt.Sprint(head+1)),
			feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
		expired += len(changes)
	}
	if expired != 4 || docs.Count() != live-3 {
		t.Errorf("%d deletes and %d documents: want 4, and %d", expired, docs.Count(), live-3)
	}
	time.Sleep(3 * time.Hour)
	if n := db.Versions(docs); n != int(docs.Count()) {
		t.Errorf("%d versions of %d documents are left after the retention", n, docs.Count())
	}
}

// An older store is killed before each write of its upgrade. What is left opens, and holds what it held.
func TestAnUpgradeOfEveryOlderBuildGoesOnAfterAKill(t *testing.T) {
	for _, left := range howLeft() {
		eachOlder(t, left, func(t *testing.T, s olderStore) {
			for _, unsynced := range []int{0, 100} {
				moments := s.killedWhileUpgraded(t, unsynced)
				t.Logf("%d writes", len(moments))
				for n := 0; n < len(moments); n += stride(len(moments)) {
					when := fmt.Sprintf("killed before write %d of %d, %d %% of what was not synced is there", n,
						len(moments), unsynced)
					db, err := docstore.Open("db", docstore.Options{}.WithFS(moments[n]))
					if err != nil {
						t.Fatalf("%s: %v", when, err)
					}
					s.verify(t, db, when)
					if err := db.Close(); err != nil {
						t.Errorf("%s: %v", when, err)
					}
				}
			}
		})
	}
}

// stride is how far the calls that fail, or at which a store is killed, are from each other, of so many. There are many
// older stores, so each has a fifth of the calls that a history has, and one with the race detector.
func stride(calls int) int {
	switch {
	case *faultCalls == 0:
		return 1
	case detector.On:
		return calls
	}
	return max(1, 5*calls / *faultCalls)
}

// killedWhileUpgraded returns the disk as it is before each write of an upgrade.
func (s olderStore) killedWhileUpgraded(t *testing.T, unsynced int) []*vfs.MemFS {
	t.Helper()
	mem := s.on(t, vfs.NewCrashableMem())
	var mu sync.Mutex
	var moments []*vfs.MemFS
	crash := vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(1, 2))}
	db := openOlder(t, docstore.Failing(mem, func(write bool, _ string) bool {
		mu.Lock()
		defer mu.Unlock()
		if write {
			moments = append(moments, mem.CrashClone(crash))
		}
		return false
	}))
	time.Sleep(time.Minute)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return moments
}

// A call of the disk that fails once while an older store is upgraded loses nothing: the store opens or says why not,
// and opens when it is tried again.
func TestACallOfTheDiskThatFailsOnceInAnUpgradeLosesNothing(t *testing.T) {
	for _, left := range howLeft() {
		eachOlder(t, left, func(t *testing.T, s olderStore) {
			total := s.upgradeOn(t, 0)
			t.Logf("%d calls", total)
			for n := 1; n <= int(total); n += stride(int(total)) {
				if s.upgradeOn(t, int64(n)); t.Failed() {
					t.Fatalf("call %d of %d", n, total)
				}
			}
		})
	}
}

// upgradeOn upgrades the store while the n-th call of the disk fails, and returns how many calls there were.
func (s olderStore) upgradeOn(t *testing.T, n int64) int64 {
	t.Helper()
	mem := s.on(t, vfs.NewMem())
	f := &nthCall{n: n}
	f.armed.Store(true)
	db, err := docstore.Open("db", docstore.Options{}.WithFS(f.on(mem)))
	if err == nil {
		time.Sleep(time.Minute)
		f.armed.Store(false)
		if err := db.Check(); !errors.Is(err, docstore.ErrFailed) {
			s.verify(t, db, "now")
		}
		err = db.Close()
	}
	f.armed.Store(false)
	if err != nil && (!errors.Is(err, syscall.EIO) || errors.Is(err, docstore.ErrCorrupt)) {
		t.Errorf("upgrade: %v, want %v", err, syscall.EIO)
	}
	if err != nil && n == 0 {
		t.Error(err)
	}
	db = openOlder(t, mem)
	s.verify(t, db, "after the fault")
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	return f.calls.Load()
}

// An older build that was tried on a store of this one has refused it, or written to it. The store is used again, or
// left alone until what its error says is done.
func TestAStoreOnWhichAnOlderBuildWasTriedIsUsedAgain(t *testing.T) {
	eachOlder(t, "tried", func(t *testing.T, s olderStore) {
		mem := s.on(t, vfs.NewMem())
		before := everyByte(t, mem)
		db, err := docstore.Open("db", docstore.Options{}.WithFS(mem))
		if err != nil {
			if !errors.Is(err, docstore.ErrCorrupt) || !strings.Contains(err.Error(), "remove the file INVENTORY") {
				t.Fatalf("got %v, want %v and the way out", err, docstore.ErrCorrupt)
			}
			if !maps.Equal(before, everyByte(t, mem)) {
				t.Error("the files have changed")
			}
			if err := mem.Remove("db/INVENTORY"); err != nil {
				t.Fatal(err)
			}
			db = openOlder(t, mem)
		}
		s.verify(t, db, "opened")
		time.Sleep(time.Minute)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		db = openOlder(t, mem)
		s.verify(t, db, "opened again")
		s.goOn(t, db)
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}
