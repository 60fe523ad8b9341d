package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// The handlers in this file change their batches, exit, hang, and checkpoint when they
// like.

// A batch that is delivered again is whole, whatever the handler did to its slice.
func TestAHandlerThatFiltersInPlaceLosesNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(6)
		var done []string
		calls := 0
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			b.Changes = slices.DeleteFunc(b.Changes, func(c feed.Change) bool { return c.PartitionKey == `["city-0"]` })
			if calls++; calls == 1 {
				return errDownstream
			}
			for _, c := range b.Changes {
				done = append(done, string(c.PartitionKey))
			}
			return nil
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.stop(t)
		slices.Sort(done)
		want := []string{`["city-1"]`, `["city-2"]`, `["city-3"]`, `["city-4"]`, `["city-5"]`}
		if !slices.Equal(done, want) {
			t.Errorf("handled %q, want %q", done, want)
		}
	})
}

// Calling t.FailNow in a handler ends its goroutine without a panic and without a result.
func TestAHandlerThatExitsItsGoroutineIsRetried(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var calls atomic.Int64
		y := &tally{before: func(context.Context, *feed.Batch) error {
			if calls.Add(1) == 1 {
				runtime.Goexit()
			}
			return nil
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "1", 1)
		time.Sleep(time.Minute)
		if items, _ := y.items(); items != 1 || len(p.errs.all()) != 1 {
			t.Errorf("%d items after a minute; reported %v", items, p.errs.all())
		}
		if took := p.took(t); took > 5*time.Second {
			t.Errorf("stopped after %v", took)
		}
	})
}

// hangingClose is a handler whose Close hangs until it is released.
type hangingClose struct {
	tally
	release chan struct{}
	closing atomic.Int64
	overlap atomic.Bool // opened while a Close was at work
}

func (h *hangingClose) Open(context.Context, feed.Lease) error {
	if h.closing.Load() > 0 {
		h.overlap.Store(true)
	}
	return nil
}

func (h *hangingClose) Close(context.Context, feed.Lease, feed.Reason) error {
	h.closing.Add(1)
	defer h.closing.Add(-1)
	<-h.release
	return nil
}

// A handler that is still closing still works on its lease, so nobody else begins before
// the lease has expired.
func TestACloseThatHangsKeepsItsLeaseUntilItExpires(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := &hangingClose{release: make(chan struct{})}
		a := w.run("a", h, changefeed.Options{})
		time.Sleep(5 * time.Second)
		b := w.run("b", h, changefeed.Options{})
		time.Sleep(2 * time.Second)
		a.stop(t)
		if h.closing.Load() != 1 || a.errs.find(feed.ErrHandlerStuck) == nil {
			t.Errorf("%d closing; reported %v", h.closing.Load(), a.errs.all())
		}
		written := w.records(feed.KindLease)[0].Updated
		w.until(3*time.Minute, "with b for the lease", func() bool { return w.owners()["b"] == 1 })
		if since := time.Since(written); since < time.Minute {
			t.Errorf("b took the lease %v after a had last written it, while a's Close was at work", since)
		}
		w.until(time.Minute, "opened by b", h.overlap.Load)
		close(h.release)
		b.stop(t)
		synctest.Wait()
	})
}

// With CheckpointEvery, what is done is stored in time even if nothing follows it.
func TestCheckpointEveryHoldsWhenTheFeedFallsSilent(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning(), CheckpointEvery: 2 * time.Second})
		time.Sleep(18 * time.Second)
		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		w.put("oslo", "2", 1)
		time.Sleep(500 * time.Millisecond)
		if n := w.pending(); n != 1 {
			t.Errorf("%d pending, want the second change alone, for which no checkpoint is due yet", n)
		}
		time.Sleep(5 * time.Second)
		if n := w.pending(); n != 0 {
			t.Errorf("%d changes done more than 5 s ago are not stored, with CheckpointEvery of 2 s", n)
		}
		p.stop(t)
	})
}

// cityIn is a city whose key lies in a partition.
func (w *world) cityIn(p feed.Partition) (city string) {
	w.t.Helper()
	from := feed.Position{Start: feed.FromBeginning()}
	for page, err := range changefeed.Pull(w.t.Context(), w.orders, p.Range, from, changefeed.PullOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		city = strings.Trim(string(page.Changes[0].PartitionKey), `["]`)
	}
	return city
}

// A quiet range moves on with its container, but not past a batch that waits for its
// manual checkpoint.
func TestIdleProgressDoesNotOvertakeAManualCheckpoint(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(10)
		parts := w.partitions()
		quiet, busy := w.cityIn(parts[0]), w.cityIn(parts[1])
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if b.Range == parts[0].Range {
				return nil // without a checkpoint
			}
			return b.Checkpoint(ctx)
		})
		p := w.run("a", h, changefeed.Options{Manual: true})
		time.Sleep(time.Minute)
		w.put(quiet, "waits", 1)
		for n := range 12 {
			time.Sleep(10 * time.Second)
			w.put(busy, "item", n)
		}
		time.Sleep(time.Second)
		if n := w.pending(); n != 1 {
			t.Errorf("%d pending, want the one without a checkpoint", n)
		}
		p.stop(t)
		y := &tally{}
		p = w.run("b", y, changefeed.Options{})
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 1 || again != 0 {
			t.Errorf("%d items came again, want the one without a checkpoint", items+again)
		}
		p.stop(t)
	})
}

// ledger is what has been handled for good, by all instances together.
type ledger struct {
	mu      sync.Mutex
	newest  map[string]int64 // LSN by key
	workers sync.WaitGroup
	over    chan struct{} // closed at the end of the test
}

func (l *ledger) enter(b *feed.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range b.Changes {
		l.newest[string(c.PartitionKey)] = max(l.newest[string(c.PartitionKey)], c.LSN)
	}
}

// late is a handler that only queues its batches: it does the work, and the checkpoint,
// in another goroutine for each lease.
type late struct {
	t      *testing.T
	ledger *ledger
	dead   atomic.Bool // its process has died: what is queued is never done
	mu     sync.Mutex
	queues map[string]chan *feed.Batch
	p      *process
}

func (h *late) Handle(_ context.Context, b *feed.Batch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[b.LeaseToken]
	if q == nil {
		q = make(chan *feed.Batch, 1000)
		h.queues[b.LeaseToken] = q
		h.ledger.workers.Go(func() { h.work(q) })
	}
	q <- b
	return nil
}

func (h *late) work(q <-chan *feed.Batch) {
	for {
		select {
		case <-h.ledger.over:
			return
		case b := <-q:
			time.Sleep(4 * time.Second) // slower than they come: there is a queue when the instance ends
			if h.dead.Load() {
				return
			}
			h.ledger.enter(b)
			_ = b.Checkpoint(h.t.Context()) // the lease may be lost by now
		}
	}
}

// Manual checkpoints may be asked for long after Handle has returned, while leases split
// and move and their owners die.
func TestManualCheckpointsFromAnotherGoroutineLoseNothing(t *testing.T) {
	if detector.On {
		t.Skip("the detector's own runtime crashes in it now and then (SIGSEGV in its StackDepot, no frame of Go)")
	}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				rng := rand.New(rand.NewPCG(seed, 7))
				done := &ledger{newest: map[string]int64{}, over: make(chan struct{})}
				start := func(name string) *late {
					h := &late{t: t, ledger: done, queues: map[string]chan *feed.Batch{}}
					h.p = w.run(name, h, changefeed.Options{
						Start: feed.FromBeginning(), Manual: true, MaxItems: 2,
						Drain: time.Second,
					})
					return h
				}
				hosts := []*late{start("host")}
				written := map[string]int64{}
				for n := range 200 {
					city := fmt.Sprint("city-", rng.IntN(30))
					written[string(feed.Key(city))] = w.put(city, "item", n)
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
					switch i := rng.IntN(len(hosts)); rng.IntN(20) {
					case 0:
						hosts = append(hosts, start(fmt.Sprint("host-", n)))
					case 1:
						if len(hosts) > 1 {
							hosts[i].end(rng.IntN(2) == 0)
							hosts = slices.Delete(hosts, i, i+1)
						}
					case 2:
						if n := len(w.partitions()); n < 8 {
							w.split(rng.IntN(n))
						}
					}
				}
				time.Sleep(10 * time.Minute)
				done.mu.Lock()
				for key, lsn := range written {
					if done.newest[key] != lsn {
						t.Errorf("%s: handled up to %d, want %d", key, done.newest[key], lsn)
					}
				}
				done.mu.Unlock()
				if n := w.pending(); n != 0 {
					t.Errorf("%d pending", n)
				}
				for _, h := range hosts {
					h.p.stop(t)
				}
				close(done.over)
				done.workers.Wait()
			})
		})
	}
}

// end ends the instance, gracefully or not; what it has queued is never done.
func (h *late) end(crash bool) {
	h.dead.Store(true)
	if crash {
		h.p.kill(h.t)
	} else {
		h.p.stop(h.t)
	}
}

// A Failure that does not fit its batch fails the whole batch, and the report says what is wrong with it, beside the
// cause.
func TestAFailureThatDoesNotFitItsBatchIsReported(t *testing.T) {
	for want, failure := range map[string]*feed.Failure{
		"cause (after 9 changes) (the whole batch has failed: Failure.Done is 9, want 0 to 0)": {
			Done: 9,
			Err:  errors.New("cause"),
		},
		"cause (1 change failed) (the whole batch has failed: Failure.Items names change 7, want 0 to 0)": {Items: map[int]error{7: errors.New("cause")}},
	} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			h := &tally{before: func(context.Context, *feed.Batch) error { return failure }}
			p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
			w.put("oslo", "only", 1)
			time.Sleep(time.Minute)
			p.stop(t)
			got := p.errs.find(failure)
			if got == nil || !strings.HasSuffix(got.Error(), `id "only" of partition ["oslo"]: `+want) {
				t.Errorf("reported is %v, want %q", got, want)
			}
		})
	}
}
