package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// letterCalls are the calls of the dead letters. Their code is not ours, like that of the handler.
type letterCalls struct {
	in       *instance.Instance
	held     *instance.Held
	delegate *delegate
}

// callLetters calls the dead letters, which may be foreign code too: a call without a return or a sign of life is left
// behind.
func (c *letterCalls) callLetters(f func(ctx context.Context, alive func()) error) error {
	ctx, cancel := context.WithCancelCause(c.held.UntilDrained)
	defer cancel(nil)
	fuse := time.AfterFunc(records.StoreTimeout, func() { cancel(context.DeadlineExceeded) })
	defer fuse.Stop()
	result := c.delegate.launch(ctx, func(ctx context.Context) error {
		return f(ctx, func() { fuse.Reset(records.StoreTimeout) })
	})
	select {
	case err := <-result:
		return foreign(err)
	case <-ctx.Done():
	}
	// Code that obeys its context returns now, with an error that says more than ours.
	select {
	case err := <-result:
		return foreign(err)
	case <-time.After(c.in.Options.RetryMin):
		return fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// hasLetter reports whether a letter is among the letters of its key.
func (c *letterCalls) hasLetter(box feed.LetterBox, l feed.DeadLetter) (there bool, err error) {
	err = c.eachLetter(box, l.Change.PartitionKey, func(o feed.DeadLetter) bool {
		there = o.ID == l.ID
		return !there && o.Change.LSN <= l.Change.LSN
	})
	return there, err
}

// eachLetter calls f with the letters of a key, until f returns false.
func (c *letterCalls) eachLetter(box feed.LetterBox, key feed.PartitionKey, f func(feed.DeadLetter) (more bool)) error {
	var mu sync.Mutex
	over := false // a call that is left behind calls f no more
	err := c.callLetters(func(ctx context.Context, alive func()) error {
		for l, err := range box.Letters(ctx, key) {
			if err != nil {
				return err
			}
			alive()
			mu.Lock()
			over = over || !f(l)
			done := over
			mu.Unlock()
			if done {
				break
			}
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
	return err
}

// foreign is an error of the dead letters, which are no handler when they panic.
func foreign(err error) error {
	if panicked, ok := errors.AsType[*feed.PanicError](err); ok {
		return fmt.Errorf("dead letters panicked: %v", panicked.Value)
	}
	return err
}
