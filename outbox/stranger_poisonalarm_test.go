package outbox_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/outbox"
)

func TestStrangerPoisonAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: 10 * time.Minute})
		u.Create(docOf("c1", newContact("A")))
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		to := &broker{fail: func(_ int, m outbox.Message) error { return changefeed.Poison(outbox.ErrTooLarge) }}
		var mu sync.Mutex
		var alarms []time.Duration
		r := newRelay(t, to, outbox.RelayOptions{Hooks: outbox.RelayHooks{Expiring: func(m outbox.Message, left time.Duration) {
			mu.Lock()
			alarms = append(alarms, left)
			mu.Unlock()
		}}})
		waiting := 0
		n := 0
		relaying(t, contacts, leases, r, changefeed.Options{}, func() bool {
			waiting = max(waiting, r.Status().Waiting)
			n++
			return n > 590
		})
		t.Logf("alarms %v waiting %d", alarms, waiting)
		if waiting == 0 {
			t.Error("the status never said that a key waits")
		}
		for i := 1; i < len(alarms); i++ {
			if alarms[i-1]-alarms[i] < time.Minute {
				t.Errorf("alarms after %v", alarms[i-1]-alarms[i])
			}
		}
	})
}
