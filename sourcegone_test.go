package changefeed_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

func TestEveryInstanceEndsWhenTheMonitoredContainerIsDeleted(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		b := w.run("b", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		w.balanced(2)
		if err := w.db.DeleteContainer(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for _, p := range []*process{a, b} {
			err := p.ends(t, 3*time.Minute)
			if !errors.Is(err, feed.ErrSourceGone) || !errors.Is(err, feed.ErrNotFound) ||
				p.errs.find(feed.ErrSourceGone) == nil {
				t.Errorf("Run returned %v, and reported %v", err, p.errs.find(feed.ErrSourceGone))
			}
		}
		if took := time.Since(begun); took < time.Minute {
			t.Errorf("ended after %v, want that it is sure", took)
		}
		for _, l := range w.records(feed.KindLease) {
			if !l.Free() {
				t.Errorf("lease %s still has an owner", l.Token)
			}
		}
		for _, h := range w.records(feed.KindHost) {
			if h.State != feed.StateRetired {
				t.Errorf("instance %s still seems to be at work", h.Owner)
			}
		}
	})
}

// What looks like a container that is gone, and is none, ends nothing, however long it lasts.
func TestAnOutageOfTheSourceEndsNoUnit(t *testing.T) {
	missing := func(context.Context) error { return feed.ErrNotFound }
	for name, c := range map[string]struct {
		read       func(ctx context.Context, n int64) error
		partitions func(context.Context) error // nil asks the container
		lasts      time.Duration
	}{
		"shorter than an expiration": {func(ctx context.Context, _ int64) error {
			return missing(ctx)
		}, missing, 50 * time.Second},
		"a partition that has moved": {func(ctx context.Context, _ int64) error {
			return missing(ctx)
		}, nil, time.Hour},
		"no answer in between": {func(ctx context.Context, n int64) error {
			if n%3 == 0 {
				return errors.New("no answer")
			}
			return missing(ctx)
		}, missing, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var away atomic.Bool
				var reads atomic.Int64
				source := &strayed{
					hookedSource: &hookedSource{Container: w.orders},
					partitions: func(ctx context.Context) error {
						if away.Load() && c.partitions != nil {
							return c.partitions(ctx)
						}
						return nil
					},
				}
				source.read = func(ctx context.Context, r feed.Range, from feed.Position,
					o feed.ReadOptions,
				) (feed.Page, error) {
					if away.Load() {
						return feed.Page{}, c.read(ctx, reads.Add(1))
					}
					return w.orders.Read(ctx, r, from, o)
				}
				y := &tally{}
				p := w.runWith(source, w.leases, "a", y, changefeed.Options{Start: feed.FromBeginning()})
				w.fill(4)
				time.Sleep(10 * time.Second)
				away.Store(true)
				w.put("oslo", "1", 1)
				time.Sleep(c.lasts)
				away.Store(false)
				time.Sleep(2 * time.Minute)
				if items, _ := y.items(); items != 5 || reads.Load() == 0 || p.errs.find(feed.ErrSourceGone) != nil {
					t.Errorf("%d items handled, %d reads failed, reported %v", items, reads.Load(),
						p.errs.find(feed.ErrSourceGone))
				}
				p.stop(t)
			})
		})
	}
}

// A read that finds the container shows that it is there: only another expiration without it shows that it has gone.
func TestAContainerThatIsAwayNowAndThenIsNotGone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var away atomic.Bool
		source := &strayed{hookedSource: &hookedSource{Container: w.orders}, partitions: func(context.Context) error {
			if away.Load() {
				return feed.ErrNotFound
			}
			return nil
		}}
		source.read = func(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page,
			error,
		) {
			if away.Load() {
				return feed.Page{}, feed.ErrNotFound
			}
			return w.orders.Read(ctx, r, from, o)
		}
		y := &tally{}
		p := w.runWith(source, w.leases, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		for n := range 3 {
			time.Sleep(5 * time.Minute)
			away.Store(true)
			w.put("oslo", strconv.Itoa(n), 1)
			time.Sleep(40 * time.Second)
			away.Store(false)
		}
		time.Sleep(time.Minute)
		if items, _ := y.items(); items != 3 || p.errs.find(feed.ErrNotFound) == nil {
			t.Errorf("%d items handled, want 3; reported %v", items, p.errs.find(feed.ErrNotFound))
		}
		p.stop(t)
	})
}

// strayed is a source whose partitions may not be found.
type strayed struct {
	*hookedSource
	partitions func(context.Context) error
}

func (s *strayed) Partitions(ctx context.Context) ([]feed.Partition, error) {
	if err := s.partitions(ctx); err != nil {
		return nil, err
	}
	return s.hookedSource.Partitions(ctx)
}
