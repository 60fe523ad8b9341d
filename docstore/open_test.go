package docstore_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestOpenRefuses(t *testing.T) {
	fill := func(t *testing.T, dir string) {
		db, err := docstore.Open(dir, docstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		for i := range 100 {
			upsert(t, c, fmt.Sprint(i), "p", i)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name    string
		prepare func(t *testing.T, dir string) string
		want    error
		text    string
	}{
		{"an empty name", func(*testing.T, string) string {
			return ""
		}, feed.ErrBadRequest, "name of the directory is empty"},
		{"a file", func(t *testing.T, dir string) string {
			file := filepath.Join(dir, "file")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}, docstore.ErrNotStore, "want a directory"},
		{"a directory of other files", func(t *testing.T, dir string) string {
			if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
					t.Errorf("there are %v, %v, want the one file that was there", left, err)
				}
			})
			return dir
		}, docstore.ErrNotStore, "it holds other files"},
		{"a directory in use", func(t *testing.T, dir string) string {
			db, err := docstore.Open(dir, docstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return dir
		}, docstore.ErrInUse, dirName},
		{"a later format", func(t *testing.T, dir string) string {
			db, err := docstore.Open(dir, docstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.SetFormat("9"), db.Close()); err != nil {
				t.Fatal(err)
			}
			return dir
		}, docstore.ErrFormat, `"9"`},
		{"a later format of the engine", func(t *testing.T, dir string) string {
			fill(t, dir)
			marker, err := filepath.Glob(filepath.Join(dir, "marker.format-version.*"))
			if err != nil || len(marker) != 1 {
				t.Fatal(marker, err)
			}
			if err := os.Rename(marker[0], filepath.Join(dir, "marker.format-version.000099.999")); err != nil {
				t.Fatal(err)
			}
			return dir
		}, docstore.ErrFormat, "999"},
		{"a damaged manifest", func(t *testing.T, dir string) string {
			fill(t, dir)
			scribble(t, dir, "MANIFEST-*")
			return dir
		}, docstore.ErrCorrupt, ""},
		{"a missing manifest", func(t *testing.T, dir string) string {
			fill(t, dir)
			remove(t, dir, "MANIFEST-*")
			return dir
		}, docstore.ErrCorrupt, ""},
		{"a missing table", func(t *testing.T, dir string) string {
			fill(t, dir)
			fill2(t, dir)
			remove(t, dir, "*.sst")
			return dir
		}, docstore.ErrCorrupt, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := test.prepare(t, t.TempDir())
			db, err := docstore.Open(dir, docstore.Options{})
			if err == nil {
				_ = db.Close()
			}
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(),
				strings.ReplaceAll(test.text, dirName, dir)) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
		})
	}
}

// dirName stands for the directory in an expected text.
const dirName = "<dir>"

// fill2 opens a store once more, so that its log becomes a table.
func fill2(t *testing.T, dir string) {
	t.Helper()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return names
}

func remove(t *testing.T, dir, pattern string) {
	t.Helper()
	for _, name := range files(t, dir, pattern) {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

func scribble(t *testing.T, dir, pattern string) {
	t.Helper()
	for _, name := range files(t, dir, pattern) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			b[i] ^= 0x5a
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// unmakable is a file system whose directory cannot be made, or takes no file.
type unmakable struct {
	vfs.FS
	isThere bool
}

func (fs unmakable) Stat(name string) (vfs.FileInfo, error) {
	if fs.isThere {
		return fs.FS.Stat("")
	}
	return fs.FS.Stat(name)
}

func (fs unmakable) MkdirAll(dir string, _ os.FileMode) error {
	return &os.PathError{Op: "mkdir", Path: dir, Err: os.ErrNotExist}
}

func (fs unmakable) Lock(name string) (io.Closer, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
}

// As in /proc, where the system says that what cannot be made does not exist.
func TestADirectoryThatCannotBeMadeIsNotCalledDamaged(t *testing.T) {
	for _, isThere := range []bool{false, true} {
		_, err := docstore.Open("proc/foo", docstore.Options{}.WithFS(unmakable{vfs.NewMem(), isThere}))
		if err == nil || errors.Is(err, docstore.ErrCorrupt) || !errors.Is(err, os.ErrNotExist) ||
			!strings.HasSuffix(err.Error(), "want one in which this user can make files") {
			t.Errorf("directory there (%v): %v", isThere, err)
		}
	}
}

func TestOpenCanInsistOnAStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := docstore.Open(dir, docstore.Options{MustExist: true}); !errors.Is(err, docstore.ErrNotStore) ||
		!strings.Contains(err.Error(), "no such directory") {
		t.Errorf("got %v, want %v, because there is no such directory", err, docstore.ErrNotStore)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
	fill2(t, dir)
	db, err := docstore.Open(dir, docstore.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedTable damages a block of documents: the reads that need it say so in one line.
func TestDamagedTable(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{})
	for i := range 500 {
		upsert(t, c, fmt.Sprint(i), strings.Repeat("p", 500), i)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	fill2(t, dir)
	for _, name := range files(t, dir, "*.sst") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(b) / 2 {
			b[i] ^= 0x5a
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if db, err = docstore.Open(dir, docstore.Options{}); err == nil {
		defer db.Close()
		c, err = db.Container("c")
		if err == nil {
			_, err = c.Read(t.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
				feed.ReadOptions{})
		}
	}
	if !errors.Is(err, docstore.ErrCorrupt) || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "restore the directory from a copy") {
		t.Errorf("got %v, want a line with %v and what to do", err, docstore.ErrCorrupt)
	}
}

func TestCheckFindsDamage(t *testing.T) {
	for want, damage := range map[string]func(*docstore.DB, *docstore.Container) error{
		`item "a" has no version`:                       (*docstore.DB).Damage,
		`item "a" lives, but is not the item's`:         (*docstore.DB).Orphan,
		"counts 1 documents, has 0; newest LSN 1, head": (*docstore.DB).Orphan,
	} {
		db, err := docstore.Open("", docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		upsert(t, c, "a", "p", 1)
		if err := db.Check(); err != nil {
			t.Fatal(err)
		}
		if err := damage(db, c); err != nil {
			t.Fatal(err)
		}
		if err := db.Check(); !errors.Is(err, docstore.ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("check: %v, want one that says: %s", err, want)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDiskErrorsStopTheStore injects an error into the n-th write of the disk, for many n:
// what was acknowledged before must be there after another open.
func TestDiskErrorsStopTheStore(t *testing.T) {
	for n := 1; n < 400; n += 1 + n/10 {
		mem := docstore.NewMem()
		var armed atomic.Bool
		var left atomic.Int64
		fs := docstore.Failing(mem, func(write bool, path string) bool {
			return write && armed.Load() && strings.HasSuffix(path, ".log") && left.Add(-1) <= 0
		})
		db, err := docstore.Open("db", docstore.Options{}.WithFS(fs))
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		left.Store(int64(n))
		armed.Store(true)
		acked := map[string]int{}
		for i := range 500 {
			id := fmt.Sprint("i", i%10)
			_, err = c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":"p","v":%d}`, id, i))
			if err != nil {
				break
			}
			acked[id] = i
		}
		if !errors.Is(err, docstore.ErrFailed) {
			t.Fatalf("after %d disk writes: %v, want %v", n, err, docstore.ErrFailed)
		}
		if _, err := c.Upsert(t.Context(), []byte(`{"id":"x","pk":"p"}`)); !errors.Is(err, docstore.ErrFailed) {
			t.Errorf("next write: %v", err)
		}
		_ = db.Close() // tells the same
		reopenAndVerify(t, mem, acked)
		if t.Failed() {
			return
		}
	}
}

// TestPowerLossKeepsAcknowledgedWrites cuts the power at random moments: what was not
// flushed is lost in part, what was acknowledged is there.
func TestPowerLossKeepsAcknowledgedWrites(t *testing.T) {
	rounds := 30
	for round := range rounds {
		mem := vfs.NewCrashableMem()
		db, err := docstore.Open("db", docstore.Options{}.WithFS(mem))
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		var mu sync.Mutex
		acked := map[string]int{}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for v := 1; ; v++ {
					select {
					case <-stop:
						return
					default:
					}
					id := fmt.Sprintf("w%d-%d", w, v%3)
					if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":"p","v":%d}`, id,
						v)); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					acked[id] = v
					mu.Unlock()
				}
			})
		}
		for range 1 + rand.IntN(40) {
			if err := c.Wait(t.Context(), feed.FullRange(), feed.Position{}); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		known := map[string]int{}
		maps.Copy(known, acked)
		mu.Unlock()
		after := mem.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: round * 100 / rounds,
			RNG:                 rand.New(rand.NewPCG(1, uint64(round))),
		})
		close(stop)
		wg.Wait()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		reopenAndVerify(t, after, known)
	}
}

// reopenAndVerify opens a store and looks for versions at least as new.
func reopenAndVerify(t *testing.T, fs vfs.FS, acked map[string]int) {
	t.Helper()
	db, err := docstore.Open("db", docstore.Options{}.WithFS(fs))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	verifyVersions(t, db, acked)
}

// verifyVersions checks a store and looks for versions at least as new.
func verifyVersions(t *testing.T, db *docstore.DB, acked map[string]int) {
	t.Helper()
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	c, err := db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	for id, v := range acked {
		it, err := c.Item(t.Context(), feed.Key("p"), id)
		if err != nil {
			t.Errorf("item %s: %v, want version %d", id, err, v)
			continue
		}
		if got := valueOf(t, it.Body); got < v {
			t.Errorf("item %s has %d, want %d", id, got, v)
		}
	}
}

// The error of a store that is too new is said once, and with what to do.
func TestAStoreOfANewerEngineSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(files(t, dir, "marker.format-version.*")[0],
		filepath.Join(dir, "marker.format-version.000099.999")); err != nil {
		t.Fatal(err)
	}
	_, err = docstore.Open(dir, docstore.Options{})
	const advice = ": nothing was changed; open the store with the version that wrote it"
	if !errors.Is(err, docstore.ErrFormat) || strings.Count(err.Error(), "unknown format: ") != 1 ||
		!strings.HasSuffix(err.Error(), advice) {
		t.Errorf("got %v, want the error once, and %q", err, advice)
	}
}
