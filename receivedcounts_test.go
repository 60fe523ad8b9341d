package changefeed_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// receipts is a handler that fails on some items, and counts how often it is given each item.
type receipts struct {
	bad  []string
	each time.Duration // that it takes for a change

	mu     sync.Mutex
	times  map[string]int
	inHand int
	last   time.Time // when a call has ended
}

func (r *receipts) Handle(ctx context.Context, b *feed.Batch) (err error) {
	r.mu.Lock()
	r.inHand++
	for _, id := range itemIDs(b) {
		r.times[id]++
		if slices.Contains(r.bad, id) {
			err = errHandler
		}
	}
	r.mu.Unlock()
	if !waitFor(ctx, r.each*time.Duration(len(b.Changes))) {
		err = context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inHand, r.last = r.inHand-1, time.Now()
	return err
}

// rests reports whether the first bad item was given so many times and nothing has been in hand for a while, so that
// all of it is stored.
func (r *receipts) rests(times int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times[r.bad[0]] >= times && r.inHand == 0 && time.Since(r.last) >= 2*time.Second
}

// A letter says how often the handler has had its change: not how often it has had others, with which the change was in
// a batch later or before, and not only since the last owner began.
func TestALetterCountsTheCallsThatHadItsChange(t *testing.T) {
	type options = changefeed.Options
	for _, c := range []struct {
		name          string
		first, second options
		bad           []string
		each          time.Duration
	}{
		{"then the same", options{}, options{}, []string{"item-3", "item-7"}, 0},
		{"then smaller pages", options{}, options{MaxItems: 2}, []string{"item-6"}, 0},
		{"then larger pages", options{MaxItems: 1}, options{MaxItems: 10}, []string{"item-0"}, 0},
		{
			"then larger pages with another bad change",
			options{MaxItems: 1},
			options{MaxItems: 10},
			[]string{"item-0", "item-4"},
			0,
		},
		{"keys in parallel", options{Concurrency: 4}, options{Concurrency: 4}, []string{"item-1", "item-5"}, 0},
		{"then keys in parallel", options{}, options{Concurrency: 4}, []string{"item-1", "item-5"}, 0},
		{"then one after the other", options{Concurrency: 4}, options{}, []string{"item-1", "item-5"}, 0},
		{"batches that take too long", options{}, options{}, []string{"item-7"}, time.Second},
	} {
		for _, crash := range []bool{true, false}[:detector.Rounds(2, 1)] {
			t.Run(fmt.Sprintf("%s, crash %v", c.name, crash), func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) {
					h := &receipts{bad: c.bad, each: c.each, times: map[string]int{}}
					w.many(10, 10) // each of a key of its own
					w.countsCalls(h, crash, c.first, c.second)
				})
			})
		}
	}
}

// countsCalls has two owners try the bad changes of ten, of which the second one parks them.
func (w *world) countsCalls(h *receipts, crash bool, first, second changefeed.Options) {
	box := &letterBox{}
	for _, o := range []*changefeed.Options{&first, &second} {
		o.Start, o.OnFailure.MaxAttempts, o.OnFailure.DeadLetters = feed.FromBeginning(), 8, box
		o.RetryMin, o.RetryMax, o.HandlerTimeout = 10*time.Second, 10*time.Second, 7*time.Second
	}
	p := w.run("a", h, first)
	w.until(5*time.Minute, "tried", func() bool { return h.rests(3) })
	if crash {
		p.kill(w.t)
	} else {
		p.stop(w.t)
	}
	if n := len(box.all()); n != 0 {
		w.t.Errorf("the first owner has parked %d changes: the test shows nothing", n)
	}
	before := h.soFar()
	p = w.run("b", h, second)
	time.Sleep(time.Hour)
	if n := w.pending(); n != 0 {
		w.t.Errorf("%d changes are pending", n)
	}
	p.stop(w.t)
	letters := box.all()
	for _, l := range letters {
		if got := h.times[l.Change.ID]; l.Attempts != got {
			w.t.Errorf("the letter of %s says %d attempts, the handler had it %d times, %d of them under the "+
				"first owner",
				l.Change.ID, l.Attempts, got, before[l.Change.ID])
		}
	}
	if len(letters) != len(h.bad) || len(h.times) != 10 {
		w.t.Errorf("letters %q, want those of %v; %d of 10 items were handed over", box.names(), h.bad, len(h.times))
	}
}

// soFar is how often each item was given by now.
func (r *receipts) soFar() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.times)
}

// Of a transaction one change fails under the first owner. Under the next one another change of it fails: as often as
// it may, whatever the first one has had.
func TestChangesOfATransactionKeepTheirOwnAttempts(t *testing.T) {
	for name, o := range map[string]changefeed.Options{"one at a time": {}, "two at once": {Concurrency: 2}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"), []feed.Write{
					upsert("oslo", "a", 1), upsert("oslo", "b", 2), upsert("oslo", "c", 3),
				}); err != nil {
					t.Fatal(err)
				}
				bad, calls := "b", map[string]int{}
				three := make(chan bool, 1)
				h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
					failed := map[int]error{}
					for i, c := range b.Changes {
						if calls[c.ID]++; c.ID == bad {
							failed[i] = errHandler
						}
					}
					if bad == "b" && calls["b"] == 3 {
						three <- true
					}
					if len(failed) == 0 {
						return nil
					}
					return &feed.Failure{Items: failed, Err: errHandler}
				})
				box := &letterBox{}
				o.Start, o.OnFailure.MaxAttempts, o.OnFailure.DeadLetters = feed.FromBeginning(), 5, box
				p := w.run("first", h, o)
				<-three
				p.stop(t)
				bad = "c"
				before := calls["c"]
				p = w.run("second", h, o)
				time.Sleep(5 * time.Minute)
				p.stop(t)
				all := box.all()
				if len(all) != 1 || all[0].Change.ID != "c" || calls["c"]-before != 5 || all[0].Attempts > calls["c"] {
					t.Errorf("c was called %d times and then %d times, want 5 before it is parked; letters %+v", before,
						calls["c"]-before, all)
				}
			})
		})
	}
}
