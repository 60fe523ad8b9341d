package letters

import (
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/feed"
)

// The leases of a unit are gone, and its letters are there. They are listed without an error, because the name is
// right.
func TestLettersAreListedThoughTheirUnitHasNoLeases(t *testing.T) {
	q := Query{Name: "mailer", Leases: "docstore:" + t.TempDir() + "#leases"}
	opener := place.NewOpener(place.Settings{})
	defer opener.Close()
	there := func(yield func(feed.DeadLetter, error) bool) { yield(feed.DeadLetter{ID: "1"}, nil) }
	all, err := gather(q.orUnknown(t.Context(), opener, Place{}, there))
	if len(all) != 1 || err != nil {
		t.Errorf("%d letters, %v; want 1", len(all), err)
	}
	nothing := func(func(feed.DeadLetter, error) bool) {}
	if _, err := gather(q.orUnknown(t.Context(), opener, Place{}, nothing)); err == nil {
		t.Error("the leases cannot be read and there is no letter, and nobody hears of it")
	}
}
