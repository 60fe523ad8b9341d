package load

import (
	"errors"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
)

// A container of an account that was dropped and made anew is empty, so the mark of an import into the old one does not
// count. That into the same one counts.
func TestAMarkIsThatOfTheContainerOfAnAccount(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	s := newImportSite(t, generated(9))
	opened := func() (*mark, bool) {
		t.Helper()
		at, err := place.Parse("ADDRESS", server.URL+"/shop/orders")
		if err != nil {
			t.Fatal(err)
		}
		o := place.NewOpener(place.Settings{Key: server.Key})
		c, err := o.Make(t.Context(), at, place.Wanted{
			Spec:  docstore.ContainerSpec{Paths: []string{"/outcode"}, Ranges: 1},
			Given: func(string) bool { return false },
		})
		if err != nil {
			t.Fatal(err)
		}
		in := s.open(t)
		m, found, err := openMark(in, c)
		if err := errors.Join(err, o.Close()); err != nil {
			t.Fatal(err)
		}
		return m, found
	}
	m, _ := opened()
	m.Place.Offset = 1
	if err := m.save(); err != nil {
		t.Fatal(err)
	}
	if _, found := opened(); !found {
		t.Error("the mark of the same container is not found")
	}
	if err := server.DB.DeleteContainer(t.Context(), "shop/orders"); err != nil {
		t.Fatal(err)
	}
	if _, found := opened(); found {
		t.Error("the mark of a container that was dropped is found")
	}
}
