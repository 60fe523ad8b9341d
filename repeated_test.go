package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// within is a context with a deadline.
func (w *world) within(d time.Duration) context.Context {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	w.t.Cleanup(cancel)
	return ctx
}

// parksThen handles a letter as again does, and fails with the change bad before.
func parksThen(again func(b *feed.Batch) error) *tally {
	return &tally{before: func(_ context.Context, b *feed.Batch) error {
		switch {
		case b.Redriven:
			return again(b)
		case itemIDs(b)[0] == "bad":
			return errHandler
		}
		return nil
	}}
}

// A caller gives up while the letter is in the handler, and another one asks for the same at once: that one hears what
// becomes of the letter, whether or not the leases are followed.
func TestARequestThatIsRepeatedHasAnOutcome(t *testing.T) {
	for _, follows := range []bool{true, false} {
		t.Run(fmt.Sprint("follows=", follows), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				h := parksThen(func(*feed.Batch) error {
					time.Sleep(5 * time.Second)
					return nil
				})
				box := &letterBox{}
				o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
					MaxAttempts: 2,
					DeadLetters: box,
				}}
				var store feed.LeaseStore = w.leases
				if !follows {
					store = struct{ feed.LeaseStore }{w.leases}
				}
				p := w.runWith(w.orders, store, "a", h, o)
				lsn := w.put("oslo", "bad", 1)
				w.isParked(box, "bad")
				letter, oslo := letterNamed(lsn, "bad"), feed.Key("oslo")
				if !follows {
					time.Sleep(time.Minute)
				}
				begun := make(chan struct{})
				go func() {
					defer close(begun)
					w.until(time.Minute, "the letter in the handler", func() bool {
						return leaseOf(t, p.processor).InHand == 1
					})
				}()
				first, end := context.WithCancel(t.Context())
				go func() {
					<-begun
					end()
				}()
				if _, err := deadletters.Redrive(first, w.orders, w.leases, oslo, letter); !errors.Is(err,
					deadletters.ErrNotServed) {
					t.Errorf("the first caller gets %v", err)
				}
				got, err := deadletters.Redrive(w.within(time.Minute), w.orders, w.leases, oslo, letter)
				if err != nil || got.Result != deadletters.ResultHandled || got.Handled != 1 {
					t.Errorf("the second caller gets %+v, %v, want that the letter was handled", got, err)
				}
				p.stop(t)
				if box.names() != "" || len(w.records(feed.KindRequest)) > 0 {
					t.Errorf("letters %q and requests %v are left", box.names(), w.records(feed.KindRequest))
				}
			})
		})
	}
}

// A release is withdrawn while its second letter is in the handler: that is the last one.
func TestAWithdrawnReleaseEndsWithTheLetterInTheHandler(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var handled atomic.Int64
		h := parksThen(func(*feed.Batch) error {
			handled.Add(1)
			time.Sleep(2 * time.Second)
			return nil
		})
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		p := w.run("a", h, o)
		w.put("oslo", "bad", 1)
		w.isParked(box, "bad")
		for i := range 10 {
			w.put("oslo", fmt.Sprint("later-", i), i)
		}
		w.until(5*time.Minute, "held", func() bool { return len(box.all()) == 11 })
		if _, err := deadletters.Release(w.within(3*time.Second), w.orders, w.leases, feed.Key("oslo")); !errors.Is(err,
			deadletters.ErrNotServed) {
			t.Errorf("the caller gets %v", err)
		}
		time.Sleep(5 * time.Minute)
		l := leaseOf(t, p.processor)
		p.stop(t)
		if n := handled.Load(); n != 2 || len(box.all()) != 9 || l.Held != 1 {
			t.Errorf("%d letters were handled, %d are left, %d keys held: want 2, 9 and 1", n, len(box.all()), l.Held)
		}
	})
}

// An owner loses its lease three times while a letter waits, and has it again each time: its process has not ended.
func TestARequestWhoseOwnerLosesItsLeaseIsNotGivenUp(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var dark, busy atomic.Bool
		h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			switch {
			case b.Redriven:
				return nil
			case itemIDs(b)[0] == "bad":
				return errHandler
			}
			for busy.Load() && ctx.Err() == nil {
				time.Sleep(time.Second)
			}
			return nil
		}}
		errDark := errors.New("dark")
		store := farAway(w.leases, 0)
		update, list := store.update, store.list
		store.update = func(ctx context.Context, r feed.Record) (feed.Record, error) {
			if dark.Load() {
				return feed.Record{}, errDark
			}
			return update(ctx, r)
		}
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			if dark.Load() {
				return nil, time.Time{}, errDark
			}
			return list(ctx)
		}
		box := &letterBox{}
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		lsn := w.put("oslo", "bad", 1)
		w.isParked(box, "bad")
		busy.Store(true)
		w.put("oslo", "long", 2)
		time.Sleep(time.Minute)
		asked := make(chan error, 1)
		go func() {
			o, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
			if err == nil && o.Result != deadletters.ResultHandled {
				err = fmt.Errorf("%+v", o)
			}
			asked <- err
		}()
		for range 4 {
			time.Sleep(2 * time.Minute)
			dark.Store(true)
			time.Sleep(3 * time.Minute)
			dark.Store(false)
		}
		busy.Store(false)
		if err := <-asked; err != nil {
			t.Errorf("the caller gets %v, want that the letter was handled", err)
		}
		p.stop(t)
	})
}

// Without a limit the lease does not say which change has failed: after a split, or when that change is gone, the
// number counts for no limit.
func TestAttemptsOfAnUnknownChangeParkNothing(t *testing.T) {
	for _, how := range []string{"split", "delete", "replace"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				cities := map[bool]string{}
				for _, city := range []string{"oslo", "rome", "lima", "bonn", "kiev", "cork", "york"} {
					epk, err := w.orders.Locate(t.Context(), feed.Key(city))
					if err != nil {
						t.Fatal(err)
					}
					cities[feed.FullRange().Cut(2)[0].Holds(epk)] = city
				}
				var mu sync.Mutex
				received := map[int64]int{} // by LSN
				h := &tally{before: func(_ context.Context, b *feed.Batch) error {
					mu.Lock()
					defer mu.Unlock()
					for _, c := range b.Changes {
						received[c.LSN]++
					}
					return errHandler
				}}
				o := changefeed.Options{Start: feed.FromBeginning()}
				w.put(cities[true], "first", 1)
				p := w.run("a", h, o)
				time.Sleep(time.Minute)
				w.put(cities[false], "second", 2) // waits
				time.Sleep(5 * time.Minute)
				p.stop(t)
				switch how {
				case "split":
					w.split(0)
				case "delete":
					if err := w.orders.Delete(t.Context(), feed.Key(cities[true]), "first", ""); err != nil {
						t.Fatal(err)
					}
				case "replace":
					w.put(cities[true], "first", 2)
				}
				box := &letterBox{}
				o.OnFailure = changefeed.FailurePolicy{MaxAttempts: 5, DeadLetters: box}
				p = w.run("a", h, o)
				time.Sleep(3 * time.Minute)
				p.stop(t)
				for _, l := range box.all() {
					if n := received[l.Change.LSN]; n < 5 {
						t.Errorf("%s is parked after %d calls", l.Change.ID, n)
					}
				}
			})
		})
	}
}

// After holds in an outage too: for probes, and at its end.
func TestAPauseThatTheHandlerAsksForHoldsInAnOutage(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const pause = 10 * time.Minute
		var mu sync.Mutex
		last := map[feed.PartitionKey]time.Time{}
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range b.Changes {
				if at, ok := last[c.PartitionKey]; ok && time.Since(at) < pause {
					t.Errorf("%s is called again after %v", c.PartitionKey, time.Since(at))
				}
				last[c.PartitionKey] = time.Now()
			}
			return &feed.Failure{After: pause, Err: errHandler}
		}}
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 4,
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		w.fill(4)
		w.until(time.Hour, "an outage", func() bool {
			all := p.processor.Status()
			return len(all) == 1 && all[0].Outage
		})
		time.Sleep(2 * time.Hour)
		p.stop(t)
		if mu.Lock(); len(last) != 4 {
			t.Errorf("%d keys were called, want 4", len(last))
		}
	})
}
