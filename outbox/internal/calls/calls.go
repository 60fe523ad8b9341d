// Package calls ends a publisher in order although the client of the broker ignores contexts: when the context of a
// call has ended, the caller does not wait any longer, but Close must wait for the call.
package calls

import (
	"errors"
	"sync"
)

// ErrClosed is the error of a call after Close.
var ErrClosed = errors.New("publisher is closed")

// Calls are the calls of a client. The zero value has no calls and is open.
type Calls struct {
	mu     sync.Mutex
	closed bool
	wait   sync.WaitGroup
}

// Go runs a call in its own goroutine, or returns [ErrClosed].
func (c *Calls) Go(call func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.wait.Go(call)
	return nil
}

// Close refuses further calls.
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

// Wait waits for the running calls, after Close.
func (c *Calls) Wait() { c.wait.Wait() }
