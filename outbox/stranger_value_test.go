package outbox_test

import (
	"testing"

	"github.com/millrace/changefeed/outbox"
)

func TestStrangerValueData(t *testing.T) {
	for _, how := range []string{"replace", "keep"} {
		contacts, _ := open(t)
		add(t, contacts, "c1", "A")
		d, err := outbox.Load[contact](t.Context(), contacts, "c1", "contact", "c1")
		if err != nil {
			t.Fatal(err)
		}
		u := outbox.NewUnit(contacts, outbox.Options{})
		if how == "keep" {
			u.Keep(d)
		} else {
			u.Replace(d)
		}
		d.Data.rename("B")
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		read, err := outbox.Load[contact](t.Context(), contacts, "c1", "contact", "c1")
		if err != nil {
			t.Fatal(err)
		}
		if events := actions(stored(t, contacts, "c1")); read.Data.Name != "B" {
			t.Errorf("%s: the object is still %q, and its events are %q", how, read.Data.Name, events)
		}
	}
}
