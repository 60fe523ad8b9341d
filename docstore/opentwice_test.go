package docstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// The lock of the library is one of the process and knows a directory by its path. So a second opening by another path
// of the same directory must be refused by other means: two writers of one directory lose what they have acknowledged.
func TestASecondPathOfADirectoryIsInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skipf("the system makes no link: %v", err)
	}
	t.Chdir(filepath.Dir(dir))
	for _, other := range []string{link, "store", "./store", filepath.Join(link, "..", "link")} {
		second, err := docstore.Open(other, docstore.Options{})
		if err == nil {
			_ = second.Close()
		}
		if !errors.Is(err, docstore.ErrInUse) {
			t.Errorf("%s: got %v, want %v", other, err, docstore.ErrInUse)
		}
	}
	c := container(t, db, docstore.ContainerSpec{})
	upsert(t, c, "1", "p", 1)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := docstore.Open(link, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if n := again.Count(); n != 1 {
		t.Errorf("there are %d documents, want 1", n)
	}
}
