package outbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/changefeed/outbox"
)

func TestStrangerTwoOnces(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}}, outbox.Options{})
	u.Once("c1", "m1", time.Hour)
	d.Data.rename("B")
	u.Replace(d)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	u.Once("c1", "m2", time.Hour)
	d.Data.rename("C")
	u.Replace(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, d := range stored(t, contacts, "c1") {
		if d["type"] == "inbox" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d inbox", n)
	}
}
