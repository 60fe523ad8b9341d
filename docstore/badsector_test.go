package docstore_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace/changefeed/docstore"
)

// A file that the disk does not give is lost, and no more than that.
func TestSalvageGoesOnWhereTheDiskDoesNotAnswer(t *testing.T) {
	mem := vfs.NewMem()
	db, err := docstore.Open("d", docstore.Options{}.Small().WithFS(mem))
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "c", Paths: []string{"/pk"}})
	if err != nil {
		t.Fatal(err)
	}
	const documents = 2000
	for i := range documents {
		body := fmt.Appendf(nil, `{"id":"%d","pk":"p%d","t":"%s"}`, i, i, strings.Repeat(fmt.Sprint(i), 60))
		if _, err := c.Create(t.Context(), body); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List("d")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{".sst", ".log", "INVENTORY", "MANIFEST-"} {
		bad := ""
		for _, name := range names {
			if strings.Contains(name, kind) && !strings.HasPrefix(name, "marker") {
				bad = name
			}
		}
		disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.HasSuffix(op.Path, bad) && (op.Kind == errorfs.OpFileRead || op.Kind == errorfs.OpFileReadAt) {
				return syscall.EIO
			}
			return nil
		}))
		salvaged := 0
		found, err := docstore.SalvageFrom(t.Context(), disk, "d", func(string, docstore.Item) error {
			salvaged++
			return nil
		})
		if err != nil || salvaged < documents && len(found.Lost) == 0 || salvaged < documents*3/4 {
			t.Errorf("%s of %d files cannot be read: %d of %d documents, %v, %v", bad, len(names), salvaged, documents,
				found, err)
		}
	}
}
