package changefeed_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// The lease stores in this file are slow, throttle, hang, lose what they were told, or
// answer too soon.

// A creation that takes longer than the lock allows goes on later with the same leases.
func TestABootstrapOnASlowStoreMakesEachLeaseOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		slow := &hookedStore{Leases: w.leases}
		slow.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				time.Sleep(2 * time.Second)
			}
			if ctx.Err() != nil {
				return l, context.Cause(ctx)
			}
			return w.leases.Create(ctx, l)
		}
		var ready atomic.Bool
		const want = 200
		p := w.runWith(w.orders, slow, "a", &tally{}, changefeed.Options{
			MinLeases: want, Start: feed.FromBeginning(),
			Hooks: changefeed.Hooks{Ready: func(context.Context) { ready.Store(true) }},
		})
		time.Sleep(15 * time.Second)
		if n := len(w.records(feed.KindLease)); ready.Load() || n == 0 || n == want {
			t.Errorf("ready %v with %d leases: the creation was not interrupted, and the test shows nothing",
				ready.Load(), n)
		}
		w.until(3*time.Minute, "ready", ready.Load)
		if n := len(w.records(feed.KindLease)); n != want {
			t.Errorf("%d leases, want %d", n, want)
		}
		w.tiles()
		p.stop(t)
	})
}

// What a follower hears while a listing is on its way is newer than the listing.
func TestASlowListingDoesNotUndoNews(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		store := &hookedStore{Leases: w.leases}
		var slow, listing atomic.Bool
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			records, now, err := w.leases.List(ctx)
			if slow.Load() {
				listing.Store(true)
				time.Sleep(4 * time.Second)
				listing.Store(false)
			}
			return records, now, err
		}
		b := w.runWith(w.orders, store, "b", &tally{}, changefeed.Options{})
		w.balanced(2)
		slow.Store(true)
		w.until(10*time.Minute, "listing", listing.Load)
		begin := time.Now()
		a.stop(t)
		w.balanced(1)
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("the leases of a stopped instance were taken after %v", took)
		}
		b.stop(t)
	})
}

// What happens between the first listing and the first cursor is in neither of them.
func TestNewsBetweenTheFirstListingAndTheCursorIsNotMissed(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		store := &hookedStore{Leases: w.leases}
		var ready atomic.Bool
		var lists atomic.Int64
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			records, now, err := w.leases.List(ctx)
			if ready.Load() && lists.Add(1) == 1 {
				a.stop(t)
				time.Sleep(2 * time.Second)
			}
			return records, now, err
		}
		store.follow = func(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
			if cursor == "" {
				time.Sleep(time.Second)
			}
			return w.leases.Follow(ctx, cursor)
		}
		b := w.runWith(w.orders, store, "b", &tally{}, changefeed.Options{
			Hooks: changefeed.Hooks{Ready: func(context.Context) { ready.Store(true) }},
		})
		w.until(20*time.Second, "with b for all four leases that a freed", func() bool { return w.owners()["b"] == 4 })
		b.stop(t)
	})
}

// A store may have neither time to live nor an answer to a Delete.
func TestADeleteThatHangsStopsNoRounds(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var hung, rounds atomic.Int64
		store.delete = func(ctx context.Context, l feed.Record) error {
			if l.Kind == feed.KindHost {
				hung.Add(1)
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return w.leases.Delete(ctx, l)
		}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			l.TTL = 0
			return w.leases.Create(ctx, l)
		}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			l.TTL = 0
			return w.leases.Update(ctx, l)
		}
		gone := w.runWith(w.orders, store, "gone", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		gone.stop(t)
		a := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{
			Hooks: changefeed.Hooks{Round: func(context.Context, feed.Round) { rounds.Add(1) }},
		})
		time.Sleep(10 * time.Minute)
		before := rounds.Load()
		time.Sleep(10 * time.Minute)
		if n := rounds.Load() - before; n < 10 {
			t.Errorf("%d rounds in 10 minutes; reported: %v", n, a.errs.all())
		}
		if hung.Load() == 0 {
			t.Error("the presence of the instance that is gone was never deleted")
		}
		a.stop(t)
	})
}

// A firewall may drop a connection without a word. The first write of each kind is never answered here.
func TestWritesThatAreNeverAnsweredKeepNobodyWaiting(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var mu sync.Mutex
		asked := map[string]int{}
		silent := func(ctx context.Context, what string) error {
			mu.Lock()
			asked[what]++
			first := asked[what] == 1
			mu.Unlock()
			if first {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := silent(ctx, "create "+string(l.Kind)); err != nil {
				return l, err
			}
			return w.leases.Create(ctx, l)
		}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := silent(ctx, "update "+string(l.Kind)); err != nil {
				return l, err
			}
			return w.leases.Update(ctx, l)
		}
		w.fill(20)
		h := &tally{}
		a := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning()})
		w.until(10*time.Minute, "with all 20 handled", func() bool { n, _ := h.items(); return n == 20 })
		for _, what := range []string{"create lock", "create lease", "create info", "create host", "update lease"} {
			w.until(5*time.Minute, "asked again to "+what, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return asked[what] > 1
			})
		}
		a.stop(t)
	})
}

// Asking for a checkpoint again, after a write that failed, writes again.
func TestACheckpointWhoseWriteFailedIsNotTakenForStored(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var cut atomic.Bool
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if cut.Load() {
				return l, errCutOff
			}
			return w.leases.Update(ctx, l)
		}
		var failed []error
		var pending int64
		var last error
		ask := func(b *feed.Batch) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return b.Checkpoint(ctx)
		}
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			cut.Store(true)
			failed = append(failed, ask(b), ask(b))
			pending = w.pending()
			cut.Store(false)
			last = ask(b)
			return nil
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning(), Manual: true})
		w.put("oslo", "1", 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(failed) != 2 || failed[0] == nil || failed[1] == nil || pending != 1 {
			t.Errorf("checkpoints while the store was cut off: %v, %d pending; want two errors and one pending", failed,
				pending)
		}
		if n := w.pending(); last != nil || n != 0 {
			t.Errorf("the checkpoint after that: %v, %d pending", last, n)
		}
		p.stop(t)
	})
}

// bucket is a lease store that takes so many writes a second.
type bucket struct {
	*docstore.Leases
	mu             sync.Mutex
	rate, left     float64
	at             time.Time
	taken, refused int
}

func (b *bucket) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if !b.take() {
		return l, &feed.ThrottledError{After: time.Second}
	}
	return b.Leases.Update(ctx, l)
}

func (b *bucket) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.left = min(b.rate, b.left+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
	if b.left < 1 {
		b.refused++
		return false
	}
	b.left--
	b.taken++
	return true
}

// count tells how many writes came since the last count.
func (b *bucket) count() (taken, refused int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken, refused = b.taken, b.refused
	b.taken, b.refused = 0, 0
	return taken, refused
}

// The renewals of many idle leases are few on average: coming together must not make
// them too many.
func TestRenewalsAreNoBurstThatASmallContainerRefuses(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const leases = 100
		b := &bucket{Leases: w.leases, rate: 40, left: 40, at: time.Now()}
		p := w.runWith(w.orders, b, "a", &tally{}, changefeed.Options{MinLeases: leases})
		time.Sleep(2 * time.Minute)
		b.count()
		time.Sleep(3 * time.Minute)
		taken, refused := b.count()
		if least := 3 * leases; taken < least {
			t.Errorf("%d renewals in 3 minutes, want %d at least", taken, least)
		}
		if refused > taken/20 {
			t.Errorf("%d writes taken and %d refused, though the average is less than a quarter of what is allowed",
				taken, refused)
		}
		p.stop(t)
	})
}

// A cursor that the store does not know any more is no reason to stop following.
func TestAFollowerWhoseCursorTurnsInvalidBeginsAnew(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var invalid atomic.Bool
		var refused, good atomic.Int64
		store.follow = func(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
			if cursor == "" {
				invalid.Store(false)
			}
			if invalid.Load() {
				refused.Add(1)
				return nil, "", time.Time{}, feed.ErrTooOld
			}
			good.Add(1)
			return w.leases.Follow(ctx, cursor)
		}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		invalid.Store(true)
		time.Sleep(time.Minute)
		before := good.Load()
		time.Sleep(5 * time.Minute)
		if refused.Load() == 0 || good.Load() == before {
			t.Errorf("%d refused cursors, then %d good calls: the lease container is not followed any more",
				refused.Load(), good.Load()-before)
		}
		p.stop(t)
	})
}

// A store may answer at once that nothing has changed.
func TestAFollowerThatReturnsEarlyIsNotAskedAllTheTime(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var n atomic.Int64
		store := &hookedStore{Leases: w.leases}
		store.follow = func(ctx context.Context, _ string) ([]feed.Record, string, time.Time, error) {
			if n.Add(1) > busyLoop {
				<-ctx.Done()
				return nil, "", time.Time{}, context.Cause(ctx)
			}
			return nil, "1", time.Now(), nil
		}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		if n := n.Load(); n < 10 || n > 1000 {
			t.Errorf("followed %d times in a minute", n)
		}
		p.stop(t)
	})
}
