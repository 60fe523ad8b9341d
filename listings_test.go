package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// What package admin says of units whose records a processor has written.

// found lists the unit, and returns the listing with the words of its findings.
func (w *world) found() (*admin.Listing, []admin.Word) {
	l, err := w.admin(admin.Options{}).List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var words []admin.Word
	for _, f := range l.Findings() {
		words = append(words, f.Word)
	}
	return l, words
}

// An instance that is stopped while it cuts a lease leaves it to the next one. If there is none, the unit has stopped.
func TestAUnitThatWasStoppedInTheMiddleOfACutIsFound(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(1)
		cut := make(chan struct{})
		var once sync.Once
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Update(ctx, l)
			if l.Kind == feed.KindLease && l.State == feed.StateSplitting && l.Owner != "" {
				once.Do(func() { close(cut) })
				time.Sleep(time.Second)
			}
			return got, err
		}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{MinLeases: 2})
		<-cut
		p.stop(t)
		w.fill(20)
		l, words := w.found()
		if !slices.Contains(words, admin.WordStopped) || l.Leases[0].State != admin.StateSplitting {
			t.Errorf("found %v, lease %s %q, want a splitting lease that is stopped", words, l.Leases[0].State,
				l.Leases[0].Notes)
		}
	})
}

// The create of the lease of two arrives minutes later. The lease counts as deleted for the instances, and here too.
func TestALeaseOfALateJoinIsNoOverlap(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		var first atomic.Bool
		var creates sync.WaitGroup
		asked := make(chan struct{})
		store := &hookedStore{Leases: w.leases}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			switch {
			case l.Kind != feed.KindLease:
				return w.leases.Create(ctx, l)
			case first.CompareAndSwap(false, true):
				close(asked)
				creates.Go(func() {
					time.Sleep(3 * time.Minute)
					if _, err := w.leases.Create(context.WithoutCancel(ctx), l); err != nil {
						t.Errorf("the late create: %v", err)
					}
				})
			}
			return l, errors.New("no answer")
		}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		<-asked
		time.Sleep(2 * time.Minute)
		p.stop(t)
		creates.Wait()
		l, words := w.found()
		has := func(w admin.Word) bool { return slices.Contains(words, w) }
		if len(l.Leases) != 3 || has(admin.WordOverlap) || has(admin.WordUnknown) || !has(admin.WordRetired) ||
			!has(admin.WordStopped) || l.IsAtWork() {
			t.Errorf("%d leases, found %v, at work %v, want a late lease beside two that are stopped", len(l.Leases),
				words, l.IsAtWork())
		}
	})
}

// An owner that renews its leases as often as its options say is in time, however rarely that is.
func TestAnOwnerThatRenewsRarelyIsNotLate(t *testing.T) {
	for _, renew := range []time.Duration{17 * time.Second, 23 * time.Second, 40 * time.Second, 53 * time.Second} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			p := w.run("a", &tally{}, changefeed.Options{Renew: renew})
			halt := w.writeEvery(11 * time.Second) // so that there are checkpoints between the beats
			for i := range 600 {
				time.Sleep(time.Second)
				if i == 300 {
					halt()
				}
				if _, words := w.found(); slices.Contains(words, admin.WordSilent) {
					t.Errorf("renewals every %v: late after %d s", renew, i)
				}
			}
			p.stop(t)
		})
	}
}
