package changefeed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A unit that began from now began before its first lease was made, however long it took to
// make the others, and whatever the clocks of the two containers say within a second. A
// lease that is lost before anything of it was done is made again from there.
func TestALostLeaseOfAUnitFromNowIsMadeAgainFromItsBeginning(t *testing.T) {
	for _, c := range []struct {
		name  string
		slow  time.Duration // the create of the second lease
		away  time.Duration // which fails for so long
		ahead time.Duration // the clock of the lease container
	}{
		{"slow creation", 5 * time.Second, 0, 0},
		{"creation in two attempts", 0, 20 * time.Second, 0},
		{"clocks a second apart", 0, 0, 900 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				store := &hookedStore{Leases: w.leases}
				begun := time.Now()
				store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
					if l.Kind == feed.KindLease && l.Range.Min != "" {
						time.Sleep(c.slow)
						if time.Since(begun) < c.away {
							return l, errRefused
						}
					}
					return w.leases.Create(ctx, l)
				}
				store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
					records, now, err := w.leases.List(ctx)
					return records, now.Add(c.ahead), err
				}
				var well atomic.Bool
				y := &tally{before: func(context.Context, *feed.Batch) error {
					if !well.Load() {
						return errDownstream
					}
					return nil
				}}
				p := w.runWith(w.orders, struct{ feed.LeaseStore }{store}, "a", y, changefeed.Options{})
				time.Sleep((c.slow + c.away) / 2)
				w.put(w.cityIn(w.partitions()[0]), "a", 1)
				time.Sleep(time.Minute)
				w.deleteLeases()
				time.Sleep(3 * time.Minute)
				well.Store(true)
				time.Sleep(3 * time.Minute)
				if items, _ := y.items(); items != 1 || len(w.records(feed.KindLease)) != 2 {
					t.Errorf("%d items of 1, %d leases of 2: lost with its lease", items,
						len(w.records(feed.KindLease)))
				}
				p.stop(t)
			})
		})
	}
}
