package instance

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// Counted makes a Handler from a handler that does not count batches.
func Counted(h feed.Handler) Handler {
	return &counted{handler: h, running: map[string]int{}}
}

// counted counts the batches in the handler by their leases.
type counted struct {
	handler feed.Handler

	mu      sync.Mutex
	running map[string]int
	cut     []string
}

// Needs implements [changefeed.HandlerWithNeeds]. The instance chooses the start of a unit: a unit that has begun
// elsewhere would refuse the start of a handler.
func (c *counted) Needs() changefeed.Needs {
	needs := changefeed.NeedsOf(c.handler)
	needs.Start = feed.Start{}
	return needs
}

// Open implements [feed.Opener], also if the wrapped handler does not.
func (c *counted) Open(ctx context.Context, l feed.Lease) error {
	if opener, ok := c.handler.(feed.Opener); ok {
		return opener.Open(ctx, l)
	}
	return nil
}

// Close implements [feed.Closer], also if the wrapped handler does not.
func (c *counted) Close(ctx context.Context, l feed.Lease, why feed.Reason) error {
	if closer, ok := c.handler.(feed.Closer); ok {
		return closer.Close(ctx, l, why)
	}
	return nil
}

// Handle implements [feed.Handler].
func (c *counted) Handle(ctx context.Context, b *feed.Batch) error {
	c.count(b.LeaseToken, 1)
	defer c.count(b.LeaseToken, -1)
	err := c.handler.Handle(ctx, b)
	// Only a stop makes a batch unfinished for the report. After another failure the batch is retried, and the
	// processor logs the failure.
	if errors.Is(context.Cause(ctx), feed.ErrStopped) && err != nil {
		c.mu.Lock()
		c.cut = append(c.cut, b.LeaseToken)
		c.mu.Unlock()
	}
	return err
}

func (c *counted) count(lease string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[lease] += by; c.running[lease] == 0 {
		delete(c.running, lease)
	}
}

// Running returns the leases with batches in the handler.
func (c *counted) Running() (leases []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for lease := range c.running {
		leases = append(leases, lease)
	}
	slices.Sort(leases)
	return leases
}

// Unfinished returns the leases whose batches were interrupted since the last call.
func (c *counted) Unfinished() (leases []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	leases, c.cut = c.cut, nil
	slices.Sort(leases)
	return slices.Compact(leases)
}

// Kill does nothing: running calls end with the process.
func (c *counted) Kill() {}
