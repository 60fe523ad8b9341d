package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// lease is the status of the only lease of the only run.
func leaseOf(t *testing.T, p *changefeed.Processor) feed.LeaseStatus {
	t.Helper()
	s := p.Status()
	if len(s) != 1 || len(s[0].Leases) != 1 {
		t.Fatalf("status %+v, want one lease of one run", s)
	}
	return s[0].Leases[0]
}

// Without a request a running instance knows what it has read, and how far away the end of the feed was then.
func TestAStatusSaysHowMuchIsPending(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(40)
		answers := make(chan error)
		h := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			select {
			case err := <-answers:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), MaxItems: 10, BufferItems: 10, HandlerTimeout: time.Hour,
		})
		time.Sleep(time.Second)
		for handled := 0; handled < 40; handled += 10 {
			l := leaseOf(t, p.processor)
			if want := int64(40 - handled); l.Pending != want || l.Exact != (handled == 30) || l.Seen.IsZero() {
				t.Errorf("%d handled: %d pending, exact %t, at %v, want %d", handled, l.Pending, l.Exact, l.Seen, want)
			}
			answers <- nil
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		if l := leaseOf(t, p.processor); l.Pending != 0 || !l.Exact {
			t.Errorf("at rest: %d pending, exact %t", l.Pending, l.Exact)
		}
		p.stop(t)
	})
}

// One batch after the other, a running instance says what it does with it.
func TestARunningInstanceSaysWhatItDoes(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		answers := make(chan error)
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return <-answers })
		var away atomic.Bool
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if away.Load() {
				return l, errRefused
			}
			return w.leases.Update(ctx, l)
		}}
		p, err := changefeed.New(w.orders, store, h, changefeed.Options{
			Instance: "a", Start: feed.FromBeginning(), RetryMin: 10 * time.Second, Drain: 30 * time.Second,
			Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if s := p.Status(); len(s) != 0 {
			t.Errorf("before it runs: %+v", s)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		begun := time.Now()
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(20 * time.Second)
		if s := p.Status()[0]; s.Instance != "a" || !s.Since.Equal(begun) || !s.Ready || s.Stopping ||
			s.View.IsZero() || s.At.IsZero() || s.Round.Leases != 1 || len(s.Errors) != 0 {
			t.Errorf("at rest: %+v", s)
		}
		if l := leaseOf(t, p); l.Activity != feed.ActivityWaiting || l.Failures != 0 || !l.Failing.IsZero() ||
			len(l.Errors) != 0 {
			t.Errorf("at rest: %+v", l)
		}
		rest := leaseOf(t, p).Lease.Position

		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		if l := leaseOf(t, p); l.Activity != feed.ActivityHandling || l.Failing.IsZero() || l.Lease.Position != rest ||
			l.Read == rest {
			t.Errorf("in the handler: %+v", l)
		}
		answers <- errDownstream
		synctest.Wait()
		l := leaseOf(t, p)
		if l.Activity != feed.ActivityFailing || l.Failures != 1 || l.Lease.Attempts != 1 || len(l.Errors) != 1 ||
			!errors.Is(l.Errors[0], errDownstream) {
			t.Errorf("after a failure: %+v", l)
		}
		time.Sleep(11 * time.Second)
		away.Store(true)
		answers <- nil
		time.Sleep(time.Second)
		l = leaseOf(t, p)
		if l.Activity != feed.ActivityStoring || l.Failures != 0 || l.Unsaved != 1 || l.Lease.Position != l.Read ||
			len(l.Errors) != 1 || l.Errors[0].Origin != feed.OriginLeaseStore {
			t.Errorf("while it cannot be stored: %+v", l)
		}
		away.Store(false)
		time.Sleep(15 * time.Second)
		if l := leaseOf(t, p); l.Activity != feed.ActivityWaiting || l.Unsaved != 0 || len(l.Errors) != 0 {
			t.Errorf("after it was stored: %+v", l)
		}

		w.put("oslo", "2", 1)
		time.Sleep(time.Second)
		stop()
		time.Sleep(time.Second)
		if s := p.Status(); len(s) != 1 || !s[0].Stopping || len(s[0].Leases) != 1 {
			t.Errorf("while it stops: %+v", s)
		}
		answers <- nil
		running.Wait()
		if s := p.Status(); len(s) != 0 {
			t.Errorf("after it has run: %+v", s)
		}
	})
}

// An error of the source stands for as long as no read succeeds.
func TestAnErrorOfTheSourceStandsUntilItIsReadAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var away atomic.Bool
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			if away.Load() {
				return feed.Page{}, errDownstream
			}
			return w.orders.Read(ctx, r, from, o)
		}}
		p := w.runWith(source, w.leases, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(20 * time.Second)
		away.Store(true)
		w.put("oslo", "1", 1)
		time.Sleep(20 * time.Second)
		if l := leaseOf(t, p.processor); l.Activity != feed.ActivityFailing || len(l.Errors) != 1 ||
			!errors.Is(l.Errors[0], errDownstream) {
			t.Errorf("while it cannot be read: %+v", l)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if l := leaseOf(t, p.processor); l.Activity != feed.ActivityWaiting || len(l.Errors) != 0 {
			t.Errorf("when it has been read: %+v", l)
		}
		p.stop(t)
	})
}

// Two runs of one processor are two instances, and what fails for all leases stands until a
// round begins anew.
func TestEachRunHasAStatus(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		var away atomic.Bool
		listing := &hookedStore{Leases: w.leases}
		listing.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			if away.Load() {
				return nil, time.Time{}, errRefused
			}
			return w.leases.List(ctx)
		}
		p, err := changefeed.New(w.orders, struct{ feed.LeaseStore }{listing}, &tally{}, changefeed.Options{
			Instance: "a", Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() {
				if err := p.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		s := p.Status()
		if len(s) != 2 || len(s[0].Leases) != 2 || len(s[1].Leases) != 2 || !s[0].Since.Before(s[1].Since) {
			t.Errorf("status %+v, want two runs with two leases each", s)
		}
		for _, one := range s {
			if !slices.IsSortedFunc(one.Leases, func(a, b feed.LeaseStatus) int {
				return slices.Compare([]string{a.Lease.Range.Min}, []string{b.Lease.Range.Min})
			}) {
				t.Errorf("leases in no order: %+v", one.Leases)
			}
		}
		seen := s[0].View
		away.Store(true)
		time.Sleep(time.Minute)
		if s := p.Status()[0]; len(s.Errors) != 1 || !errors.Is(s.Errors[0], errRefused) ||
			s.View.After(seen.Add(20*time.Second)) {
			t.Errorf("while leases cannot be listed: %v, the view is of %v", s.Errors, s.View)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if s := p.Status()[0]; len(s.Errors) != 0 || time.Since(s.View) > 20*time.Second {
			t.Errorf("after that: %v, the view is of %v", s.Errors, s.View)
		}
		stop()
		running.Wait()
	})
}

// Metrics can be made of the hooks: each request for a lease is there once.
func TestHooksCountReadsWaitsAndWrites(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var changes, waits, renewals, checkpoints int
		var charge float64
		updates := atomic.Int64{}
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				updates.Add(1)
				time.Sleep(time.Second)
			}
			return w.leases.Update(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{
			Start: feed.FromBeginning(),
			Hooks: changefeed.Hooks{
				ReadDone: func(_ context.Context, d feed.ReadDone) {
					mu.Lock()
					defer mu.Unlock()
					changes, charge = changes+d.Changes, charge+d.Charge
				},
				WaitDone: func(_ context.Context, d feed.WaitDone) {
					mu.Lock()
					defer mu.Unlock()
					if waits++; d.Duration > 18*time.Second {
						t.Errorf("waited for %v", d.Duration)
					}
				},
				StoreDone: func(_ context.Context, d feed.StoreDone) {
					mu.Lock()
					defer mu.Unlock()
					if d.Duration != time.Second || d.Lease == "" || d.Charge == 0 {
						t.Errorf("a write: %+v", d)
					}
					if d.Renewal {
						renewals++
					} else {
						checkpoints++
					}
				},
			},
		})
		time.Sleep(5 * time.Second)
		w.put("oslo", "1", 1)
		w.put("oslo", "2", 1)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if changes != 2 || charge == 0 || waits < 10 {
			t.Errorf("%d changes read for %v request units, %d waits", changes, charge, waits)
		}
		if taken := 1; renewals < 10 || checkpoints < 2 || int64(renewals+checkpoints+taken) != updates.Load() {
			t.Errorf("%d renewals, %d other writes, want together %d", renewals, checkpoints, updates.Load()-1)
		}
	})
}

// While the handler has a batch the lease is handling, also if its worker waits for changes meanwhile. When the batch
// is done the lease waits again, also if the batch had failed before.
func TestALeaseIsHandlingAsLongAsABatchIsInTheHandler(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				answers := make(chan error)
				h := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return <-answers })
				p, err := changefeed.New(w.orders, w.leases, h, changefeed.Options{
					Instance: "a", Start: feed.FromBeginning(), Concurrency: concurrency, RetryMin: 3 * time.Second,
					Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- p.Run(ctx) }()
				time.Sleep(time.Minute)
				does := func(want feed.Activity) {
					t.Helper()
					time.Sleep(time.Second)
					if s := leaseOf(t, p); s.Activity != want {
						t.Errorf("the lease is %s since %v, want %s; %d changes in hand", s.Activity, s.Since, want,
							s.InHand)
					}
				}
				does(feed.ActivityWaiting)
				w.put("oslo", "1", 1)
				does(feed.ActivityHandling)
				time.Sleep(time.Minute) // the worker reads and waits meanwhile
				does(feed.ActivityHandling)
				answers <- errHandler
				does(feed.ActivityFailing)
				time.Sleep(5 * time.Second)
				does(feed.ActivityHandling)
				answers <- nil
				does(feed.ActivityWaiting)
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A hook can still report during a stop: its context has the values of the context of Run, and does not end with it.
func TestHooksHaveTheValuesOfTheContextOfRun(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		type traceKey struct{}
		var released atomic.Int32
		p, err := changefeed.New(w.orders, w.leases, &tally{}, changefeed.Options{
			Instance: "a", Hooks: changefeed.Hooks{Released: func(ctx context.Context, _ feed.Lease, why feed.Reason) {
				if ctx.Value(traceKey{}) != "trace" || ctx.Err() != nil {
					t.Errorf("released as %s with the context %v, %v", why, ctx, ctx.Err())
				}
				released.Add(1)
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(context.WithValue(t.Context(), traceKey{}, "trace"), time.Minute)
		defer stop()
		if err := p.Run(ctx); err != nil || released.Load() != 1 {
			t.Errorf("%v, %d leases were released, want 1", err, released.Load())
		}
	})
}

// Joined hooks are all called, in their order; what nobody wants stays unset.
func TestJoinedHooksAreAllCalled(t *testing.T) {
	var called []string
	a := changefeed.Hooks{
		Ready: func(context.Context) { called = append(called, "a ready") },
		Error: func(_ context.Context, err *feed.Error) { called = append(called, "a "+err.Error()) },
	}
	b := changefeed.Hooks{
		Error: func(_ context.Context, err *feed.Error) { called = append(called, "b "+err.Error()) },
		Released: func(_ context.Context, l feed.Lease, why feed.Reason) {
			called = append(called, "b "+l.Token+" "+string(why))
		},
	}
	h := changefeed.JoinHooks(a, changefeed.Hooks{}, b)
	if h.Round != nil || h.Acquired != nil || h.BatchDone != nil {
		t.Error("a hook that nobody wants is set")
	}
	h.Ready(t.Context())
	h.Error(t.Context(), &feed.Error{Origin: feed.OriginSource, Err: errDownstream})
	h.Released(t.Context(), feed.Lease{Token: "-FF"}, feed.ReasonLost)
	failure := "source: " + errDownstream.Error()
	if want := []string{"a ready", "a " + failure, "b " + failure, "b -FF lost"}; !slices.Equal(called, want) {
		t.Errorf("called %q, want %q", called, want)
	}
}

// No hook is forgotten when hooks are joined.
func TestEachHookIsJoined(t *testing.T) {
	calls := 0
	var all changefeed.Hooks
	fields := reflect.ValueOf(&all).Elem()
	for _, field := range fields.Fields() {
		field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value {
			calls++
			return nil
		}))
	}
	joined := reflect.ValueOf(changefeed.JoinHooks(changefeed.Hooks{}, all, all, changefeed.Hooks{}))
	for i := range joined.NumField() {
		calls = 0
		hook := joined.Field(i)
		if hook.IsNil() {
			t.Errorf("%s is missing in Hooks.And", joined.Type().Field(i).Name)
			continue
		}
		args := make([]reflect.Value, hook.Type().NumIn())
		for n := range args {
			args[n] = reflect.Zero(hook.Type().In(n))
		}
		if hook.Call(args); calls != 2 {
			t.Errorf("%s is called %d times, want twice", joined.Type().Field(i).Name, calls)
		}
	}
}

// activities are the activities that a lease has within a time, each once.
func activities(t *testing.T, p *process, d time.Duration) (seen []feed.Activity) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, s := range p.processor.Status() {
			for _, l := range s.Leases {
				if !slices.Contains(seen, l.Activity) {
					seen = append(seen, l.Activity)
				}
			}
		}
	}
	return seen
}

// A lease is failing while a batch waits that has failed, and not while a batch gathers changes, in the outage of
// another lease, or while the lease is given up.
func TestALeaseIsFailingOnlyWhileABatchWaitsThatHasFailed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{
			Start: feed.FromBeginning(), MaxWait: 20 * time.Second,
			MaxItems: 10,
		})
		time.Sleep(time.Minute)
		w.put("oslo", "item", 1)
		if seen := activities(t, p, 10*time.Second); slices.Contains(seen, feed.ActivityFailing) {
			t.Errorf("while a batch gathers changes: %v", seen)
		}
		p.stop(t)
	})
	inWorld(t, 2, func(t *testing.T, w *world) {
		var down atomic.Bool
		bad := w.partitions()[0]
		h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			if b.Range != bad.Range {
				time.Sleep(10 * time.Second)
				return nil
			}
			if down.Load() {
				return errHandler
			}
			return nil
		}}
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 2, RetryMin: time.Minute,
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: &letterBox{}},
		})
		time.Sleep(time.Minute)
		w.put(w.cityIn(w.partitions()[1]), "long", 1)
		time.Sleep(time.Second)
		down.Store(true)
		epks := 0
		for i := 0; epks < 4; i++ {
			city := fmt.Sprint("city-", i)
			if epk, err := w.orders.Locate(t.Context(), feed.Key(city)); err == nil && bad.Range.Holds(epk) {
				w.put(city, "item", i)
				epks++
			}
		}
		w.until(8*time.Second, "an outage", func() bool { return p.processor.Status()[0].Outage })
		time.Sleep(20 * time.Second)
		down.Store(false)
		time.Sleep(5 * time.Minute)
		for _, l := range p.processor.Status()[0].Leases {
			if l.Activity != feed.ActivityWaiting {
				t.Errorf("lease %s is %s, minutes after an outage", l.Lease.Token, l.Activity)
			}
		}
		p.stop(t)
	})
	inWorld(t, 1, func(t *testing.T, w *world) {
		closing := make(chan []feed.Activity, 1)
		var p *process
		ready := make(chan struct{})
		h := closer{&tally{before: func(context.Context, *feed.Batch) error { return errHandler }}, func() {
			<-ready
			closing <- activities(t, p, time.Second)
		}}
		p = w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		close(ready)
		w.put("oslo", "bad", 1)
		time.Sleep(time.Minute)
		p.stop(t)
		if seen := <-closing; !slices.Equal(seen, []feed.Activity{feed.ActivityEnding}) {
			t.Errorf("while a failing lease is given up: %v", seen)
		}
	})
}

// closer is a handler that does something when a lease is given up.
type closer struct {
	*tally
	close func()
}

func (c closer) Close(context.Context, feed.Lease, feed.Reason) error {
	c.close()
	return nil
}

// An error of the dead letters stands until storing succeeds.
func TestAnErrorOfTheDeadLettersEndsWithASuccess(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var full atomic.Bool
		full.Store(true)
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 1, DeadLetters: deadletters.Func(func(ctx context.Context, l feed.DeadLetter) error {
				if full.Load() {
					return errHandler
				}
				return box.Put(ctx, l)
			}),
		}}
		p := w.run("a", failsOn(onID("bad")), o)
		w.put("oslo", "bad", 1)
		w.many(20, 5)
		time.Sleep(time.Minute)
		errs := func() (n int) {
			for _, err := range leaseOf(t, p.processor).Errors {
				if err.Origin == feed.OriginDeadLetters {
					n++
				}
			}
			return n
		}
		if errs() != 1 {
			t.Errorf("%d errors of dead letters that take no letter, want 1", errs())
		}
		full.Store(false)
		w.until(5*time.Minute, "a letter", func() bool { return len(box.all()) == 1 })
		if errs() != 0 {
			t.Errorf("%d errors of dead letters that have taken the letter", errs())
		}
		p.stop(t)
	})
}
