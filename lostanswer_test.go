package changefeed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// An instance is stopped while it takes a lease, and the write takes a while to arrive, whether its sender waits or
// not. The lease must not end up with an owner who has gone.
func TestALeaseThatIsTakenAtTheStopIsFreed(t *testing.T) {
	for _, underway := range []time.Duration{2 * time.Second, 4 * time.Second} {
		t.Run(underway.String(), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				sent, arrived := make(chan bool, 1), make(chan bool, 1)
				store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record,
					error,
				) {
					if l.Kind != feed.KindLease || len(sent) > 0 || len(arrived) > 0 {
						return w.leases.Update(ctx, l)
					}
					sent <- true
					answer := make(chan answered, 1)
					go func() {
						time.Sleep(underway)
						got, err := w.leases.Update(t.Context(), l)
						arrived <- true
						answer <- answered{got, err}
					}()
					select {
					case a := <-answer:
						return a.lease, a.err
					case <-ctx.Done():
						return l, context.Cause(ctx)
					}
				}}
				p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
				w.until(time.Minute, "being taken", func() bool { return len(sent) > 0 })
				p.stop(t)
				time.Sleep(10 * time.Second)
				if owners := w.owners(); len(arrived) == 0 || owners[""] != 1 {
					t.Errorf("the write has arrived %d times; owners %v after the stop, want a free lease",
						len(arrived), owners)
				}
			})
		})
	}
}

type answered struct {
	lease feed.Record
	err   error
}

// A renewal of the lock is stored, and its answer is lost. The lock is still its holder's, who goes on making the
// leases.
func TestALockWhoseRenewalWasNotAnsweredIsKept(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		errLost := errors.New("the answer was lost")
		var lost atomic.Int64
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Update(ctx, l)
			if l.Kind == feed.KindLock && err == nil && lost.Add(1) == 1 {
				return l, errLost
			}
			return got, err
		}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && !waitFor(ctx, 5*time.Second) {
				return l, context.Cause(ctx)
			}
			return w.leases.Create(ctx, l)
		}
		var ready atomic.Bool
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{
			MinLeases: 100, Hooks: changefeed.Hooks{Ready: func(context.Context) { ready.Store(true) }},
		})
		time.Sleep(25 * time.Second)
		if !ready.Load() || lost.Load() < 2 {
			t.Errorf("ready %v, %d leases of 100; the lock was renewed %d times", ready.Load(),
				len(w.records(feed.KindLease)), lost.Load())
		}
		for _, err := range p.errs.all() {
			if !errors.Is(err, errLost) {
				t.Errorf("reported: %v", err)
			}
		}
		p.stop(t)
	})
}
