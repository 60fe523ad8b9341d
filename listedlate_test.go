package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// silentCounter is a source that never says how many changes are pending.
type silentCounter struct{ *docstore.Container }

func (s silentCounter) Pending(ctx context.Context, _ feed.Range, _ feed.Position, _ feed.ReadOptions) (feed.Backlog,
	error,
) {
	<-ctx.Done()
	return feed.Backlog{}, context.Cause(ctx)
}

// A listing whose time is over while it measures has the leases without their lags; if the caller has cancelled it, it
// is an error.
func TestAListingThatIsLateHasTheLeasesWithoutLags(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		unit := admin.Open(silentCounter{w.orders}, w.leases, admin.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l, err := unit.List(ctx)
		if err != nil || len(l.Leases) != 2 {
			t.Fatalf("the listing that is late is %+v, %v, want two leases", l, err)
		}
		for _, lease := range l.Leases {
			if lease.Lag != nil || !errors.Is(lease.Unknown, context.DeadlineExceeded) || lease.Record.ETag == "" {
				t.Errorf("lease %s has the lag %+v, unknown because of %v", lease.Token, lease.Lag, lease.Unknown)
			}
		}
		ctx, end := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, end)
		if l, err := unit.List(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled listing is %+v, %v, want an error", l, err)
		}
	})
}

// The distance to the end of a feed begins at the first pending change, however many pages were read.
func TestALargeBacklogIsAsOldAsItsFirstPage(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2) // leases that share a partition
		town, written := w.townIn(w.ranges()[0]), time.Now()
		const changes = 620 // a lease that shares its partition has at most 500 read
		for i := range changes {
			w.put(town, fmt.Sprint(i), 1)
			time.Sleep(time.Second)
		}
		lag := w.measure(new(changefeed.Estimator), ordered{w.orders, w.orders}).Leases[0]
		if lag.Lease.Range != w.rangeOf(0) {
			t.Fatalf("the first lease is %s", lag.Lease.Range)
		}
		if lag.Pending != changes || lag.Exact || !lag.Shared || !lag.Oldest.Equal(written) ||
			lag.Watermark.IsZero() || lag.Watermark.After(written) {
			t.Errorf("%d pending, exact %v, since %v, watermark %v; want %d since %v", lag.Pending, lag.Exact,
				lag.Oldest, lag.Watermark, changes, written)
		}
	})
}

// A position after the end of the feed is refused, though the partition of the lease has been split and no instance has
// noticed.
func TestAResetAfterTheEndIsRefusedInASplit(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(20)
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		before := w.records(feed.KindLease)[0]
		w.split(0)
		for token, ahead := range map[string]bool{w.orders.TokenAfter(1000): true, w.orders.TokenAfter(3): false} {
			_, err := w.admin(admin.Options{DryRun: !ahead}).ResetTo(t.Context(), admin.All(), feed.At(token))
			if errors.Is(err, feed.ErrAhead) != ahead || (err != nil) != ahead {
				t.Errorf("a reset to %s: %v, want an error: %v", token, err, ahead)
			}
		}
		if now := w.records(feed.KindLease)[0]; now.ETag != before.ETag || len(w.records(feed.KindHistory)) != 0 {
			t.Errorf("the lease is at %s, and was at %s", now.Position, before.Position)
		}
	})
}
