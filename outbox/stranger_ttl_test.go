package outbox_test

import (
	"math"
	"testing"
	"time"

	"github.com/millrace/changefeed/outbox"
)

func TestStrangerTTLs(t *testing.T) {
	for _, ttl := range []time.Duration{math.MaxInt64, 200 * 365 * 24 * time.Hour, time.Nanosecond, 1500 * time.Millisecond} {
		contacts, _ := open(t)
		d := docOf("c1", newContact("A"))
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: ttl})
		u.Create(d)
		err := u.Commit(t.Context())
		docs := stored(t, contacts, "c1")
		if len(docs) > 1 {
			t.Logf("%v: %v %v", ttl, err, docs[1]["ttl"])
			if ttl > time.Hour && docs[1]["ttl"].(float64) < 3600 {
				t.Errorf("%v: ttl %v", ttl, docs[1]["ttl"])
			}
		} else {
			t.Logf("%v: %v", ttl, err)
		}
	}
}
