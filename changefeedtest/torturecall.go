package changefeedtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// tortureCall is a call of the handler.
type tortureCall struct {
	lease *tortureLease
	host  *host
	fault plannedFault
	batch *feed.Batch // nil for a call of Close
	end   int         // how many changes of the lease are before the end of the batch

	ctx    context.Context
	cancel context.CancelCauseFunc
	back   chan struct{} // closed when the handler has returned
	err    error         // of the handler
	name   string        // of its goroutine in stacks
	isBack bool          // it has returned in time
	isOpen bool          // its lease is open, if the handler is an Opener
	isOld  bool          // its lease has another owner, or its batch comes again; protected by the run's mutex
}

// newCall makes a call, whose context ends as its fault says.
func (r *tortureRun) newCall(l *tortureLease, f plannedFault) *tortureCall {
	c := &tortureCall{lease: l, host: l.owner, fault: f, back: make(chan struct{})}
	inner, cancel := context.WithCancelCause(r.ctx)
	c.cancel = cancel
	looked := &lookedAt{Context: inner, end: func() { cancel(f.endsContext()) }}
	if f.kind == processFreezes {
		looked.freezes, looked.end = true, func() { r.freeze(c, inner) }
	}
	if f.endsContext() != nil {
		looked.left.Store(f.looks)
	}
	c.ctx = looked
	return c
}

// lookedAt is a context that ends when its user looks at it for the nth time. So it ends between two steps of a handler
// that asks between them.
type lookedAt struct {
	context.Context
	left    atomic.Int64
	end     func()
	freezes bool
}

// Done implements [context.Context].
func (c *lookedAt) Done() <-chan struct{} {
	c.count()
	return c.Context.Done()
}

// Err implements [context.Context]. A look that freezes has the answer from before.
func (c *lookedAt) Err() error {
	before := c.Context.Err()
	if c.count() && c.freezes {
		return before
	}
	return c.Context.Err()
}

// count reports whether this look is the one that ends the context.
func (c *lookedAt) count() bool {
	isLast := c.left.Add(-1) == 0
	if isLast {
		c.end()
	}
	return isLast
}

// cause returns why the context of a call has ended, without a look.
func (c *tortureCall) cause() error { return causeOf(c.ctx) }

func causeOf(ctx context.Context) error {
	if looked, ok := ctx.(*lookedAt); ok {
		return context.Cause(looked.Context)
	}
	return context.Cause(ctx)
}

// freeze ends the context of a call, and lets its handler go on when other owners have gone on.
func (r *tortureRun) freeze(c *tortureCall, ctx context.Context) {
	c.cancel(feed.ErrLeaseLost)
	_ = pause.For(context.WithoutCancel(ctx), frozenFor) // it ends by itself
}

// start starts the goroutine of a call, and the timers that end its context.
func (r *tortureRun) start(c *tortureCall, call func(context.Context) error) {
	timeout := time.AfterFunc(r.prober.o.HandlerTimeout, func() { c.cancel(feed.ErrHandlerTimeout) })
	if cause := c.fault.endsContext(); cause != nil {
		time.AfterFunc(c.fault.after, func() { c.cancel(cause) })
	}
	r.calls.Go(func() {
		defer close(c.back)
		defer timeout.Stop()
		defer func() {
			if value := recover(); value != nil {
				c.err = fmt.Errorf("the handler panics: %v", value)
			}
		}()
		c.name = nameOf(ownStack())
		c.err = errors.New("the handler ends its goroutine") // unless it returns
		c.err = call(c.ctx)
	})
}

// hasReturned waits until the handler returns, at most for a time after the end of its context.
func (c *tortureCall) hasReturned(within time.Duration) bool {
	inner := c.ctx.(*lookedAt).Context // this is no look of the handler
	select {
	case <-c.back:
		return true
	case <-inner.Done():
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.back:
		return true
	case <-timer.C:
		return false
	}
}

// hand gives the next batch of a lease to the handler of its owner.
func (r *tortureRun) hand(l *tortureLease, beside bool) *tortureCall {
	n := r.batchSize(l)
	f, _ := r.takeFault(l, n, func(f plannedFault) bool { return f.kind != rangeSplits })
	c := r.newCall(l, f)
	c.end = l.read + n
	c.batch = &feed.Batch{
		LeaseToken: l.r.String(), Range: l.r, Instance: l.owner.name, Epoch: l.epoch, Attempt: l.errors + 1,
		Position: l.position(c.end), Head: l.changes[len(l.changes)-1].LSN,
		Changes: slices.Clone(l.changes[l.read:c.end]),
	}
	if r.prober.o.Manual {
		c.batch.OnCheckpoint(func(ctx context.Context) error { return r.confirm(ctx, c) })
		c.batch.OnAbandon(func() { r.abandon(c) })
	}
	word := ""
	if beside {
		word = "At the same time, "
	}
	r.tell("%s%s receives %s on lease %s (attempt %d, epoch %d).", word, l.owner.name, c.contents(), l.r,
		c.batch.Attempt, l.epoch)
	opener, ok := l.owner.handler.(feed.Opener)
	c.isOpen = l.isOpen || !ok
	handler, lease := l.owner.handler, l.asLease()
	r.start(c, func(ctx context.Context) error {
		if !c.isOpen {
			if err := opener.Open(ctx, lease); err != nil {
				return fmt.Errorf("open the lease: %w", err)
			}
			c.isOpen = true
		}
		return handler.Handle(ctx, c.batch)
	})
	return c
}

// batchSize draws the number of changes of the next batch, which divides no transaction.
func (r *tortureRun) batchSize(l *tortureLease) int {
	next := l.changes[l.read:]
	n := 1
	if !r.plan.isCalm {
		n += r.dice.IntN(r.plan.size)
	}
	if l.most > 0 {
		n = min(n, l.most)
	}
	for n = min(n, len(next)); n < len(next) && next[n].LSN == next[n-1].LSN; n++ {
	}
	return n
}

// confirm stores the position for a handler that makes its own checkpoints.
func (r *tortureRun) confirm(ctx context.Context, c *tortureCall) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case c.isOld, c.lease.isAbandoned:
		return feed.ErrLeaseLost
	case c.fault.kind == processEnds || c.fault.kind == processEndsLate:
		return errEnded
	}
	c.lease.stored = max(c.lease.stored, c.end)
	return nil
}

// abandon has a lease begin anew after the round, for a handler that will not confirm what it has handled.
func (r *tortureRun) abandon(c *tortureCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.isOld && c.batch.Epoch == c.lease.epoch {
		c.lease.isAbandoned = true
	}
}

// mustBeginAnew reports whether a lease has an abandoned batch that is handled and not confirmed. It fails the run if
// that is so again and again.
func (r *tortureRun) mustBeginAnew(l *tortureLease) bool {
	r.mu.Lock()
	isAbandoned := l.isAbandoned && l.stored < l.read
	l.isAbandoned = isAbandoned
	r.mu.Unlock()
	if !isAbandoned {
		l.anew = 0
		return false
	}
	if l.anew++; l.anew >= mostErrors {
		r.fail(failsAlways, fmt.Sprintf("It has abandoned batches of lease %s %d times in a row.", l.r, l.anew))
	}
	return true
}

// settle stores what a call has done, or lets its batch come again.
func (r *tortureRun) settle(c *tortureCall) {
	l := c.lease
	r.mu.Lock()
	l.read = max(l.read, l.stored) // confirmed changes do not come again
	c.isOld = c.host.isDead || !c.isBack || c.fault.endsContext() != nil || c.timeIsOver()
	r.mu.Unlock()
	result := c.result()
	if c.isBack {
		l.isOpen = c.isOpen
	}
	switch {
	case !c.isBack:
		r.old = append(r.old, c)
		l.errors++
		if r.plan.isClean() {
			r.waitForOld()
			r.giveUp(c)
		}
		r.handOver(c, fmt.Sprintf("%s; %v later the handler has not returned", c.ending(), togetherFor))
	case c.fault.kind == processEndsLate && c.err == nil && c.firstPart() > 0:
		l.errors = 0
		if r.storePosition(l, l.read+c.firstPart(), c.end) {
			r.tell("%s on %s. The position of the first %s is stored. Then the process of %s ends.", result, c.host.name,
				counted(c.firstPart(), "change"), c.host.name)
		} else {
			r.tell("%s on %s. Then the process of %s ends.", result, c.host.name, c.host.name)
		}
	case c.host.isDead:
		l.errors++
		r.tell("%s on %s. The process ends before the position is stored.", result, c.host.name)
	case c.fault.kind == leaseLost || c.fault.kind == processFreezes:
		l.errors++
		r.handOver(c, c.ending()+"; "+result)
	case c.fault.kind == leaseGiven:
		r.handOver(c, c.ending()+"; "+result)
	case c.timeIsOver():
		l.errors++
		l.most = max(1, (c.end-l.read)/2)
		r.tell("%s; %s. The batch comes again in parts.", c.ending(), result)
		r.giveUp(c)
	case c.err != nil:
		r.settleError(c)
	default:
		l.errors, l.most = 0, 0
		r.storePosition(l, c.end, c.end)
		r.tell("%s on %s. The position is stored.", result, c.host.name)
	}
}

// timeIsOver reports whether the context of the call has ended by the timeout.
func (c *tortureCall) timeIsOver() bool {
	return errors.Is(c.cause(), feed.ErrHandlerTimeout) || c.fault.kind == timeIsOver
}

// storePosition moves the position of a lease, unless the handler does that. read is how far its owner is.
func (r *tortureRun) storePosition(l *tortureLease, stored, read int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.read = read
	if r.prober.o.Manual {
		return false
	}
	l.stored = stored
	return true
}

// settleError lets the failed part of a batch come again.
func (r *tortureRun) settleError(c *tortureCall) {
	l := c.lease
	done := 0
	if failure, ok := errors.AsType[*feed.Failure](c.err); ok {
		if done = max(0, failure.Done); failure.Items != nil {
			for done = 0; done < len(c.batch.Changes) && failure.Items[done] == nil; done++ {
			}
		}
		done = min(done, len(c.batch.Changes))
	}
	r.tell("%s on %s.", c.result(), c.host.name)
	if l.errors++; done > 0 {
		l.errors = 1
	}
	r.storePosition(l, l.read+done, l.read+done)
	r.giveUp(c)
	if err := pause.For(r.ctx, time.Second); err != nil {
		return
	}
}

// giveUp fails the run if a handler does not get past a batch, or fails in a clean run.
func (r *tortureRun) giveUp(c *tortureCall) {
	switch {
	case r.plan.isClean():
		r.fail(failsAlways, fmt.Sprintf("It fails on %s without any fault: %s.", c.first(), c.result()))
	case c.lease.errors >= mostErrors:
		r.fail(failsAlways, fmt.Sprintf("It has failed %d times in a row on %s: %s.", c.lease.errors, c.first(),
			c.result()))
	}
}

// handOver gives the lease of a call to another instance.
func (r *tortureRun) handOver(c *tortureCall, why string) {
	if c.isBack {
		reason := feed.ReasonLost
		if c.fault.kind == leaseGiven {
			reason = feed.ReasonGiven
		}
		r.closeLease(c.lease, reason)
	}
	r.moveLease(c.lease, r.otherHost(c.host))
	r.tell("%s. The result does not count, and %s gets the lease.", why, c.lease.owner.name)
}

// firstPart is how many changes of the batch are stored before its process ends: those before the fault's transaction.
func (c *tortureCall) firstPart() (n int) {
	for n < len(c.batch.Changes) && c.batch.Changes[n].LSN < c.fault.at {
		n++
	}
	return n
}
