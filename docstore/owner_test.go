package docstore_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
)

func TestAStoreIsForItsOwnerOnly(t *testing.T) {
	top := filepath.Join(t.TempDir(), "new")
	dir := filepath.Join(top, "data", "store")
	for range 2 { // new, and as an earlier version left it
		db, err := docstore.Open(dir, docstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Container("c"); err != nil {
			upsert(t, container(t, db, docstore.ContainerSpec{}), "a", "p", 1)
		}
		n := 0
		err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) { // the engine removes what it no longer needs
				return nil
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if n++; err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s is %v", path, info.Mode())
			}
			return err
		})
		if err != nil || n < 8 {
			t.Errorf("%d files, %v", n, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range files(t, dir, "*") {
			if err := os.Chmod(name, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestNewParentsSurviveAPowerLoss opens a store in a directory whose parents are new, and
// takes away what was not synced.
func TestNewParentsSurviveAPowerLoss(t *testing.T) {
	mem := vfs.NewCrashableMem()
	dir := mem.PathJoin("some", "where", "new", "db")
	db, err := docstore.Open(dir, docstore.Options{}.WithFS(mem))
	if err != nil {
		t.Fatal(err)
	}
	upsert(t, container(t, db, docstore.ContainerSpec{}), "a", "p", 1)
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = docstore.Open(dir, docstore.Options{}.WithFS(after)); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Container("c"); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
