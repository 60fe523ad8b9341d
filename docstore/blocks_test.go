//go:build unix

package docstore_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// blocksOf is what the files of a directory take of the disk, which may be more than their
// sizes.
func blocksOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		n += info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	return n
}

// TestASmallStoreIsSmall: the engine would give each log room for 36 MB.
func TestASmallStoreIsSmall(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := container(t, db, docstore.ContainerSpec{})
	for i := range 100 {
		upsert(t, c, fmt.Sprint(i), "p", i)
	}
	if n := blocksOf(t, dir); n > 2<<20 {
		t.Errorf("a store of 100 documents takes %d bytes of the disk", n)
	}
}
