// Package calls ends a publisher in order, though the client of its broker does not heed a context: nobody waits for such
// a call any more when its context has ended, and yet Close has to.
package calls

import (
	"errors"
	"sync"
)

// ErrClosed is the error of a call that would begin after Close.
var ErrClosed = errors.New("publisher is closed")

// Calls are the calls of a client. The zero value has none and is open.
type Calls struct {
	mu     sync.Mutex
	closed bool
	wait   sync.WaitGroup
}

// Go runs a call in a goroutine of its own, or returns [ErrClosed].
func (c *Calls) Go(call func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.wait.Go(call)
	return nil
}

// Close lets no further call begin.
func (c *Calls) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
}

// Closed returns [ErrClosed] after Close.
func (c *Calls) Closed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return nil
}

// Wait waits for the calls that have begun, after Close.
func (c *Calls) Wait() { c.wait.Wait() }
