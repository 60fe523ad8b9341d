package changefeed_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// belated is a lease store whose outcomes of requests cannot be written for a while, and whose follower speaks when it
// is told to.
type belated struct {
	*hookedStore
	follows chan []feed.Record

	mu       sync.Mutex
	isSilent bool // no outcome can be written
	outcomes []notes.Outcome
}

func (w *world) belated() *belated {
	s := &belated{hookedStore: &hookedStore{Leases: w.leases}, follows: make(chan []feed.Record), isSilent: true}
	s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
		if o, isOutcome := notes.ReadOutcome(l.Properties); l.Kind == feed.KindRequest && isOutcome {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.outcomes = append(s.outcomes, o); s.isSilent {
				return l, feed.ErrForbidden
			}
		}
		return w.leases.Update(ctx, l)
	}
	s.follow = func(ctx context.Context, _ string) ([]feed.Record, string, time.Time, error) {
		select {
		case changed := <-s.follows:
			return changed, "later", time.Now(), nil
		case <-ctx.Done():
			return nil, "", time.Time{}, context.Cause(ctx)
		}
	}
	return s
}

// The outcome of a request is missing, and the instance hears late of the lease as it was before. The instance does not
// obey again, because the lease that it holds says that the request is served.
func TestARequestIsObeyedOnceThoughNewsIsOld(t *testing.T) {
	skipped := []notes.Skip{{Key: `["oslo"]`, LSN: 1, ID: "bad"}}
	for _, c := range []struct {
		asked notes.Control
		again int
	}{
		{notes.Control{Action: notes.Reset, To: notes.Target{Token: `"0"`}}, 1},
		{notes.Control{Action: notes.Replay, To: notes.Target{Token: `"0"`}, Key: `["oslo"]`}, 1},
		{notes.Control{Action: notes.SkipChanges, Changes: skipped}, 0},
	} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			h, store := newBad(), w.belated()
			h.repaired.Store(c.asked.Action != notes.SkipChanges)
			w.put("oslo", "bad", 1)
			var released atomic.Int64
			o := changefeed.Options{Start: feed.FromBeginning()}
			o.Hooks.Released = func(context.Context, feed.Lease, feed.Reason) { released.Add(1) }
			p := w.runWith(w.orders, store, "a", h, o)
			time.Sleep(time.Minute)
			before := w.records(feed.KindLease)
			c.asked.Max = "FF"
			w.requests(c.asked)
			time.Sleep(time.Minute)
			w.put("oslo", "next", 1)
			store.follows <- nil         // the present cursor
			time.Sleep(30 * time.Second) // until no round lists, because the store is followed
			store.follows <- append(before, feed.Record{ID: "news", Kind: feed.KindHost, Token: "b"})
			time.Sleep(time.Minute)
			store.mu.Lock()
			store.isSilent = false
			store.mu.Unlock()
			time.Sleep(2 * time.Minute)
			if items, again := h.items(); items != 1+c.again || again != c.again {
				t.Errorf("%s: %d items, %d again, want %d and %d", c.asked.Action, items, again, 1+c.again, c.again)
			}
			store.mu.Lock()
			outcomes := slices.Clone(store.outcomes)
			store.mu.Unlock()
			isFailed := func(o notes.Outcome) bool { return o.Result != notes.Handled }
			if n := len(outcomes); n < 3 || slices.ContainsFunc(outcomes, isFailed) {
				t.Errorf("%s: %d outcomes, want several, and none that failed: %+v", c.asked.Action, n, outcomes)
			}
			if n := released.Load(); n != 2 { // when the request was obeyed, and for the old news
				t.Errorf("%s: the lease was given up %d times, want 2", c.asked.Action, n)
			}
			p.stop(t)
		})
	}
}

// A request that was obeyed before a later caller asks for the same has no outcome yet. The later caller is obeyed too,
// because the lease has gone on since. The minutes are of virtual time, in which the unit settles.
func TestAnEqualRequestThatWasObeyedBeforeIsNotShared(t *testing.T) {
	start := feed.At(`"0"`)
	for _, c := range []struct {
		asked notes.Control
		ask   func(ctx context.Context, u *admin.Unit) ([]admin.Step, error)
	}{
		{notes.Control{Action: notes.Reset}, func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
			return u.ResetTo(ctx, admin.All(), start)
		}},
		{
			notes.Control{Action: notes.Replay, Key: `["oslo"]`},
			func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
				return u.ResetKeyTo(ctx, feed.Key("oslo"), start)
			},
		},
	} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			h, store := &tally{}, w.belated()
			w.put("oslo", "one", 1)
			p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning()})
			time.Sleep(time.Minute)
			c.asked.Max, c.asked.To = "FF", notes.Target{Token: start.Token}
			w.requests(c.asked)
			time.Sleep(time.Minute)
			spoken := time.AfterFunc(20*time.Second, func() {
				store.mu.Lock()
				defer store.mu.Unlock()
				store.isSilent = false
			})
			defer spoken.Stop()
			operate(t, func(ctx context.Context) ([]admin.Step, error) { return c.ask(ctx, w.admin(admin.Options{})) })
			time.Sleep(time.Minute)
			if _, again := h.items(); again != 2 {
				t.Errorf("%s: %d came again, want one for each caller", c.asked.Action, again)
			}
			p.stop(t)
		})
	}
}
