package changefeed_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// If an instance stops while the answer to the create of the lease of both is lost, it leaves no lease with an owner,
// so the next instance need not wait until a lease expires.
func TestAStopAfterALostAnswerLeavesNoOwner(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		created := make(chan struct{}, 10)
		store := &hookedStore{Leases: w.leases}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			stored, err := w.leases.Create(ctx, l)
			if l.Kind != feed.KindLease {
				return stored, err
			}
			created <- struct{}{}
			time.Sleep(time.Second) // the instance stops meanwhile
			return l, errors.New("no answer")
		}
		a := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		<-created
		a.stop(t)
		for _, l := range w.records(feed.KindLease) {
			if !l.Free() {
				t.Errorf("lease %s is owned by %s", l.Token, l.Owner)
			}
		}
	})
}

// If another kind of processor takes a lease that is marked, no lease of both is made: it would be read beside that
// processor.
func TestALeaseThatAForeignerTakesIsNotJoined(t *testing.T) {
	for n, side := range []string{"left", "right"} {
		t.Run(side, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.finer(2)
				of := w.ranges()[n]
				store, taken, made := &hookedStore{Leases: w.leases}, false, false
				store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
					time.Sleep(time.Millisecond) // in the instant of a write, the write of the instance would count
					marked := map[string]feed.Record{}
					for _, l := range w.records(feed.KindLease) {
						if l.State == feed.StateSplitting {
							marked[l.Range.String()] = l
						}
					}
					if lease, ok := marked[of]; ok && len(marked) == 2 && !taken {
						taken = true
						lease.Owner, lease.Epoch = "net", ""
						if _, err := w.leases.Update(ctx, lease); err != nil {
							t.Error(err)
						}
					}
					return w.leases.List(ctx)
				}
				store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
					made = made || l.Kind == feed.KindLease && taken
					return w.leases.Create(ctx, l)
				}
				a := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
				time.Sleep(joinRest + time.Minute)
				a.stop(t)
				if !taken || made {
					t.Errorf("taken %v, the lease of both was made: %v, want the first alone", taken, made)
				}
			})
		})
	}
}
