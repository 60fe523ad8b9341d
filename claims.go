package changefeed

import (
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// claims are the ranges that this process works on, or is about to. A range is claimed
// before any write of its lease, because the feed of the leases may show the rounds a write
// before the writer has the answer.
type claims struct {
	mu       sync.Mutex
	workers  map[feed.Range]*worker // nil while the lease is being acquired
	stopping bool
}

// claim reserves a range, unless it is taken.
func (c *claims) claim(of feed.Range) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.workers[of]; taken {
		return false
	}
	c.workers[of] = nil
	return true
}

// free ends a claim; the range may be taken again.
func (c *claims) free(of feed.Range) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.workers, of)
}

// begin puts a worker on the range that was claimed for it.
func (c *claims) begin(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers[w.lease.Range] = w
	if c.stopping {
		w.stop(ending{why: feed.ReasonStopped})
	}
}

// stop stops all workers, and those that may yet begin.
func (c *claims) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	for _, w := range c.workers {
		if w != nil {
			w.stop(ending{why: feed.ReasonStopped})
		}
	}
}

// worker is who works on a range, if it is claimed.
func (c *claims) worker(of feed.Range) (w *worker, claimed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, claimed = c.workers[of]
	return w, claimed
}

// all are the workers, and whether they were stopped.
func (c *claims) all() (workers []*worker, stopping bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		if w != nil {
			workers = append(workers, w)
		}
	}
	return workers, c.stopping
}

// held is how many ranges are claimed.
func (c *claims) held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.workers)
}

// start begins to work on a claimed lease that is ours since a write begun at started. It was crashed if its last owner
// has ended without a word.
func (r *run) start(lease feed.Record, started time.Time, crashed bool) {
	w := newWorker(r, lease, started)
	w.dispatcher.crashed = crashed
	r.claims.begin(w)
	r.work.Go(func() {
		if w.work() == feed.ReasonStuck {
			go func() { // it goes on alone, so nobody waits for it
				w.delegate.calls.Wait()
				r.claims.free(lease.Range)
			}()
			return
		}
		r.claims.free(lease.Range)
		r.wake()
	})
}
