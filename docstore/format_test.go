package docstore_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// everyByte is the files of a store, with their bytes.
func everyByte(t *testing.T, fs vfs.FS) map[string]string {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range names {
		file, err := fs.Open(fs.PathJoin("db", name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(file)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	return files
}

const kept = 30 // documents of a store in these tests

// keepStore makes a store of the present format, or of the one before, which had no inventory.
func keepStore(t *testing.T, fs vfs.FS, old bool, then func(*docstore.DB) error) {
	t.Helper()
	db, err := docstore.Open("db", docstore.Options{}.WithFS(fs).Resting())
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{})
	for i := range kept {
		upsert(t, c, fmt.Sprint("i", i), "p", i)
	}
	if old {
		err = db.Untally(c)
	}
	if err := errors.Join(err, then(db), db.Close()); err != nil {
		t.Fatal(err)
	}
	if old {
		if err := fs.Remove("db/INVENTORY"); err != nil {
			t.Fatal(err)
		}
		dir, err := fs.OpenDir("db")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func nothing(*docstore.DB) error { return nil }

// opens opens a store that was kept, and finds all documents in it.
func opens(t *testing.T, fs vfs.FS) {
	t.Helper()
	db, err := docstore.Open("db", docstore.Options{}.WithFS(fs))
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	for i := range kept {
		if item, err := c.Item(t.Context(), feed.Key("p"), fmt.Sprint("i", i)); err != nil ||
			valueOf(t, item.Body) != i {
			t.Errorf("i%d is %s, %v", i, item.Body, err)
		}
	}
	upsert(t, c, "new", "p", 1)
	if err := errors.Join(db.Check(), db.Close()); err != nil {
		t.Error(err)
	}
	if format, err := docstore.FormatOf(fs, "db"); format != "3" || err != nil {
		t.Errorf("the format is %q, %v, want 3", format, err)
	}
}

// A program that does not know a store leaves every byte of it.
func TestAStoreOfAnUnknownFormatIsNotChanged(t *testing.T) {
	later := func(db *docstore.DB) error { return db.SetFormat("9") }
	for name, make := range map[string]func(fs vfs.FS) error{
		"a later format": func(fs vfs.FS) error { keepStore(t, fs, false, later); return nil },
		"a later format that only the engine has": func(fs vfs.FS) error {
			keepStore(t, fs, false, later)
			return fs.Remove("db/INVENTORY")
		},
		"another program's": func(fs vfs.FS) error {
			db, err := pebble.Open("db", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest})
			if err != nil {
				return err
			}
			return errors.Join(db.Set([]byte("k"), nil, pebble.Sync), db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			if err := make(fs); err != nil {
				t.Fatal(err)
			}
			before := everyByte(t, fs)
			_, err := docstore.Open("db", docstore.Options{}.WithFS(fs))
			if !errors.Is(err, docstore.ErrFormat) {
				t.Errorf("got %v, want %v", err, docstore.ErrFormat)
			}
			if after := everyByte(t, fs); !maps.Equal(before, after) {
				t.Error("the files have changed")
			}
		})
	}
}

// An older program that is tried on a store refuses it and has rewritten its logs by then. The
// store is left alone, and the error says how it can be used again.
func TestAStoreOnWhichAnOlderProgramWasTriedHasAWayOut(t *testing.T) {
	fs := vfs.NewMem()
	keepStore(t, fs, false, nothing)
	if err := docstore.TryOlder(fs, "db"); err != nil {
		t.Fatal(err)
	}
	before := everyByte(t, fs)
	_, err := docstore.Open("db", docstore.Options{}.WithFS(fs))
	if !errors.Is(err, docstore.ErrCorrupt) || !strings.Contains(err.Error(), "remove the file INVENTORY") {
		t.Fatalf("got %v, want %v and the way out", err, docstore.ErrCorrupt)
	}
	if !maps.Equal(before, everyByte(t, fs)) {
		t.Error("the files have changed")
	}
	if err := fs.Remove("db/INVENTORY"); err != nil {
		t.Fatal(err)
	}
	opens(t, fs)
}

// An upgrade is killed before each of its writes. What is left opens, also after an older program
// was tried on it, and there is no inventory before the format is raised.
func TestAnUpgradeThatIsKilledGoesOn(t *testing.T) {
	for _, unsynced := range []int{0, 100} {
		mem := vfs.NewCrashableMem()
		keepStore(t, mem, true, nothing)
		if format, err := docstore.FormatOf(mem, "db"); format != "1" || err != nil {
			t.Fatalf("the format is %q, %v, want 1", format, err)
		}
		var mu sync.Mutex
		var moments [][2]*vfs.MemFS
		crash := vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(1, 2))}
		fs := docstore.Failing(mem, func(write bool, _ string) bool {
			mu.Lock()
			defer mu.Unlock()
			if write {
				moments = append(moments, [2]*vfs.MemFS{mem.CrashClone(crash), mem.CrashClone(crash)})
			}
			return false
		})
		db, err := docstore.Open("db", docstore.Options{}.WithFS(fs))
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		raised := 0
		for n, moment := range moments {
			left, tried := moment[0], moment[1]
			_, err := left.Stat("db/INVENTORY")
			inventory := err == nil
			format, err := docstore.FormatOf(left, "db")
			if err != nil {
				t.Fatalf("before write %d: %v", n, err)
			}
			if format == "3" {
				raised++
			}
			if inventory && format != "3" {
				t.Errorf("before write %d there is an inventory of format %s", n, format)
			}
			if !inventory {
				if err := docstore.TryOlder(tried, "db"); err != nil {
					t.Fatal(err)
				}
				opens(t, tried)
			}
			opens(t, left)
		}
		if raised == 0 || raised == len(moments) {
			t.Errorf("the format is raised at %d of %d moments: the test is about nothing", raised, len(moments))
		}
	}
}
