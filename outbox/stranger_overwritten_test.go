package outbox_test

import (
	"errors"
	"testing"

	"github.com/millrace/changefeed/outbox"
)

func TestStrangerNoEventsOverwritten(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}}, outbox.Options{})
	d.Data.Name = "B"
	u.Replace(d)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	o, _ := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1")
	v := outbox.NewUnit(contacts, outbox.Options{})
	o.Data.Name += "C"
	v.Replace(o)
	if err := v.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Errorf("it was stored: %v", err)
	}
}
