package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

var errRefused = errors.New("lease store: refused")

// lies says whether a lease store lies, and counts what it is asked.
type lies struct {
	on    atomic.Bool
	asked atomic.Int64
}

// A store may answer each request with a lie, at once and for ever. Whatever is tried
// again is tried again with pauses.
func TestALyingLeaseStoreIsAskedAtABoundedRate(t *testing.T) {
	const leases = 20
	for _, c := range []struct {
		name string
		most int64 // requests in a minute
		lie  func(w *world, s *hookedStore, lie *lies)
	}{
		{"Update applies and answers a conflict", 300, func(w *world, s *hookedStore, lie *lies) {
			s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
				tick(&lie.asked)
				got, err := w.leases.Update(ctx, l)
				if lie.on.Load() && err == nil {
					return l, feed.ErrConflict
				}
				return got, err
			}
		}},
		{"Update answers a conflict and applies nothing", 600, func(w *world, s *hookedStore, lie *lies) {
			s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
				tick(&lie.asked)
				if lie.on.Load() {
					return l, feed.ErrConflict
				}
				return w.leases.Update(ctx, l)
			}
		}},
		{"Update applies the write before", 1000, func(w *world, s *hookedStore, lie *lies) {
			var before atomic.Pointer[feed.Record]
			s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
				tick(&lie.asked)
				if !lie.on.Load() || l.Kind != feed.KindLease {
					return w.leases.Update(ctx, l)
				}
				if old := before.Swap(&l); old != nil && old.Token == l.Token {
					old.ETag = l.ETag
					_, _ = w.leases.Update(ctx, *old)
				}
				return l, feed.ErrConflict
			}
		}},
		{"Update fails", 1500, func(w *world, s *hookedStore, lie *lies) {
			s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
				if tick(&lie.asked); lie.on.Load() {
					return l, errRefused
				}
				return w.leases.Update(ctx, l)
			}
		}},
		{"presence is there and is not", 400, func(w *world, s *hookedStore, lie *lies) {
			s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
				tick(&lie.asked)
				if lie.on.Load() && l.Kind == feed.KindHost {
					return l, feed.ErrNotFound
				}
				return w.leases.Update(ctx, l)
			}
			s.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
				tick(&lie.asked)
				if lie.on.Load() && l.Kind == feed.KindHost {
					return l, feed.ErrConflict
				}
				return w.leases.Create(ctx, l)
			}
		}},
		{"List fails", 100, func(w *world, s *hookedStore, lie *lies) {
			s.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
				if tick(&lie.asked); lie.on.Load() {
					return nil, time.Time{}, errRefused
				}
				return w.leases.List(ctx)
			}
		}},
		{"List has no lease", 400, func(w *world, s *hookedStore, lie *lies) {
			s.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
				if tick(&lie.asked); lie.on.Load() {
					return w.records(feed.KindInfo), time.Now(), nil
				}
				return w.leases.List(ctx)
			}
		}},
		{"Follow fails", 100, func(w *world, s *hookedStore, lie *lies) {
			s.follow = func(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
				if tick(&lie.asked); lie.on.Load() {
					return nil, "", time.Time{}, errRefused
				}
				return w.leases.Follow(ctx, cursor)
			}
		}},
		{"Follow answers the same news at once", 600, func(w *world, s *hookedStore, lie *lies) {
			s.follow = func(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
				tick(&lie.asked)
				if lie.on.Load() {
					return w.records(feed.KindLease), "1", time.Now(), nil
				}
				return w.leases.Follow(ctx, cursor)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				store, lie := &hookedStore{Leases: w.leases}, &lies{}
				c.lie(w, store, lie)
				p := w.runWith(w.orders, store, "a", &tally{},
					changefeed.Options{MinLeases: leases, Start: feed.FromBeginning(), Drain: time.Second})
				time.Sleep(time.Minute)
				lie.on.Store(true)
				lie.asked.Store(0)
				time.Sleep(5 * time.Minute)
				if n := lie.asked.Load(); n == 0 || n > 5*c.most {
					t.Errorf("%d requests in 5 minutes for %d idle leases, want 1 to %d a minute; reported %v", n,
						leases, c.most, first(p.errs.all()))
				}
				lie.on.Store(false)
				p.stop(t)
			})
		})
	}
}

// A lease that is being created is created with pauses, too. A store that throttles says
// itself how long they must be, and else gets the shortest.
func TestALyingLeaseStoreIsAskedForNewLeasesAtABoundedRate(t *testing.T) {
	const leases = 20
	for _, c := range []struct {
		answer error
		most   int64 // creates of a lease in a minute
	}{
		{errRefused, 20},
		{feed.ErrConflict, 20},
		{&feed.ThrottledError{}, 600},
		{&feed.ThrottledError{After: 10 * time.Second}, 10},
	} {
		t.Run(fmt.Sprint(c.answer), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var asked atomic.Int64
				store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, l feed.Record) (feed.Record,
					error,
				) {
					tick(&asked)
					if l.Kind == feed.KindLease {
						return l, c.answer
					}
					return w.leases.Create(ctx, l)
				}}
				p := w.runWith(w.orders, store, "a", &tally{},
					changefeed.Options{MinLeases: leases, Start: feed.FromBeginning()})
				time.Sleep(5 * time.Minute)
				if n := asked.Load(); n == 0 || n > 5*c.most*leases {
					t.Errorf("%d creates in 5 minutes for %d leases, want 1 to %d a minute for each", n, leases, c.most)
				}
				p.stop(t)
			})
		})
	}
}

// tick counts a request, and lets time pass when there are so many that it would not.
func tick(n *atomic.Int64) {
	if n.Add(1) > busyLoop {
		time.Sleep(time.Second)
	}
}

func first(errs []*feed.Error) []*feed.Error { return errs[:min(3, len(errs))] }

// Leases that expire in an outage of their store are no reason to ask it more often.
func TestAnOutageOfTheLeaseStoreIsAskedAtThePaceOfRounds(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		var down atomic.Bool
		var lists atomic.Int64
		away := errors.New("away")
		start := func(name string) *process {
			s := &hookedStore{Leases: w.leases}
			s.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
				if down.Load() {
					lists.Add(1)
					return nil, time.Time{}, away
				}
				return w.leases.List(ctx)
			}
			s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
				if down.Load() {
					return l, away
				}
				return w.leases.Update(ctx, l)
			}
			return w.runWith(w.orders, struct{ feed.LeaseStore }{s}, name, &tally{}, changefeed.Options{})
		}
		a, b := start("a"), start("b")
		w.balanced(2)
		down.Store(true)
		time.Sleep(5 * time.Minute)
		down.Store(false)
		if n := lists.Load(); n < 10 || n > 5*2*15 {
			t.Errorf("%d listings of two instances in 5 minutes, want about one a round of 13 s each", n)
		}
		w.balanced(2)
		a.stop(t)
		b.stop(t)
	})
}
