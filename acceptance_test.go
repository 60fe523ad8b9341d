package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// The tests in this file are taken from what users of change feed processors have
// suffered from; each is named after its case.

var errDownstream = errors.New("downstream is not there")

func failing(context.Context, *feed.Batch) error { return errDownstream }

// 1: fail the first-ever batch, kill the process, restart with another instance.
func TestAcceptance1AFailedFirstBatchComesAgainOnAnotherInstance(t *testing.T) {
	for _, start := range []feed.Start{feed.FromNow(), feed.FromBeginning()} {
		t.Run(start.String(), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				first := w.run("a", feed.HandlerFunc(failing), changefeed.Options{Start: start})
				synctest.Wait()
				w.put("oslo", "1", 1)
				time.Sleep(time.Second)
				if first.errs.find(errDownstream) == nil {
					t.Fatal("the first batch did not fail")
				}
				first.kill(t)
				y := &tally{}
				second := w.run("b", y, changefeed.Options{Start: start})
				time.Sleep(2 * time.Minute)
				if items, _ := y.items(); items != 1 {
					t.Errorf("the second instance got %d items, want the 1 that failed", items)
				}
				if y.attempts[0] < 2 {
					t.Errorf("attempt %d: the failures of the first instance were forgotten", y.attempts[0])
				}
				second.stop(t)
			})
		})
	}
}

// 2: write during start-up, between lease creation and first read. Idle lease, stop,
// write, start.
func TestAcceptance2NothingWrittenAroundAStartIsSkipped(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		ready := func(context.Context) { w.fill(10) } // the leases exist, nothing has been read
		p := w.run("a", y, changefeed.Options{Hooks: changefeed.Hooks{Ready: ready}})
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 10 || again != 0 {
			t.Errorf("got %d items and %d again, want the 10 written at the start", items, again)
		}
		p.stop(t)
	})
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{})
		time.Sleep(time.Hour) // idle
		p.stop(t)
		w.fill(10)
		time.Sleep(time.Hour)
		p = w.run("b", y, changefeed.Options{})
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 10 || again != 0 {
			t.Errorf("got %d items and %d again, want the 10 written while stopped", items, again)
		}
		p.stop(t)
	})
}

// throttled refuses every lease write for a while.
type throttled struct {
	*docstore.Leases
	on atomic.Bool
}

func (s *throttled) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if s.on.Load() {
		return l, &feed.ThrottledError{After: time.Second}
	}
	return s.Leases.Update(ctx, l)
}

// 3: 429 on the checkpoint for 1 minute. Error at lease creation k of n.
func TestAcceptance3ThrottledCheckpointsSkipNothing(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		store := &throttled{Leases: w.leases}
		y := &tally{}
		errs := &errorLog{}
		p, err := changefeed.New(w.orders, store, y, changefeed.Options{
			Instance: "a", Start: feed.FromBeginning(), MaxItems: 3, Hooks: changefeed.Hooks{Error: errs.add},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(time.Second)
		store.on.Store(true)
		w.fill(50)
		time.Sleep(time.Minute)
		store.on.Store(false)
		time.Sleep(2 * time.Minute)
		if items, _ := y.items(); items != 50 {
			t.Errorf("got %d items, want 50", items)
		}
		if errs.find(feed.ErrThrottled) == nil {
			t.Error("the throttling was not reported")
		}
		if n := w.pending(); n != 0 {
			t.Errorf("%d changes are not checkpointed", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// unlucky fails the k-th creation of a record.
type unlucky struct {
	*docstore.Leases
	k *atomic.Int64
}

func (s unlucky) Create(ctx context.Context, l feed.Record) (feed.Record, error) {
	if s.k.Add(-1) == 0 {
		return l, errCutOff
	}
	return s.Leases.Create(ctx, l)
}

func TestAcceptance3EveryRangeIsCoveredWhenLeaseCreationFails(t *testing.T) {
	const creations = 1 + 5 + 1 + 1 // lock, leases, marker, presence
	for k := range creations {
		inWorld(t, 5, func(t *testing.T, w *world) {
			w.fill(20)
			o := changefeed.Options{
				Instance: "a", Start: feed.FromBeginning(),
				Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
			}
			store := unlucky{w.leases, new(atomic.Int64)}
			store.k.Store(int64(k + 1))
			crashed, err := changefeed.New(w.orders, store, &tally{}, o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := crashed.Run(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			y := &tally{}
			p := w.run("b", y, changefeed.Options{Start: feed.FromBeginning()})
			time.Sleep(2 * time.Minute)
			if n := len(w.records(feed.KindLease)); n != 5 {
				t.Errorf("creation %d failed: %d leases, want 5", k+1, n)
			}
			if items, _ := y.items(); items < 20 && w.pending() != 0 {
				t.Errorf("creation %d failed: %d of 20 items, %d pending", k+1, items, w.pending())
			}
			p.stop(t)
		})
	}
}

// 4: two processes with the same instance name. Partition the lease store. Clock skew.
func TestAcceptance4TwoProcessesWithOneNameAreTwoOwners(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		y := &tally{}
		one := w.run("same", y, changefeed.Options{})
		time.Sleep(time.Minute)
		two := w.run("same", y, changefeed.Options{})
		for n := range 100 {
			w.put(fmt.Sprintf("city-%d", n%10), "item", n)
			time.Sleep(time.Second)
		}
		epochs := map[string]int{}
		for _, l := range w.records(feed.KindLease) {
			epochs[l.Epoch]++
		}
		if len(epochs) != 2 {
			t.Errorf("leases by epoch: %v, want two owners", epochs)
		}
		if _, again := y.items(); again != 90 {
			t.Errorf("%d deliveries on top of the first of each item, want the 90 overwrites, once each", again)
		}
		one.stop(t)
		two.stop(t)
	})
}

func TestAcceptance4AnOwnerCutOffFromTheLeaseStoreStopsBeforeItsLeaseExpires(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var began, ended time.Time
		var cause error
		h := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			began = time.Now()
			<-ctx.Done()
			ended, cause = time.Now(), context.Cause(ctx)
			return cause
		})
		a := w.run("a", h, changefeed.Options{HandlerTimeout: time.Hour})
		time.Sleep(time.Second)
		w.put("oslo", "1", 1)
		synctest.Wait()
		a.wire.Cut()
		lastWrite := w.records(feed.KindLease)[0].Updated
		var taken time.Time
		b := w.run("b", feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			if taken.IsZero() {
				taken = time.Now()
			}
			return nil
		}), changefeed.Options{})
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		switch {
		case began.IsZero() || taken.IsZero() || ended.IsZero():
			t.Fatalf("began %v, ended %v, taken over %v", began, ended, taken)
		case !errors.Is(cause, feed.ErrLeaseLost):
			t.Errorf("the handler's context ended with %v", cause)
		case !ended.Before(lastWrite.Add(time.Minute)):
			t.Errorf("the handler was stopped at %v, after the expiry of a lease written at %v", ended, lastWrite)
		case !ended.Before(taken):
			t.Errorf("taken over at %v, before the first owner stopped at %v", taken, ended)
		}
		a.stop(t)
		b.stop(t)
	})
}

// skewed is a lease store whose clock differs from ours, in all that it says and is told.
type skewed struct {
	*docstore.Leases
	by time.Duration
}

// shift moves the times of a record that are the store's.
func shift(record feed.Record, by time.Duration) feed.Record {
	if !record.Updated.IsZero() {
		record.Updated = record.Updated.Add(by)
	}
	if due, made := notes.ReadDue(record.Properties[notes.DueProperty]); made {
		due.By = due.By.Add(by)
		record.Properties = notes.Set(record.Properties, notes.DueProperty, due.String())
	}
	return record
}

func (s skewed) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	records, now, err := s.Leases.List(ctx)
	for i := range records {
		records[i] = shift(records[i], s.by)
	}
	return records, now.Add(s.by), err
}

func (s skewed) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	records, next, now, err := s.Leases.Follow(ctx, cursor)
	for i := range records {
		records[i] = shift(records[i], s.by)
	}
	return records, next, now.Add(s.by), err
}

func (s skewed) Create(ctx context.Context, record feed.Record) (feed.Record, error) {
	got, err := s.Leases.Create(ctx, shift(record, -s.by))
	return shift(got, s.by), err
}

func (s skewed) Update(ctx context.Context, record feed.Record) (feed.Record, error) {
	got, err := s.Leases.Update(ctx, shift(record, -s.by))
	return shift(got, s.by), err
}

func TestAcceptance4SkewedClocksStealNothing(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, w *world) {
		y := &tally{}
		var lost atomic.Int64
		var stops []func()
		for n, skew := range []time.Duration{-5 * time.Minute, 0, 5 * time.Minute} {
			p, err := changefeed.New(w.orders, skewed{w.leases, skew}, y, changefeed.Options{
				Instance: fmt.Sprint("host-", n), Start: feed.FromBeginning(),
				Hooks: changefeed.Hooks{Released: func(_ context.Context, _ feed.Lease, why feed.Reason) {
					if why == feed.ReasonLost {
						lost.Add(1)
					}
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			stops = append(stops, func() { cancel(); <-done })
		}
		for range 20 {
			w.fill(10)
			time.Sleep(time.Minute)
		}
		if n := lost.Load(); n != 0 {
			t.Errorf("%d leases were lost in 20 quiet minutes", n)
		}
		if n := w.pending(); n != 0 {
			t.Errorf("%d changes pending", n)
		}
		for _, stop := range stops {
			stop()
		}
	})
}
