package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/outbox"
)

// After a redrive that failed, the event is among the dead letters as before: it does not wait.
func TestStrangerWaitingAfterRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		for i := range 4 {
			rename(t, contacts, fmt.Sprint("c", i), 1)
		}
		to := &broker{fail: func(_ int, m outbox.Message) error {
			if m.Key == "c1" && m.Seq == 2 {
				return errDown
			}
			return nil
		}}
		box := letterBox(t)
		r := newRelay(t, to, outbox.RelayOptions{})
		store, err := docstore.NewLeases(t.Context(), leases, "relay", contacts)
		if err != nil {
			t.Fatal(err)
		}
		p, err := changefeed.New(contacts, store, r, r.Options(changefeed.Options{Start: changefeed.FromBeginning(), MaxAttempts: 2, DeadLetters: box, HoldKeys: true, Hooks: changefeed.Hooks{Error: func(*changefeed.Error) {}}}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { p.Run(ctx) })
		time.Sleep(5 * time.Minute)
		t.Logf("parked: %+v", r.Status())
		if n := r.Status().Waiting; n != 0 {
			t.Errorf("before: %d wait", n)
		}
		for l, err := range box.Letters(t.Context(), "") {
			t.Log(l.Change.ID, l.Disposition, l.Cause, err)
			if l.Disposition != changefeed.DispositionHeld {
				if err := deadletters.Redrive(t.Context(), contacts, store, l.Change.PartitionKey, l.ID); err != nil {
					t.Error(err)
				}
			}
		}
		time.Sleep(5 * time.Minute)
		t.Logf("redriven: %+v", r.Status())
		if n := r.Status().Waiting; n != 0 {
			t.Errorf("after: %d keys wait, and all that is not published is parked", n)
		}
		stop()
		wg.Wait()
	})
}
