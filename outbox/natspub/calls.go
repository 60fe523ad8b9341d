package natspub

import (
	"context"
	"fmt"
	"regexp"
	"sync"
)

// calls are the requests that wait for an answer. The client lets a request wait for its whole
// time although it knows that there will be no answer; calls end it.
type calls struct {
	mu      sync.Mutex
	waiting map[*call]bool
}

// call is one request.
type call struct {
	subject string
	cancel  context.CancelCauseFunc
}

// do calls f with a context that ends when no answer can be expected any more. The error is why it ended, if it did.
func (c *calls) do(ctx context.Context, subject string, f func(ctx context.Context) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, answerWithin, fmt.Errorf("%w within %v", errNoAnswer, answerWithin))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	this := &call{subject, cancel}
	c.mu.Lock()
	if c.waiting == nil {
		c.waiting = map[*call]bool{}
	}
	c.waiting[this] = true
	c.mu.Unlock()
	defer c.end(this)
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (c *calls) end(this *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, this)
}

// lost ends all calls: the connection on which they were sent is gone, and so are their answers.
func (c *calls) lost(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for waiting := range c.waiting {
		waiting.cancel(cause)
	}
}

var deniedSubject = regexp.MustCompile(`Permissions Violation for Publish to "([^"]+)"`)

// denied ends the calls with the subject that an error of the server names; the server answers them with nothing else.
func (c *calls) denied(err error) {
	of := deniedSubject.FindStringSubmatch(err.Error())
	if of == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for waiting := range c.waiting {
		if waiting.subject == of[1] {
			waiting.cancel(err)
		}
	}
}
