package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A surplus that is over does not count: each surplus must last as long before leases are joined.
func TestASurplusOfLongAgoDoesNotCount(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		y, many := &tally{}, changefeed.Options{MinLeases: 2}
		a := w.run("a", y, changefeed.Options{})
		time.Sleep(3 * time.Minute)
		b := w.run("b", y, many)
		time.Sleep(2 * joinRest)
		b.stop(t)
		stopped := time.Now()
		after := w.until(2*joinRest, "joined", func() bool { return len(w.ranges()) == 1 })
		if after < joinRest {
			t.Errorf("joined %v after the leases were too many again, want at least %v", time.Since(stopped), joinRest)
		}
		a.stop(t)
	})
}

// calledSource is a source that counts how often a worker was called away while it waited for changes of a range.
type calledSource struct {
	*docstore.Container
	of    feed.Range
	calls atomic.Int64
}

func (s *calledSource) Wait(ctx context.Context, r feed.Range, at feed.Position) error {
	err := s.Container.Wait(ctx, r, at)
	if r == s.of && errors.Is(ctx.Err(), context.Canceled) {
		s.calls.Add(1)
	}
	return err
}

// The workers of two leases that cannot settle meet now and then, and not in each round: meanwhile the neighbour of the
// lease whose handler hangs would stand still.
func TestAMeetingInVainIsNotRepeatedAtOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		source := &calledSource{Container: w.orders, of: w.rangeOf(1)}
		slow, mended := w.townIn(w.ranges()[0]), make(chan struct{})
		y := &tally{before: func(context.Context, *feed.Batch) error {
			<-mended
			return nil
		}}
		p := w.runWith(source, w.leases, "a", y, changefeed.Options{HandlerTimeout: time.Hour, Concurrency: 4})
		w.put(slow, "slow", 1)
		time.Sleep(4*joinRest + time.Minute)
		if n := source.calls.Load(); n < 2 || n > 4 {
			t.Errorf("%d meetings within four times %v, want one in each", n, joinRest)
		}
		close(mended)
		w.until(3*joinRest, "joined", w.isJoined)
		p.stop(t)
	})
}

// No lease is given to an instance that has gone, though it still owns the neighbouring lease.
func TestNoLeaseIsGivenToAnInstanceThatHasGone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		gone := w.run("gone", &tally{}, changefeed.Options{MinLeases: 2})
		time.Sleep(time.Minute)
		gone.stop(t)
		hosts := w.records(feed.KindHost)
		at := slices.IndexFunc(hosts, func(l feed.Record) bool { return l.Owner == "gone" })
		if at < 0 || hosts[at].State != feed.StateRetired {
			t.Fatalf("the presences are %+v, want that of the instance that has gone", hosts)
		}
		right := w.records(feed.KindLease)[1]
		right.Owner, right.Epoch, right.Expiration = hosts[at].Owner, hosts[at].Epoch, time.Hour
		right, err := w.leases.Update(t.Context(), right)
		if err != nil {
			t.Fatal(err)
		}
		var stops atomic.Bool
		p := w.runWith(w.orders, w.leases, "stays", &tally{}, changefeed.Options{
			Hooks: changefeed.Hooks{Released: func(_ context.Context, l feed.Lease, why feed.Reason) {
				if !stops.Load() {
					t.Errorf("lease %s was given up: %s", l.Token, why)
				}
			}},
		})
		time.Sleep(3 * joinRest)
		if owners := w.owners(); owners["stays"] != 1 || owners["gone"] != 1 {
			t.Errorf("the owners have %v leases, want one each", owners)
		}
		stops.Store(true)
		p.stop(t)
	})
}
