package tenure

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
	"github.com/millrace/changefeed/internal/processor/records"
)

// A split of the partition may begin before the worker hears that the lease should be cut. The parts of the split
// stay, because creates of its children may be on their way.
func TestACutLeavesABegunSplitAsItIs(t *testing.T) {
	for _, begun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := instancetest.Idle(t.Context(), &shelf{}, instance.Options{})
			lease := made(feed.FullRange(), 5, 1)
			lease.Owner, lease.Epoch = r.Me.Instance, r.Me.Epoch
			want := keyspace.Join(feed.FullRange().Cut(3))
			if begun {
				lease.State, want = feed.StateSplitting, keyspace.Join(feed.FullRange().Cut(2))
				records.SetProperty(&lease, notes.PartsProperty, want)
			}
			w := newWorker(r, lease, time.Now(), false)
			var keeping sync.WaitGroup
			keeping.Go(w.keeper.keepRenewing)
			why := w.writeParts(3)
			w.held.Lose(feed.ErrLeaseLost)
			keeping.Wait()
			got := w.keeper.stored
			if got.State != feed.StateSplitting || got.Properties[notes.PartsProperty] != want ||
				records.OwnerOf(got) != r.Me || why != feed.ReasonSplit {
				t.Errorf("begun %v: the lease is %v with parts %q and owner %q, %s; want parts %q", begun, got.State,
					got.Properties[notes.PartsProperty], got.Owner, why, want)
			}
		})
	}
}
