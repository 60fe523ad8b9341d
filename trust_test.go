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

// trust is how long an owner goes by a write of its lease, with the default options.
const trust = 54 * time.Second

// The expiration of a lease is its owner's, who may have a longer one than those who wait
// for it.
func TestALeaseLastsAsLongAsItsOwnerSays(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const long = 3 * time.Minute
		a := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning(), Expiration: long})
		time.Sleep(time.Second)
		a.kill(t)
		l := w.records(feed.KindLease)[0]
		if l.Expiration != long {
			t.Errorf("the lease says %v, its owner %v", l.Expiration, long)
		}
		var taken atomic.Int64
		o := changefeed.Options{Expiration: 30 * time.Second, Renew: 10 * time.Second}
		o.Hooks.Acquired = func(context.Context, feed.Lease) { taken.CompareAndSwap(0, time.Now().UnixMilli()) }
		b := w.run("b", &tally{}, o)
		time.Sleep(2 * long)
		wait := time.UnixMilli(taken.Load()).Sub(l.Updated)
		// a second, for stores that keep whole seconds
		if least := long + time.Second; wait < least || wait > least+5*time.Second {
			t.Errorf("taken %v after its last write, want %v", wait, least)
		}
		b.stop(t)
	})
}

// turns is when each lease was worked on.
type turns struct {
	mu          sync.Mutex
	first, last map[string]time.Time
}

func newTurns() *turns {
	return &turns{first: map[string]time.Time{}, last: map[string]time.Time{}}
}

func (n *turns) Handle(_ context.Context, b *feed.Batch) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.first[b.LeaseToken].IsZero() {
		n.first[b.LeaseToken] = time.Now()
	}
	n.last[b.LeaseToken] = time.Now()
	return nil
}

// deafToOthers is the lease store of an instance that cannot read it any more when off is
// set, but write: it does not give what it has too much, and does not hear of a theft.
func (w *world) deafToOthers(off *atomic.Bool) *hookedStore {
	return &hookedStore{
		Leases: w.leases,
		list: func(ctx context.Context) ([]feed.Record, time.Time, error) {
			if off.Load() {
				return nil, time.Time{}, errCutOff
			}
			return w.leases.List(ctx)
		},
		follow: func(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
			changed, next, now, err := w.leases.Follow(ctx, cursor)
			if off.Load() {
				return nil, "", now, errCutOff
			}
			return changed, next, now, err
		},
	}
}

// An owner does not give a lease that is due to another. It is stolen, and the thief
// waits for as long as the owner, whose expiration is the longer one, may go on.
func TestAThiefWaitsAsLongAsTheOwnerTrustsItsLease(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		var off atomic.Bool
		owners, thiefs := newTurns(), newTurns()
		a := w.runWith(w.orders, w.deafToOthers(&off), "a", owners,
			changefeed.Options{Start: feed.FromBeginning(), Manual: true, Expiration: 4 * time.Minute})
		time.Sleep(20 * time.Second)
		off.Store(true)
		time.Sleep(time.Second)
		b := w.run("b", thiefs, changefeed.Options{Expiration: 30 * time.Second, Renew: 10 * time.Second})
		for range 400 {
			for n := range 10 {
				w.put(fmt.Sprint("city-", n), "item", n)
			}
			time.Sleep(time.Second)
		}
		a.stop(t)
		b.stop(t)
		if len(thiefs.first) != 1 {
			t.Fatalf("%d leases stolen: the test shows nothing", len(thiefs.first))
		}
		for token, began := range thiefs.first {
			if ended := owners.last[token]; !ended.Before(began) || began.Sub(ended) > time.Minute {
				t.Errorf("lease %s was begun at %v, and worked on by its owner until %v", token, began, ended)
			}
		}
	})
}

// The write of a thief arrives, its answer does not: so it finds itself as the owner of a
// lease that it knows nothing of.
func TestAThiefWhoseReplyWasLostWaitsAllTheSame(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		end := w.heldByDotNet("setup")
		w.fill(20)
		var lost atomic.Int64
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Update(ctx, l)
			if l.Kind == feed.KindLease && err == nil && lost.Add(1) == 1 {
				return l, errCutOff
			}
			return got, err
		}}
		thiefs := newTurns()
		b := w.runWith(w.orders, store, "b", thiefs, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		lastHeld := end()
		b.stop(t)
		if len(thiefs.first) != 1 || b.errs.find(errCutOff) == nil {
			t.Fatalf("%d leases stolen: the test shows nothing", len(thiefs.first))
		}
		for token, began := range thiefs.first {
			if wait := began.Sub(lastHeld[token]); wait < time.Minute {
				t.Errorf("lease %s was begun %v after its owner's last renewal, which trusts it for 60 s", token, wait)
			}
		}
	})
}

// lastAnswer is a lease store that carries out the n-th write of leases and answers a
// while later, with an error if there is one, and is not heard of again.
type lastAnswer struct {
	*hookedStore
	n      int
	err    error
	mu     sync.Mutex
	writes int
	asked  time.Time // when the n-th was sent
}

const answerTakes = 8 * time.Second

// next tells whether a write goes through, and whether it is the last.
func (s *lastAnswer) next() (goes, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes++; s.writes == s.n {
		s.asked = time.Now()
	}
	return s.writes <= s.n, s.writes == s.n
}

func (s *lastAnswer) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if l.Kind != feed.KindLease {
		return s.Leases.Update(ctx, l)
	}
	goes, last := s.next()
	if !goes {
		<-ctx.Done()
		return l, context.Cause(ctx)
	}
	got, err := s.Leases.Update(ctx, l)
	if last {
		time.Sleep(answerTakes)
		if s.err != nil {
			return l, s.err
		}
	}
	return got, err
}

// held is a handler that holds a batch for as long as it may.
type held struct {
	ended atomic.Int64
}

func (h *held) Handle(ctx context.Context, _ *feed.Batch) error {
	<-ctx.Done()
	h.ended.CompareAndSwap(0, time.Now().UnixMilli())
	return context.Cause(ctx)
}

// The store may have stamped a write long before its answer comes. An owner goes by the
// moment before it asked.
func TestALeaseIsTrustedFromBeforeItsWrite(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		err  error
	}{
		{"taken", 1, nil}, {"renewed", 2, nil}, {"renewed, and found by listing", 2, feed.ErrConflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.put("oslo", "1", 1)
				store := &lastAnswer{hookedStore: &hookedStore{Leases: w.leases}, n: c.n, err: c.err}
				h := &held{}
				p := w.runWith(w.orders, store, "a", h, changefeed.Options{
					Start: feed.FromBeginning(),
					Drain: time.Second,
				})
				time.Sleep(3 * time.Minute)
				p.stop(t)
				if went := time.UnixMilli(h.ended.Load()).Sub(store.asked); went > trust || went < trust-time.Second {
					t.Errorf("its handler went on until %v after the last write was sent, want %v", went, trust)
				}
			})
		})
	}
}

// The same for a child, whose first write is its creation.
func TestAChildIsTrustedFromBeforeItsWrite(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &lastAnswer{hookedStore: &hookedStore{Leases: w.leases}, n: 1 << 30}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind != feed.KindLease || l.Owner == "" {
				return w.leases.Create(ctx, l)
			}
			store.mu.Lock()
			if store.n = 0; store.asked.IsZero() {
				store.asked = time.Now()
			}
			store.mu.Unlock()
			defer time.Sleep(answerTakes)
			return w.leases.Create(ctx, l)
		}
		h := &held{}
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning(), Drain: time.Second})
		time.Sleep(10 * time.Second)
		w.split(0)
		w.fill(20)
		time.Sleep(3 * time.Minute)
		p.stop(t)
		if went := time.UnixMilli(h.ended.Load()).Sub(store.asked); went > trust || went < trust-time.Second {
			t.Errorf("its handler went on until %v after its creation was sent, want %v", went, trust)
		}
	})
}

// A checkpoint comes shortly before a beat, and an owner has little time from one write to
// the next.
func TestARenewalIsNotPutOffBeyondASafeBeat(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var lost atomic.Int64
		o := changefeed.Options{Start: feed.FromBeginning(), Renew: 25 * time.Second, Expiration: 30 * time.Second}
		o.Hooks.Released = func(_ context.Context, _ feed.Lease, why feed.Reason) {
			if why == feed.ReasonLost {
				lost.Add(1)
			}
		}
		p := w.run("a", &tally{}, o)
		for n := range 10 {
			time.Sleep(20 * time.Second)
			w.put("oslo", "1", n)
			time.Sleep(time.Minute)
		}
		if lost.Load() != 0 || w.pending() != 0 {
			t.Errorf("the lease was lost %d times while its store was well, %d pending", lost.Load(), w.pending())
		}
		p.stop(t)
	})
}

// Answers are lost, or refuse what has arrived: the next write is on top of what is there.
func TestTheEchoOfALostAnswerIsRecognized(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrives func(n int) bool
		err     error
	}{
		{"an answer is lost", func(n int) bool { return true }, errCutOff},
		{"of two writes without an answer the first has arrived", func(n int) bool { return n%2 == 0 }, errCutOff},
		{"a write that has arrived is refused", func(n int) bool { return true }, feed.ErrConflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var lossy atomic.Bool
				writes := 0
				store := &hookedStore{
					Leases: w.leases,
					update: func(ctx context.Context, l feed.Record) (got feed.Record, err error) {
						if l.Kind != feed.KindLease || !lossy.Load() {
							return w.leases.Update(ctx, l)
						}
						n := writes
						if writes++; n%4 > 1 {
							return w.leases.Update(ctx, l)
						}
						if c.arrives(n) {
							if got, err = w.leases.Update(ctx, l); err != nil {
								return got, err
							}
						}
						return l, c.err
					},
				}
				var lost atomic.Int64
				y := &tally{}
				o := changefeed.Options{Start: feed.FromBeginning()}
				o.Hooks.Released = func(_ context.Context, _ feed.Lease, why feed.Reason) {
					if why == feed.ReasonLost {
						lost.Add(1)
					}
				}
				p := w.runWith(w.orders, store, "a", y, o)
				time.Sleep(time.Second)
				lossy.Store(true)
				for n := range 20 {
					w.put(fmt.Sprint("city-", n), "item", n)
					time.Sleep(2 * time.Second)
				}
				lossy.Store(false)
				time.Sleep(time.Minute)
				p.stop(t)
				if lost.Load() != 0 || writes < 20 {
					t.Errorf("the lease was lost %d times in %d writes", lost.Load(), writes)
				}
				if items, again := y.items(); items != 20 || again != 0 || w.pending() != 0 {
					t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
				}
			})
		})
	}
}
