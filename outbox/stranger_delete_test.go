package outbox_test

import (
	"errors"
	"testing"

	"github.com/millrace/changefeed/outbox"
)

func TestStrangerDeleteLost(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}}, outbox.Options{})
	u.Delete(d)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Errorf("it was stored: %v", err)
	}
}
