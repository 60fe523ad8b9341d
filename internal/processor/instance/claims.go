package instance

import (
	"sync"

	"github.com/millrace/changefeed/feed"
)

// Claims are the ranges on which this process works, or will work soon. A range is claimed before any write of the
// lease, because the feed of the leases may show the rounds a write before the writer has the answer.
type Claims struct {
	mu       sync.Mutex
	held     map[feed.Range]*Held // nil while the lease is being acquired
	stopping bool
}

// Claim reserves a range, unless it is claimed already.
func (c *Claims) Claim(of feed.Range) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.held[of]; taken {
		return false
	}
	c.held[of] = nil
	return true
}

// Free ends a claim; the range may be claimed again.
func (c *Claims) Free(of feed.Range) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, of)
}

// Begin assigns a worker to its claimed range.
func (c *Claims) Begin(h *Held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[h.Lease.Range] = h
	if c.stopping {
		h.Stop(Ending{Why: feed.ReasonStopped})
	}
}

// Stop stops all workers, including those that begin later.
func (c *Claims) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	for _, h := range c.held {
		if h != nil {
			h.Stop(Ending{Why: feed.ReasonStopped})
		}
	}
}

// Held returns the worker of a range, and whether the range is claimed.
func (c *Claims) Held(of feed.Range) (h *Held, claimed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, claimed = c.held[of]
	return h, claimed
}

// All returns the workers, and whether they were stopped.
func (c *Claims) All() (held []*Held, stopping bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.held {
		if h != nil {
			held = append(held, h)
		}
	}
	return held, c.stopping
}

// Number returns how many ranges are claimed.
func (c *Claims) Number() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}
