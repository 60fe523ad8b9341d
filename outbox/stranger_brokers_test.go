package outbox_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/outbox"
)

// Two deployment units publish the events of a container to two brokers, and one lets them expire after that.
func TestStrangerTwoBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		run := func(name string, o outbox.RelayOptions, to outbox.Publisher) (stop func()) {
			store, err := docstore.NewLeases(t.Context(), leases, name, contacts)
			if err != nil {
				t.Fatal(err)
			}
			r := newRelay(t, to, o)
			p, err := changefeed.New(contacts, store, r, r.Options(changefeed.Options{Start: changefeed.FromBeginning(), Hooks: changefeed.Hooks{Error: func(*changefeed.Error) {}}}))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := p.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			return func() { cancel(); wg.Wait() }
		}
		begun := time.Now()
		nats := &broker{}
		hook := &broker{fail: func(int, outbox.Message) error { // it is down for a minute
			if time.Since(begun) < time.Minute {
				return errDown
			}
			return nil
		}}
		stop1 := run("nats", outbox.RelayOptions{Container: contacts, ExpireAfter: time.Hour}, nats)
		stop2 := run("hook", outbox.RelayOptions{}, hook)
		time.Sleep(10 * time.Second)
		stop2() // it is restarted, as for a new version
		rename(t, contacts, "c1", 3)
		time.Sleep(10 * time.Second)
		stop2 = run("hook", outbox.RelayOptions{}, hook)
		time.Sleep(10 * time.Minute)
		stop1()
		stop2()
		if a, b := len(nats.messages()), len(hook.messages()); a != 7 || b != 7 {
			t.Errorf("one broker has %d of 7 events, the other has %d", a, b)
		}
	})
}
