package place

import (
	"path/filepath"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

func TestContainersOfAStoreShareItsOpening(t *testing.T) {
	o := NewOpener(Settings{})
	dir := filepath.Join(t.TempDir(), "store")
	for _, container := range []string{"orders", "leases", "orders"} {
		a := Address{Dir: dir, Database: docstore.DefaultDatabase, Container: container}
		wanted := Wanted{Spec: docstore.ContainerSpec{Paths: []string{"/id"}}, Given: func(string) bool { return false }}
		if _, err := o.Make(t.Context(), a, wanted); err != nil {
			t.Errorf("%s: %v", container, err)
		}
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
