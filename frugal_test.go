package changefeed_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A lease store is asked no more often than there is a reason for.

// throttler is a lease store that refuses each request a few times, asks for a pause, and remembers who does not heed
// it.
type throttler struct {
	*hookedStore
	after   time.Duration
	mu      sync.Mutex
	refused map[string]int
	last    map[string]time.Time // when a request was refused
	hasty   []string             // requests that came again too soon
}

func (w *world) throttler(after time.Duration) *throttler {
	s := &throttler{
		hookedStore: &hookedStore{Leases: w.leases}, after: after, refused: map[string]int{},
		last: map[string]time.Time{},
	}
	s.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
		if s.refuses("create " + string(l.Kind)) {
			return l, &feed.ThrottledError{After: s.after}
		}
		return w.leases.Create(ctx, l)
	}
	s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
		if s.refuses("update " + string(l.Kind)) {
			return l, &feed.ThrottledError{After: s.after}
		}
		return w.leases.Update(ctx, l)
	}
	return s
}

func (s *throttler) refuses(request string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.last[request]; !last.IsZero() && time.Since(last) < s.after {
		s.hasty = append(s.hasty, fmt.Sprintf("%s after %v", request, time.Since(last)))
	}
	delete(s.last, request)
	if s.refused[request] == 3 {
		return false
	}
	s.refused[request]++
	s.last[request] = time.Now()
	return true
}

// anew has each request refused again, and returns how often each was.
func (s *throttler) anew() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := s.refused
	s.refused = map[string]int{}
	return refused
}

// The store asks for 4 s each time: when the unit is made, when its lease is taken, and when it is written.
func TestAThrottledLeaseStoreIsGivenThePauseThatItAsksFor(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		s := w.throttler(4 * time.Second)
		p := w.runWith(w.orders, s, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(2 * time.Minute)
		made := s.anew()
		w.put("oslo", "item", 1)
		time.Sleep(time.Minute)
		written := s.anew()
		for request, want := range map[string]int{
			"create lock": 3, "create lease": 3, "create info": 3,
			"create host": 3, "update lease": 3,
		} {
			if made[request] != want {
				t.Errorf("%s was refused %d times at first, want %d", request, made[request], want)
			}
		}
		if written["update lease"] != 3 || w.pending() != 0 {
			t.Errorf("a checkpoint was refused %d times, want 3; %d pending", written["update lease"], w.pending())
		}
		if len(s.hasty) > 0 {
			t.Errorf("asked again too soon: %q", s.hasty)
		}
		p.stop(t)
	})
}

// Nobody wants what is written. When the feed is quiet again, its lease is renewed and no more than that, though the
// source is asked each 5 s.
func TestAFilterThatWantsNothingCostsNoWritesOfAnIdleLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var writes atomic.Int64
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				writes.Add(1)
			}
			return w.leases.Update(ctx, l)
		}}
		type polled struct{ feed.Source }
		p := w.runWith(polled{w.orders}, store, "a", &tally{}, changefeed.Options{
			Start: feed.FromBeginning(), Filter: func(*feed.Change) bool { return false },
		})
		w.many(100, 10)
		time.Sleep(time.Minute)
		if n := w.pending(); n != 0 {
			t.Errorf("%d changes that nobody wants are pending", n)
		}
		before := writes.Load()
		time.Sleep(10 * time.Minute)
		if n := writes.Load() - before; n < 30 || n > 45 {
			t.Errorf("an idle lease was written %d times in 10 minutes, want a renewal each 17 s", n)
		}
		p.stop(t)
	})
}
