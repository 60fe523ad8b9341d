package outbox_test

import (
	"errors"
	"testing"

	"github.com/millrace/changefeed/outbox"
)

func TestStrangerRecordedSince(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	s := &script{Committer: contacts, lose: map[int]bool{1: true}}
	u := outbox.NewUnit(s, outbox.Options{})
	d.Data.rename("B")
	u.Replace(d)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	d.Data.describe("since") // recorded since
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := actions(stored(t, contacts, "c1")); len(got) != 3 {
		t.Errorf("Commit returned nil, events stored %q, still recorded %q", got, d.Data.events())
	}
}
