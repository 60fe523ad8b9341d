package changefeed_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/variants"
)

// A batch that stays in the handler is reported once, long before the timeout, and once more when it has left.
func TestASlowBatchIsReportedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		usual, slow, timeout time.Duration
		after                time.Duration // when the report comes; 0 if none comes
	}{
		"a quick handler hangs":              {10 * time.Millisecond, 2 * time.Minute, 0, 30 * time.Second},
		"a quick handler takes its time":     {10 * time.Millisecond, 29 * time.Second, 0, 0},
		"a slow handler is as slow as usual": {10 * time.Second, 95 * time.Second, 0, 0},
		"a slow handler hangs":               {10 * time.Second, 2 * time.Minute, 0, 100 * time.Second},
		"the timeout is short":               {time.Millisecond, 15 * time.Second, 20 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var mu sync.Mutex
				var told []feed.SlowBatch
				var at []time.Time
				takes := c.usual
				h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
					mu.Lock()
					d := takes
					mu.Unlock()
					time.Sleep(d)
					return nil
				})
				o := changefeed.Options{HandlerTimeout: c.timeout}
				o.Hooks.Slow = func(_ context.Context, b feed.SlowBatch) {
					mu.Lock()
					defer mu.Unlock()
					told, at = append(told, b), append(at, time.Now())
				}
				p := w.run("a", h, o)
				time.Sleep(time.Minute)
				for i := range 5 {
					w.put("oslo", "item", i)
					time.Sleep(time.Minute)
				}
				mu.Lock()
				takes = c.slow
				mu.Unlock()
				w.put("oslo", "slow", 1)
				w.put("oslo", "slow", 2)
				shown := func() (in int) {
					for _, host := range w.records(feed.KindHost) {
						in += len(variants.ReadSlow(host))
					}
					return in + len(p.processor.Status()[0].Slow)
				}
				if time.Sleep(c.slow - time.Millisecond); (shown() == 2) != (c.after != 0) {
					t.Errorf("before the end %d slow batches are shown in the record and in the status", shown())
				}
				time.Sleep(10 * time.Minute)
				if n := shown(); n != 0 {
					t.Errorf("after the end %d slow batches are shown", n)
				}
				p.stop(t)
				if c.after == 0 {
					if len(told) > 0 {
						t.Errorf("told %+v", told)
					}
					return
				}
				if len(told) < 2 {
					t.Fatalf("told %+v, want the beginning and the end", told)
				}
				began, ended := told[0], told[1]
				if waited := at[0].Sub(began.Since); waited != c.after || began.Lease != "-FF" || began.Changes < 1 ||
					began.Usual != c.usual || !began.Ended.IsZero() {
					t.Errorf("told %+v after %v, want after %v, usual %v", began, waited, c.after, c.usual)
				}
				if ended.Ended.Sub(ended.Since) != c.slow || !ended.Since.Equal(began.Since) {
					t.Errorf("at the end: told %+v", ended)
				}
			})
		})
	}
}

// Batches of different keys that begin at the same time are different batches.
func TestEachOfSeveralSlowBatchesIsShown(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const keys = 3
		for key := range keys {
			w.put(fmt.Sprint("city-", key), "item", 1)
		}
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			time.Sleep(2 * time.Minute)
			return nil
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), Concurrency: keys, MaxItems: 1})
		time.Sleep(time.Minute)
		shown := 0
		for _, host := range w.records(feed.KindHost) {
			shown += len(variants.ReadSlow(host))
		}
		if n := len(p.processor.Status()[0].Slow); n != keys || shown != keys {
			t.Errorf("%d slow batches in the status and %d in the presence, want %d", n, shown, keys)
		}
		time.Sleep(2 * time.Minute)
		if all := p.processor.Status()[0].Slow; len(all) > 0 {
			t.Errorf("after the end: %+v", all)
		}
		p.stop(t)
	})
}

// slowBatches collects what Hooks.Slow is told, and when.
type slowBatches struct {
	mu   sync.Mutex
	told []feed.SlowBatch
	at   []time.Time
}

func (s *slowBatches) add(_ context.Context, b feed.SlowBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told, s.at = append(s.told, b), append(s.at, time.Now())
}

// A handler whose calls have failed late is not a slow handler: what is usual is learned from successes.
func TestFailedCallsAreNotUsual(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const usual = 10 * time.Millisecond
		calls := 0
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			switch calls++; {
			case calls <= 3:
				time.Sleep(usual)
				return nil
			case calls <= 8:
				time.Sleep(20 * time.Second)
				return errDownstream
			}
			time.Sleep(2 * time.Minute)
			return nil
		})
		var slow slowBatches
		p := w.run("a", h, changefeed.Options{Hooks: changefeed.Hooks{Slow: slow.add}})
		time.Sleep(time.Minute)
		for i := range 4 {
			w.put("oslo", "item", i)
			time.Sleep(time.Minute)
		}
		time.Sleep(10 * time.Minute)
		p.stop(t)
		if calls != 9 || len(slow.told) != 2 {
			t.Fatalf("%d calls, told %+v, want the beginning and the end of one slow batch", calls, slow.told)
		}
		if began := slow.told[0]; slow.at[0].Sub(began.Since) != 30*time.Second || began.Usual != usual {
			t.Errorf("told %+v after %v, want after 30s, usual %v", began, slow.at[0].Sub(began.Since), usual)
		}
	})
}

// A batch whose handler does not heed its deadline has not left the handler when nobody waits for it any longer.
func TestAStuckBatchHasNotLeftItsHandler(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		release := make(chan struct{})
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			<-release
			return nil
		})
		var slow slowBatches
		p := w.run("a", h, changefeed.Options{
			HandlerTimeout: time.Minute, Drain: 5 * time.Second, Hooks: changefeed.Hooks{Slow: slow.add},
		})
		time.Sleep(time.Minute)
		w.put("oslo", "item", 1)
		time.Sleep(2 * time.Minute)
		if p.errs.find(feed.ErrHandlerStuck) == nil {
			t.Error("the handler is not stuck")
		}
		slow.mu.Lock()
		if len(slow.told) != 1 || !slow.told[0].Ended.IsZero() {
			t.Errorf("told %+v, want one beginning", slow.told)
		}
		slow.mu.Unlock()
		close(release)
		p.stop(t)
	})
}

// An instance says from whom it has taken leases, if the owner has shown no life, and not if leases are given.
func TestATakeOverIsReported(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var told []feed.TakeOver
		o := changefeed.Options{}
		o.Hooks.TakenOver = func(_ context.Context, t feed.TakeOver) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, t)
		}
		a := w.run("a", &tally{}, o)
		b := w.run("b", &tally{}, o)
		w.balanced(2)
		c := w.run("c", &tally{}, o)
		w.balanced(3)
		c.stop(t)
		w.balanced(2)
		mu.Lock()
		if len(told) > 0 {
			t.Errorf("given leases count as taken over: %+v", told)
		}
		mu.Unlock()
		b.kill(t)
		time.Sleep(3 * time.Minute)
		a.stop(t)
		taken := map[string]bool{} // leases that expire at different moments are reported apart
		for _, by := range told {
			if by.Instance != "b" || by.Silent < time.Minute || by.Silent > 2*time.Minute {
				t.Errorf("told %+v, want a take-over from b", by)
			}
			for _, lease := range by.Leases {
				taken[lease] = true
			}
		}
		if len(taken) != 2 || len(told) > 2 {
			t.Errorf("told %+v, want 2 leases of b, each once", told)
		}
	})
}
