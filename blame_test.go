package changefeed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A change is blamed for the end of a process, and has attempts, because of its own calls alone: not because of those
// of a change that was handled before, or of one that another processor has handled.

// witness counts the calls of the handler with each item, over all lives of a process.
type witness struct {
	tally
	mu       sync.Mutex
	calls    map[string]int
	attempts map[string][]int                                    // Batch.Attempt of each call
	call     func(ctx context.Context, id string, nth int) error // what a call with an item does
}

// Handle counts, and then does what the calls with the items do.
func (h *witness) Handle(ctx context.Context, b *feed.Batch) error {
	for _, c := range b.Changes {
		if err := h.call(ctx, c.ID, h.count(c.ID, b.Attempt)); err != nil {
			return err
		}
	}
	return h.record(b)
}

func (h *witness) count(id string, attempt int) (nth int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls == nil {
		h.calls, h.attempts = map[string]int{}, map[string][]int{}
	}
	h.calls[id]++
	h.attempts[id] = append(h.attempts[id], attempt)
	return h.calls[id]
}

// blameless checks that no letter has more attempts than its change has had calls.
func (h *witness) blameless(t *testing.T, box *letterBox) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range box.all() {
		if n := h.calls[l.Change.ID]; l.Attempts > n {
			t.Errorf("%s is parked as %s with %d attempts, and the handler was called %d times with it", l.Change.ID,
				l.Disposition, l.Attempts, n)
		}
	}
}

// mortal is a lease store that can be cut off, and takes a while for a write: before it, and before its answer.
func (w *world) mortal(before, after *atomic.Int64) (store *hookedStore, cut func()) {
	var dead atomic.Bool
	wait := func(ctx context.Context, d *atomic.Int64) error {
		select {
		case <-time.After(time.Duration(d.Load())):
		case <-ctx.Done():
		}
		if dead.Load() {
			return errCutOff
		}
		return context.Cause(ctx)
	}
	return &hookedStore{
		Leases: w.leases,
		update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := wait(ctx, before); err != nil {
				return l, err
			}
			l, err := w.leases.Update(ctx, l)
			if lost := wait(ctx, after); lost != nil {
				return l, lost
			}
			return l, err
		},
		delete: func(ctx context.Context, l feed.Record) error {
			if dead.Load() {
				return errCutOff
			}
			return w.leases.Delete(ctx, l)
		},
	}, func() { dead.Store(true) }
}

// dies says that a change is in the handler, and stays there until the process has ended.
func dies(ctx context.Context, in chan<- string, id string) error {
	select {
	case in <- id:
	default:
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// runs are the ways in which a change can come to the handler alone.
var runs = map[string]changefeed.Options{
	"one after the other": {MaxBytes: 1},
	"one by one":          {MaxItems: 1},
	"in parallel":         {Concurrency: 4},
}

// A change that had failed before is handled by the next owner. A moment later a healthy one is in the handler, and the
// process is killed for another reason.
func TestAHealthyChangeIsNotBlamedForTheCrashOfAnother(t *testing.T) {
	for name, o := range runs {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var life atomic.Int64
				failed, in := make(chan bool, 1), make(chan string, 1)
				h := &witness{call: func(ctx context.Context, id string, nth int) error {
					switch {
					case id == "weak" && nth == 4:
						failed <- true
						return errHandler
					case id == "weak" && nth < 4:
						return errHandler
					case id == "healthy" && life.Load() == 2:
						return dies(ctx, in, id)
					}
					return nil
				}}
				box := &letterBox{}
				o.Start, o.OnFailure.MaxAttempts, o.OnFailure.DeadLetters, o.Drain = feed.FromBeginning(), 5, box,
					time.Second
				o.RetryMin, o.RetryMax = 5*time.Second, 5*time.Second
				w.put("oslo", "weak", 1)
				life.Store(1)
				p := w.run("life-1", h, o)
				within(t, failed)
				time.Sleep(time.Second) // its fourth failure is in the lease
				p.kill(t)
				w.put("rome", "healthy", 1)
				life.Store(2)
				p = w.run("life-2", h, o)
				within(t, in)
				p.kill(t)
				life.Store(3)
				p = w.run("life-3", h, o)
				time.Sleep(5 * time.Minute)
				p.stop(t)
				h.blameless(t, box)
				if items, _ := h.items(); items != 2 || box.names() != "" || w.pending() != 0 {
					t.Errorf("%d of 2 items handled, letters %q, %d pending", items, box.names(), w.pending())
				}
			})
		})
	}
}

// within waits for something that must happen.
func within[T any](t *testing.T, c <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(10 * time.Minute):
		t.Error("what the test waits for has not happened within 10 minutes")
	}
	return got
}

// The process is killed after a lease was written for a change, and before the handler is called with that.
func TestAChangeThatWasNotCalledIsNotBlamedForACrash(t *testing.T) {
	for name, o := range runs {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var late, none atomic.Int64
				var life atomic.Int64
				failed, done, in := make(chan bool, 1), make(chan bool, 1), make(chan string, 1)
				h := &witness{call: func(ctx context.Context, id string, nth int) error {
					switch {
					case id == "weak" && nth == 4:
						failed <- true
						return errHandler
					case id == "weak" && nth < 4:
						return errHandler
					case id == "weak" && life.Load() == 2:
						late.Store(int64(time.Second)) // from now on
						done <- true
					case id == "healthy" && life.Load() == 2:
						return dies(ctx, in, id)
					}
					return nil
				}}
				box := &letterBox{}
				o.Start, o.OnFailure.MaxAttempts, o.OnFailure.DeadLetters, o.Drain = feed.FromBeginning(), 5, box,
					time.Second
				o.RetryMin, o.RetryMax = 5*time.Second, 5*time.Second
				w.put("oslo", "weak", 1)
				p := w.run("life-1", h, o)
				within(t, failed)
				time.Sleep(time.Second)
				p.kill(t)
				w.put("rome", "healthy", 1)
				life.Store(2)
				store, cut := w.mortal(&none, &late)
				p = w.runWith(w.orders, store, "life-2", h, o)
				within(t, done)
				time.Sleep(500 * time.Millisecond)
				cut()
				p.stop(t)
				life.Store(3)
				p = w.run("life-3", h, o)
				time.Sleep(5 * time.Minute)
				p.stop(t)
				h.blameless(t, box)
				if items, _ := h.items(); items != 2 || box.names() != "" || w.pending() != 0 {
					t.Errorf("%d of 2 items handled, letters %q, %d pending", items, box.names(), w.pending())
				}
			})
		})
	}
}

// A change succeeds at its last attempt, and the one after it ends the process before the lease says that the first is
// done. What ends the process goes on to do so, or not.
func TestAHandledChangeIsNotBlamedForTheCrashOfTheNext(t *testing.T) {
	for _, c := range []struct {
		name   string
		slow   time.Duration // each write of a lease
		items  int           // CheckpointItems
		kills  int           // of the process by the second change
		parked string
	}{
		{"slow store", 50 * time.Millisecond, 0, 1, ""},
		{"rare checkpoints", 0, 100, 1, ""},
		{"slow store, fatal change", 50 * time.Millisecond, 0, 100, "fatal crashed"},
		{"rare checkpoints, fatal change", 0, 100, 100, "fatal crashed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				in := make(chan string, 1)
				h := &witness{call: func(ctx context.Context, id string, nth int) error {
					switch {
					case id == "weak" && nth < 3:
						return errHandler
					case id == "fatal" && nth <= c.kills:
						return dies(ctx, in, id)
					}
					return nil
				}}
				box := &letterBox{}
				o := changefeed.Options{
					Start: feed.FromBeginning(), MaxItems: 1, OnFailure: changefeed.FailurePolicy{
						MaxAttempts: 3,
						DeadLetters: box,
					}, CheckpointItems: c.items, Drain: time.Second,
				}
				w.put("oslo", "weak", 1)
				w.put("rome", "fatal", 1)
				w.put("bergen", "last", 1)
				w.live(h, o, c.slow, in)
				h.blameless(t, box)
				if items, _ := h.items(); items != 3-len(box.all()) || box.names() != c.parked || w.pending() != 0 {
					t.Errorf("%d items handled, letters %q, want %q; %d pending", items, box.names(), c.parked,
						w.pending())
				}
			})
		})
	}
}

// A change succeeds, at its last attempt or at its first under a short MaxAge, and the process is killed seconds later,
// when nothing is in the handler. Checkpoints are rare, and still the lease does not name the change any more.
func TestAHandledChangeIsNotBlamedForAKillAfterIt(t *testing.T) {
	for name, o := range map[string]changefeed.Options{
		"every 30 s": {
			OnFailure:       changefeed.FailurePolicy{MaxAttempts: 3},
			CheckpointEvery: 30 * time.Second,
		},
		"every 100 items": {OnFailure: changefeed.FailurePolicy{MaxAttempts: 3}, CheckpointItems: 100},
		"every 30 s, two at once": {
			OnFailure:       changefeed.FailurePolicy{MaxAttempts: 3},
			CheckpointEvery: 30 * time.Second, Concurrency: 2,
		},
		"every 100 items, by an age": {
			OnFailure:       changefeed.FailurePolicy{MaxAge: 10 * time.Second},
			CheckpointItems: 100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				h := &witness{call: func(_ context.Context, _ string, nth int) error {
					if nth < 3 {
						return errHandler
					}
					return nil
				}}
				box := &letterBox{}
				o.Start, o.OnFailure.DeadLetters = feed.FromBeginning(), box
				w.put("oslo", "weak", 1)
				p := w.run("a", h, o)
				time.Sleep(5 * time.Second)
				p.kill(t)
				p = w.run("b", h, o)
				time.Sleep(5 * time.Minute)
				p.stop(t)
				if items, _ := h.items(); items != 1 || box.names() != "" || w.pending() != 0 {
					t.Errorf("%d of 1 items handled, letters %q, %d pending", items, box.names(), w.pending())
				}
			})
		})
	}
}

// Two processes are killed from outside, the second one with a healthy change in its handler. The lease is free after
// more than MaxAge, but the change has failed nowhere else: it is called once more.
func TestOneKillInTheHandlerParksNothingThoughMaxAgeIsShort(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		in := make(chan string, 1)
		h := &witness{call: func(ctx context.Context, id string, nth int) error {
			if nth < 3 {
				return dies(ctx, in, id)
			}
			return nil
		}}
		box := &letterBox{}
		o := changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAge: 10 * time.Second, DeadLetters: box}, Drain: time.Second,
		}
		w.put("oslo", "healthy", 1)
		w.live(h, o, 0, in)
		if items, _ := h.items(); items != 1 || box.names() != "" || w.pending() != 0 {
			t.Errorf("%d of 1 items handled, letters %q, %d pending", items, box.names(), w.pending())
		}
	})
}

// live runs one process after the other, each until a change is in the handler that ends it, and the last one until
// nothing ends it any more.
func (w *world) live(h feed.Handler, o changefeed.Options, slow time.Duration, in <-chan string) {
	w.t.Helper()
	var before, after atomic.Int64
	before.Store(int64(slow))
	const most = 12
	for life := range most {
		store, cut := w.mortal(&before, &after)
		p := w.runWith(w.orders, store, fmt.Sprint("life-", life), h, o)
		select {
		case <-in:
			cut()
			p.stop(w.t)
		case <-time.After(5 * time.Minute):
			p.stop(w.t)
			return
		}
	}
	w.t.Errorf("%d processes have ended", most)
}

// movedByOther has a processor of another kind take the lease, handle all up to an LSN and free it. It keeps the
// properties that it does not know.
func (w *world) movedByOther(lsn int64) {
	w.t.Helper()
	l := w.records(feed.KindLease)[0]
	for _, change := range []map[string]string{
		{"Owner": `"net-1"`}, {"ContinuationToken": fmt.Sprintf(`"\"%d\""`, lsn)}, {"Owner": "null"},
	} {
		item, err := w.container.Item(w.t.Context(), feed.Key(l.ID), l.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		doc := map[string]json.RawMessage{}
		if err := json.Unmarshal(item.Body, &doc); err != nil {
			w.t.Fatal(err)
		}
		for name, value := range change {
			doc[name] = json.RawMessage(value)
		}
		body, err := json.Marshal(doc)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.container.Commit(w.t.Context(), feed.Key(l.ID),
			[]feed.Write{{Op: feed.WriteUpsert, ID: l.ID, Body: body}}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// failsAndIsMoved has a change fail four times of five, and handled then by a processor of another kind.
func (w *world) failsAndIsMoved(h feed.Handler, o changefeed.Options, failed <-chan bool) {
	w.t.Helper()
	lsn := w.put("oslo", "weak", 1)
	p := w.run("life-1", h, o)
	within(w.t, failed)
	time.Sleep(time.Second)
	p.stop(w.t)
	if n := w.records(feed.KindLease)[0].Attempts; n != 4 {
		w.t.Errorf("the lease has %d attempts before it is moved, want 4: the test shows nothing", n)
	}
	w.movedByOther(lsn)
	if n := w.records(feed.KindLease)[0].Attempts; n != 0 {
		w.t.Errorf("another processor has moved the position, and the lease says that the batch after it has "+
			"failed %d times", n)
	}
}

// The attempts in a lease are those of the batch after its position, wherever another processor has moved that.
func TestAttemptsDoNotOutliveThePositionThatTheyBelongTo(t *testing.T) {
	for name, o := range runs {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				failed := make(chan bool, 1)
				h := &witness{call: func(_ context.Context, id string, nth int) error {
					if id == "weak" && nth == 4 {
						failed <- true
					}
					if nth < 5 {
						return errHandler
					}
					return nil
				}}
				box := &letterBox{}
				o.Start, o.OnFailure.MaxAttempts, o.OnFailure.DeadLetters, o.RetryMin,
					o.RetryMax = feed.FromBeginning(), 5, box, 5*time.Second, 5*time.Second
				w.failsAndIsMoved(h, o, failed)
				w.put("oslo", "next", 2)
				p := w.run("life-2", h, o)
				time.Sleep(5 * time.Minute)
				p.stop(t)
				h.blameless(t, box)
				if got := h.attempts["next"]; !slices.Equal(got, []int{1, 2, 3, 4, 5}) || box.names() != "" ||
					w.pending() != 0 {
					t.Errorf("attempts %v of the new change, letters %q, %d pending", got, box.names(), w.pending())
				}
			})
		})
	}
}

// A new change after a position that another processor has moved is in the handler when the process is killed, once.
func TestAKillAfterAForeignMoveParksNothing(t *testing.T) {
	for name, o := range runs {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				failed, in := make(chan bool, 1), make(chan string, 1)
				h := &witness{call: func(ctx context.Context, id string, nth int) error {
					switch {
					case id == "weak" && nth == 4:
						failed <- true
						return errHandler
					case id == "weak":
						return errHandler
					case nth == 1:
						return dies(ctx, in, id)
					}
					return nil
				}}
				box := &letterBox{}
				o.Start, o.OnFailure.MaxAttempts, o.OnFailure.DeadLetters, o.RetryMin,
					o.RetryMax = feed.FromBeginning(), 5, box, 5*time.Second, 5*time.Second
				o.Drain = time.Second
				w.failsAndIsMoved(h, o, failed)
				w.put("oslo", "next", 2)
				p := w.run("life-2", h, o)
				within(t, in)
				p.kill(t)
				p = w.run("life-3", h, o)
				time.Sleep(5 * time.Minute)
				p.stop(t)
				h.blameless(t, box)
				if items, _ := h.items(); items != 1 || box.names() != "" || w.pending() != 0 {
					t.Errorf("%d new changes handled, letters %q, %d pending", items, box.names(), w.pending())
				}
			})
		})
	}
}
