package docstore_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// bytesOf is the size of all files.
func bytesOf(t *testing.T, fs vfs.FS) (n int64) {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := fs.Stat(fs.PathJoin("db", name))
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// TestRoomComesBackAfterEverythingWasDeleted: without opening the store again.
func TestRoomComesBackAfterEverythingWasDeleted(t *testing.T) {
	const documents = 600
	for name, remove := range map[string]func(t *testing.T, db *docstore.DB, c *docstore.Container) error{
		"the container": func(t *testing.T, db *docstore.DB, _ *docstore.Container) error {
			return db.DeleteContainer(t.Context(), "c")
		},
		"its documents": func(t *testing.T, _ *docstore.DB, c *docstore.Container) error {
			for i := range documents {
				if err := c.Delete(t.Context(), feed.Key("p"), fmt.Sprint(i), ""); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				db, err := docstore.Open("db", docstore.Options{}.WithFS(mem))
				if err != nil {
					t.Fatal(err)
				}
				c := container(t, db, docstore.ContainerSpec{})
				for i := range documents { // 30 MB, of no use to a compressor
					if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"p","pad":%q}`, i,
						noise(50_000))); err != nil {
						t.Fatal(err)
					}
				}
				full := bytesOf(t, mem)
				if err := remove(t, db, c); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				if left := bytesOf(t, mem); full < 20<<20 || left > 3<<20 {
					t.Errorf("%d bytes with everything in it, %d with nothing", full, left)
				}
				if err := db.Check(); err != nil {
					t.Error(err)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A read that fails while room is given back does not lose it: the next try gives it back.
func TestRoomThatCouldNotBeGivenBackIsGivenBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails, failed atomic.Bool
		mem := vfs.NewMem()
		db, err := docstore.Open("db", docstore.Options{}.WithFS(docstore.Failing(mem,
			func(write bool, path string) bool {
				if write || !fails.Load() || !strings.HasSuffix(path, ".sst") {
					return false
				}
				failed.Store(true)
				return true
			})))
		if err != nil {
			t.Fatal(err)
		}
		kept, c := container(t, db, docstore.ContainerSpec{ID: "kept"}), container(t, db, docstore.ContainerSpec{})
		for i := range 600 {
			if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"p","pad":%q}`, i,
				noise(50_000))); err != nil {
				t.Fatal(err)
			}
		}
		full := bytesOf(t, mem)
		if err := db.DeleteContainer(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		fails.Store(true)
		time.Sleep(2 * time.Minute)
		fails.Store(false)
		if !failed.Load() {
			t.Fatal("nothing has failed")
		}
		upsert(t, kept, "1", "p", 1)
		time.Sleep(2 * time.Minute)
		if left := bytesOf(t, mem); left > 3<<20 {
			t.Errorf("%d bytes with everything in it, %d with nothing", full, left)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// noise is text that does not compress well.
func noise(n int) string {
	var b strings.Builder
	x := uint64(n)
	for b.Len() < n {
		x = x*6364136223846793005 + 1442695040888963407
		b.WriteByte('0' + byte(x>>60))
		b.WriteByte('a' + byte(x>>59&15))
	}
	return b.String()[:n]
}
