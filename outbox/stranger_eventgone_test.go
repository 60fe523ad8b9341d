package outbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/changefeed/outbox"
)

func TestStrangerEventGone(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}}, outbox.Options{EventTTL: time.Second})
	d.Data.rename("B")
	u.Replace(d)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond)
	if err := u.Commit(t.Context()); err != nil {
		t.Errorf("it was stored: %v", err)
	}
}
