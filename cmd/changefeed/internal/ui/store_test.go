package ui

import (
	"errors"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// A store can be asked from when it is open until just before it is closed. At other times the server is not healthy,
// and finds no units.
func TestAStoreThatIsNotOpenIsNotHealthy(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	u, _, _ := shownNowhere(t)
	m, err := u.Server()
	if err != nil {
		t.Fatal(err)
	}
	s := StoreOf("")
	shown := s.Options()
	is := func(when string, want error) {
		t.Helper()
		_, findErr := shown.Find(t.Context())
		if err := shown.Checks["store"](); !errors.Is(err, want) || !errors.Is(findErr, want) {
			t.Errorf("%s: %v, and units: %v, want %v", when, err, findErr, want)
		}
	}
	is("before", errNotOpen)
	closing, err := s.Show(db, m)
	if err != nil {
		t.Fatal(err)
	}
	is("while it is open", nil)
	closing()
	is("before it is closed", errNotOpen)
}

// A store that has failed cannot serve, and one on a full disk cannot write.
func TestTheTroubleOfAStoreIsItsFailureOrAFullDisk(t *testing.T) {
	for _, tt := range []struct {
		h    docstore.Health
		want error
	}{
		{docstore.Health{}, nil},
		{docstore.Health{Full: docstore.ErrDiskFull}, docstore.ErrDiskFull},
		{docstore.Health{Err: docstore.ErrClosed}, docstore.ErrClosed},
		{docstore.Health{Err: docstore.ErrClosed, Full: docstore.ErrDiskFull}, docstore.ErrClosed},
	} {
		if got := troubleOf(tt.h); !errors.Is(got, tt.want) {
			t.Errorf("%+v is in trouble because of %v, want %v", tt.h, got, tt.want)
		}
	}
}
