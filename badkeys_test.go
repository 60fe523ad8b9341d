package changefeed_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// Three keys have a bad change each, and then far more changes than fit into the buffer, before healthy keys have any.

const (
	badKeys        = 3
	laterChanges   = 500 // of each of them
	healthyKeys    = 20
	healthyChanges = 10 // of each of them
	buffered       = 50
)

// badWorld is a world whose handler fails on the bad changes until it is mended.
type badWorld struct {
	*world
	*tally
	box    *letterBox
	mended atomic.Bool

	mu    sync.Mutex
	tries map[feed.PartitionKey]int // of the bad changes
}

func badKey(n int) string { return fmt.Sprint("bad-", n) }

// inBadWorld runs a test where all of that is written.
func inBadWorld(t *testing.T, test func(t *testing.T, w *badWorld)) {
	t.Helper()
	inWorld(t, 1, func(t *testing.T, in *world) {
		w := &badWorld{world: in, box: &letterBox{}, tries: map[feed.PartitionKey]int{}}
		w.tally = &tally{before: w.fails}
		for n := range badKeys {
			w.put(badKey(n), "bad", 0)
		}
		for i := range laterChanges {
			for n := range badKeys {
				w.put(badKey(n), fmt.Sprint("later-", i), i)
			}
		}
		w.healthy("healthy")
		test(t, w)
	})
}

// healthy writes changes of healthy keys.
func (w *badWorld) healthy(id string) {
	w.world.t.Helper()
	for i := range healthyChanges {
		for n := range healthyKeys {
			w.put(fmt.Sprint("good-", n), fmt.Sprint(id, i), i)
		}
	}
}

func (w *badWorld) fails(_ context.Context, b *feed.Batch) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range b.Changes {
		if c.ID == "bad" && !w.mended.Load() {
			w.tries[c.PartitionKey]++
			err = errHandler
		}
	}
	return err
}

// isHandled reports whether all changes of the healthy keys are handled whose item has a name.
func (w *badWorld) isHandled(id string) bool {
	w.tally.mu.Lock()
	defer w.tally.mu.Unlock()
	for i := range healthyChanges {
		for n := range healthyKeys {
			if len(w.seen[string(feed.Key(fmt.Sprint("good-", n)))+fmt.Sprint(id, i)]) == 0 {
				return false
			}
		}
	}
	return true
}

// triesSoFar is how often the bad change was tried that was tried least.
func (w *badWorld) triesSoFar() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	least := w.tries[feed.Key(badKey(0))]
	for n := range badKeys {
		least = min(least, w.tries[feed.Key(badKey(n))])
	}
	return least
}

// isBounded fails the test if an instance has read more than fits into its buffer, and a page.
func (w *badWorld) isBounded(p *process) {
	w.world.t.Helper()
	for _, s := range p.processor.Status() {
		for _, l := range s.Leases {
			if l.Buffered > 2*buffered {
				w.world.t.Errorf("%d changes are in the buffer, which is for %d", l.Buffered, buffered)
			}
		}
	}
}

// options are those of an instance that reads pages as large as its buffer.
func (w *badWorld) options(concurrency int) changefeed.Options {
	return changefeed.Options{
		Start: feed.FromBeginning(), Concurrency: concurrency, BufferItems: buffered,
		MaxItems: buffered,
	}
}

// areDone checks that so many changes were handled, each key in its order, and none twice unless an instance was
// killed.
func (w *badWorld) areDone(want int, killed bool) {
	w.world.t.Helper()
	w.tally.mu.Lock()
	handled := slices.Clone(w.changes)
	w.tally.mu.Unlock()
	first := map[feed.PartitionKey][]int64{}
	for _, c := range handled {
		if lsns := first[c.PartitionKey]; !slices.Contains(lsns, c.LSN) {
			first[c.PartitionKey] = append(lsns, c.LSN)
		}
	}
	for key, lsns := range first {
		if !slices.IsSorted(lsns) {
			w.world.t.Errorf("changes of %s were handled in the order %v", key, lsns)
		}
	}
	if items, again := w.tally.items(); items != want || again != 0 && !killed {
		w.world.t.Errorf("%d items of %d are handled, %d again", items, want, again)
	}
}

// lettersOfBad checks that exactly the bad changes are parked.
func (w *badWorld) lettersOfBad() {
	w.world.t.Helper()
	if got := w.box.names(); got != "bad failed, bad failed, bad failed" {
		w.world.t.Errorf("letters %q, want those of the three bad changes", got)
	}
}

func forConcurrencies(t *testing.T, test func(t *testing.T, concurrency int)) {
	for _, concurrency := range []int{4, 1}[:detector.Rounds(2, 1)] {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) { test(t, concurrency) })
	}
}

// With a limit of attempts the bad changes are parked in the end: that healthy keys are handled shows that it is no
// outage.
func TestHealthyKeysPassBadOnesThatFillTheBuffer(t *testing.T) {
	forConcurrencies(t, func(t *testing.T, concurrency int) {
		inBadWorld(t, func(t *testing.T, w *badWorld) {
			o := w.options(concurrency)
			o.OnFailure.MaxAttempts, o.OnFailure.DeadLetters = 5, w.box
			p := w.run("a", w, o)
			w.until(time.Hour, "handled the healthy keys", func() bool { return w.isHandled("healthy") })
			w.isBounded(p)
			w.until(time.Hour, "parked the bad changes", func() bool { return len(w.box.all()) == badKeys })
			time.Sleep(10 * time.Minute)
			if n := w.pending(); n != 0 {
				t.Errorf("%d changes are pending", n)
			}
			p.stop(t)
			w.lettersOfBad()
			w.areDone(badKeys*laterChanges+healthyKeys*healthyChanges, false)
		})
	})
}

// A limit of age wins at last, whatever else there is to try.
func TestBadChangesThatFillTheBufferAreParkedWhenTheirAgeIsOver(t *testing.T) {
	const age = time.Hour
	forConcurrencies(t, func(t *testing.T, concurrency int) {
		inBadWorld(t, func(t *testing.T, w *badWorld) {
			o := w.options(concurrency)
			o.OnFailure.MaxAge, o.OnFailure.DeadLetters = age, w.box
			p := w.run("a", w, o)
			time.Sleep(age - time.Minute)
			w.isBounded(p)
			if got := w.box.names(); got != "" {
				t.Errorf("letters %q before the limit of age", got)
			}
			w.until(11*time.Minute, "parked the bad changes", func() bool { return len(w.box.all()) == badKeys })
			w.until(10*time.Minute, "handled the healthy keys", func() bool { return w.isHandled("healthy") })
			time.Sleep(10 * time.Minute)
			if n := w.pending(); n != 0 {
				t.Errorf("%d changes are pending", n)
			}
			p.stop(t)
			w.lettersOfBad()
			w.areDone(badKeys*laterChanges+healthyKeys*healthyChanges, false)
		})
	})
}

// Without dead letters the bad changes are tried on. When they can be handled, all that waits behind them comes in
// order.
func TestBadKeysAreTriedOnWhileHealthyKeysPassThem(t *testing.T) {
	forConcurrencies(t, func(t *testing.T, concurrency int) {
		inBadWorld(t, func(t *testing.T, w *badWorld) {
			o := w.options(concurrency)
			o.OnFailure.MaxAttempts = 3
			p := w.run("a", w, o)
			w.until(time.Hour, "handled the healthy keys", func() bool { return w.isHandled("healthy") })
			w.isBounded(p)
			w.healthy("more")
			w.until(10*time.Minute, "handled more of the healthy keys", func() bool { return w.isHandled("more") })
			w.isBounded(p)
			tries := w.triesSoFar()
			time.Sleep(10 * time.Minute)
			if n := w.triesSoFar() - tries; n < 3 {
				t.Errorf("one of the bad changes was tried %d times in ten minutes", n)
			}
			w.areDone(2*healthyKeys*healthyChanges, false)
			w.mended.Store(true)
			time.Sleep(10 * time.Minute)
			if n := w.pending(); n != 0 {
				t.Errorf("%d changes are pending", n)
			}
			p.stop(t)
			w.areDone(badKeys*(laterChanges+1)+2*healthyKeys*healthyChanges, false)
		})
	})
}

// The next owner goes on with the keys that fail, in order, and leaves nothing out.
func TestTheNextOwnerGoesOnWithBadKeysThatFillTheBuffer(t *testing.T) {
	for name, end := range map[string]func(*process, *testing.T){
		"stopped": (*process).stop,
		"killed":  (*process).kill,
	} {
		t.Run(name, func(t *testing.T) {
			forConcurrencies(t, func(t *testing.T, concurrency int) {
				inBadWorld(t, func(t *testing.T, w *badWorld) {
					o := w.options(concurrency)
					o.OnFailure.MaxAttempts = 3
					p := w.run("a", w, o)
					w.until(time.Hour, "handled the healthy keys", func() bool { return w.isHandled("healthy") })
					time.Sleep(time.Minute)
					end(p, t)
					w.healthy("more")
					p = w.run("b", w, o)
					w.until(time.Hour, "handled more of the healthy keys", func() bool { return w.isHandled("more") })
					w.isBounded(p)
					w.areDone(2*healthyKeys*healthyChanges, name == "killed")
					w.mended.Store(true)
					time.Sleep(10 * time.Minute)
					if n := w.pending(); n != 0 {
						t.Errorf("%d changes are pending", n)
					}
					p.stop(t)
					w.areDone(badKeys*(laterChanges+1)+2*healthyKeys*healthyChanges, name == "killed")
				})
			})
		})
	}
}
