package changefeed_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A key that has caught up leaves the note of its lease within seconds, though nothing else is written: an operator
// who looks at an idle lease after a replay must not believe that the key is still read again.
func TestAnIdleLeaseForgetsAKeyThatHasCaughtUp(t *testing.T) {
	for name, o := range map[string]changefeed.Options{
		"whole batches": {}, "many at once": {Concurrency: 4}, "few writes": {CheckpointItems: 1000},
		"by hand": {Manual: true}, "rare renewals": {Renew: 10 * time.Minute, Expiration: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var writes atomic.Int64
				store := &hookedStore{Leases: w.leases}
				store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
					if l.Kind == feed.KindLease {
						writes.Add(1)
					}
					return w.leases.Update(ctx, l)
				}
				o.Start = feed.FromBeginning()
				y := &tally{before: func(ctx context.Context, b *feed.Batch) error {
					if o.Manual {
						return b.Checkpoint(ctx)
					}
					return nil
				}}
				p := w.runWith(w.orders, store, "a", y, o)
				w.put("oslo", "one", 1)
				w.fill(5)
				time.Sleep(time.Minute)
				w.resetKey("oslo", feed.FromBeginning())
				w.until(time.Minute, "the key is handled again", func() bool { return len(y.lsns("oslo")) == 2 })
				before := writes.Load()
				time.Sleep(3 * time.Second)
				if note := w.records(feed.KindLease)[0].Properties[notes.AsideProperty]; note != "" {
					t.Errorf("after 3 s the lease still says %s", note)
				}
				if n := writes.Load() - before; n > 3 {
					t.Errorf("%d writes, want 3 at most", n)
				}
				p.stop(t)
			})
		})
	}
}

// A key that has caught up leaves the note of its lease also while another key is still read again, however long the
// handler takes for that one.
func TestAKeyThatHasCaughtUpDoesNotWaitForAnother(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var blocked atomic.Bool
		release := make(chan struct{})
		y := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if blocked.Load() && b.Changes[0].PartitionKey == feed.Key("rome") {
				<-release
			}
			return nil
		}}
		p := w.run("a", y, changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 4, Renew: 10 * time.Minute, Expiration: time.Hour,
			HandlerTimeout: time.Hour, CheckpointItems: 7,
		})
		w.put("oslo", "one", 1)
		w.put("rome", "two", 2)
		w.fill(5)
		time.Sleep(time.Minute)
		note := func() string { return w.records(feed.KindLease)[0].Properties[notes.AsideProperty] }
		blocked.Store(true)
		w.resetKey("rome", feed.FromBeginning())
		w.resetKey("oslo", feed.FromBeginning())
		w.until(time.Minute, "oslo is handled again", func() bool { return len(y.lsns("oslo")) == 2 })
		time.Sleep(3 * time.Second)
		if said := note(); strings.Contains(said, "oslo") || !strings.Contains(said, "rome") {
			t.Errorf("after 3 s the lease says %s, want rome and not oslo", said)
		}
		close(release)
		w.until(time.Minute, "rome is handled again", func() bool { return len(y.lsns("rome")) == 2 })
		time.Sleep(3 * time.Second)
		if said := note(); said != "" {
			t.Errorf("at the end the lease still says %s", said)
		}
		p.stop(t)
	})
}
