package outbox_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/outbox"
)

func TestStrangerPartialThenExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		c := &contact{Name: "x"}
		c.RecordAlso(nameUpdated{"1"})
		c.RecordAlso(nameUpdated{"2"})
		c.RecordAlso(nameUpdated{"3"})
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: -1})
		u.Create(docOf("c1", c))
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		failed := false
		to := &broker{fail: func(_ int, m outbox.Message) error {
			if m.Seq == 2 && !failed {
				failed = true
				return errDown
			}
			return nil
		}}
		relaying(t, contacts, leases, newRelay(t, to, outbox.RelayOptions{Container: contacts, ExpireAfter: time.Hour}), changefeed.Options{},
			func() bool { return len(to.messages()) == 3 })
		time.Sleep(time.Minute)
		for _, d := range stored(t, contacts, "c1") {
			if d["type"] == "domainEvent" && d["ttl"] == -1.0 {
				t.Errorf("event %v is published and never expires: %v", d["seq"], d)
			}
		}
	})
}
