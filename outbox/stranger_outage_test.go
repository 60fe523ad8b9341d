package outbox_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/outbox"
)

func TestStrangerOutageAlarms(t *testing.T) {
	for _, conc := range []int{1, 64} {
		for _, attempts := range []int{0, 5} {
			t.Run(fmt.Sprintf("concurrency %d, attempts %d", conc, attempts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					contacts, leases := open(t)
					for i := range 12 {
						ttl := time.Hour * 24
						if i%2 == 1 {
							ttl = 20 * time.Minute
						}
						u := outbox.NewUnit(contacts, outbox.Options{EventTTL: ttl})
						u.Create(docOf(fmt.Sprint("c", i), newContact("A")))
						if err := u.Commit(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					to := &broker{fail: func(_ int, m outbox.Message) error { return errDown }}
					var mu sync.Mutex
					alarmed := map[string]int{}
					r := newRelay(t, to, outbox.RelayOptions{Hooks: outbox.RelayHooks{Expiring: func(m outbox.Message, left time.Duration) {
						mu.Lock()
						alarmed[m.Key]++
						mu.Unlock()
					}}})
					o := changefeed.Options{Concurrency: conc, MaxAttempts: attempts}
					if attempts > 0 {
						o.DeadLetters = letterBox(t)
					}
					waiting, expires := 0, time.Time{}
					n := 0
					relaying(t, contacts, leases, r, o, func() bool {
						waiting = max(waiting, r.Status().Waiting)
						if e := r.Status().Expires; !e.IsZero() {
							expires = e
						}
						time.Sleep(time.Second)
						n++
						return n > 595
					})
					t.Logf("conc %d attempts %d: alarmed %v waiting %d expires %v now %v", conc, attempts, alarmed, waiting, expires, time.Now())
					if len(alarmed) < 6 { // six keys have events that expire within 20 minutes
						t.Errorf("conc %d attempts %d: %d keys of 6 alarmed, waiting %d", conc, attempts, len(alarmed), waiting)
					}
				})
			})
		}
	}
}
