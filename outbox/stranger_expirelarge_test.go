package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/outbox"
)

// An event that has room for its own data and for no more: the relay's patch makes it too large.
func TestStrangerExpireTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		// 2 MB less a little
		for pad := 2<<20 - 600; ; pad += 10 {
			c := &contact{}
			c.Record(nameUpdated{strings.Repeat("x", pad)})
			u := outbox.NewUnit(contacts, outbox.Options{EventTTL: -1})
			u.Create(docOf(fmt.Sprint("c", pad), c))
			if err := u.Commit(t.Context()); errors.Is(err, outbox.ErrTooLarge) {
				break
			}
			if pad < 2<<20-350 {
				contacts.Delete(t.Context(), changefeed.Key(fmt.Sprint("c", pad)), "x", "")
			}
		}
		var mu sync.Mutex
		times := map[string]int{}
		to := publisherFunc(func(_ context.Context, msgs []outbox.Message) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range msgs {
				times[m.Key]++
			}
			return len(msgs), nil
		})
		r := newRelay(t, to, outbox.RelayOptions{Container: contacts, ExpireAfter: time.Hour})
		n := 0
		relaying(t, contacts, leases, r, changefeed.Options{MaxAttempts: 5}, func() bool { n++; return n > 600 })
		for key, n := range times {
			if n > 1 {
				t.Errorf("event of %s published %d times in 10 minutes, and still not done: %.200v", key, n, r.Status())
			}
		}
	})
}
