package changefeed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// listed is a lease store that cannot be followed.
type listed struct{ feed.LeaseStore }

// Somebody deletes a lease that has an owner. Who makes it anew waits until that owner,
// which does not know yet, must have stopped.
func TestADeletedLeaseIsNotBegunBeforeItsOwnerHasStopped(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var atWork, both atomic.Int64
		h := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			if atWork.Add(1) > 1 {
				both.Add(1)
			}
			defer atWork.Add(-1)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(50 * time.Second):
				return nil
			}
		})
		a := w.runWith(w.orders, listed{w.leases}, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), Expiration: 80 * time.Second, Renew: 60 * time.Second, Acquire: time.Minute,
		})
		time.Sleep(10 * time.Second)
		b := w.runWith(w.orders, listed{w.leases}, "b", h, changefeed.Options{
			Start: feed.FromBeginning(), Expiration: 20 * time.Second, Renew: 5 * time.Second, Acquire: 3 * time.Second,
		})
		w.put("oslo", "1", 1)
		time.Sleep(10 * time.Second)
		if err := w.leases.Delete(t.Context(), w.records(feed.KindLease)[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if both.Load() != 0 || w.pending() != 0 {
			t.Errorf("%d batches began while another was handled, %d are pending", both.Load(), w.pending())
		}
		a.stop(t)
		b.stop(t)
	})
}

// Who is stopped while another instance makes the leases is not ready.
func TestAnInstanceStoppedBeforeTheLeasesExistIsNotReady(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		if _, err := w.leases.Create(t.Context(), feed.Record{Kind: feed.KindLock, TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		store := &hookedStore{Leases: w.leases}
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			defer stop()
			return w.leases.List(ctx)
		}
		p, err := changefeed.New(w.orders, store, &tally{}, changefeed.Options{
			Instance: "a", Hooks: changefeed.Hooks{Ready: func(context.Context) { t.Error("ready without leases") }},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}
