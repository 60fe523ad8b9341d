package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
)

// Both ends of the contract of a long-lived program in one world: the handler of some processes is behind it, and all
// promises hold as for the others.

// maxInProgram is how many batches a program has at once. Fewer than a process has leases and keys, so some wait.
const maxInProgram = 3

// program is a handler behind the contract. A panic of the handler ends the program, with all batches in hand, and the
// next batch begins another one.
type program struct {
	of    *instance
	lives sync.WaitGroup

	mu    sync.Mutex
	life  *programLife
	ended map[string]handled // by batchNameOf
}

// batchNameOf names a batch on both ends of the contract.
func batchNameOf(b *feed.Batch) string {
	return fmt.Sprint(b.LeaseToken, b.Epoch, b.Attempt, b.Redriven, b.Changes[0].LSN, b.Changes[0].ID, len(b.Changes))
}

// handled is how the call of a handler has ended.
type handled struct {
	*call

	ok   bool
	done []feed.Change
}

// noteEnd notes how the call for a batch has ended. The ledger hears of it when the processor does.
func (p *program) noteEnd(b *feed.Batch) func(c *call, ok bool, done []feed.Change) {
	return func(c *call, ok bool, done []feed.Change) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended[batchNameOf(b)] = handled{c, ok, done}
	}
}

// takeEnd returns how the call for a batch has ended; known is false if the handler was not called.
func (p *program) takeEnd(b *feed.Batch) (h handled, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, known = p.ended[batchNameOf(b)]
	delete(p.ended, batchNameOf(b))
	return h, known
}

// programLife is one run of a program.
type programLife struct {
	host   *contract.Host
	err    error
	served chan struct{} // closed when all its calls have ended
	heard  []*call       // that have succeeded, as the processor knows
	isOver bool          // the processor knows of its end
}

// noteHeard notes a call of which the processor knows that it has succeeded.
func (p *program) noteHeard(life *programLife, c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if life.heard = append(life.heard, c); life.isOver {
		p.of.world.ledger.noteGone(c)
	}
}

// bury notes the end of a life. What it has handled it confirms no more.
func (p *program) bury(life *programLife) {
	p.mu.Lock()
	defer p.mu.Unlock()
	life.isOver = true
	p.of.world.ledger.noteGone(life.heard...)
}

// noteGone notes calls in a program that has ended: what it has not asked to confirm must come again, and no other
// checkpoint may take that in.
func (g *ledger) noteGone(calls ...*call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range calls {
		for _, change := range c.changes {
			c.tenure.gone[versionOf(change)] = true
		}
	}
}

// begin begins a program, unless one runs.
func (p *program) begin(ctx context.Context) *programLife {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life != nil {
		return p.life
	}
	toProgram, fromHost := io.Pipe()
	toHost, fromProgram := io.Pipe()
	life := &programLife{served: make(chan struct{})}
	p.life = life
	dying, die := context.WithCancel(context.WithoutCancel(ctx))
	living, end := context.WithCancel(p.of.ctx)
	context.AfterFunc(dying, end)
	handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) (err error) {
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("the program dies: %v", reason)
				fromProgram.Close() // the answer does not arrive
				die()
			}
		}()
		return p.of.handleBatch(ctx, living, b, p.noteEnd(b))
	})
	p.lives.Go(func() {
		_ = contract.Serve(dying, toProgram, fromProgram, handler, contract.ProgramOptions{Batches: maxInProgram})
		fromProgram.Close()
		toProgram.Close()
		die()
		close(life.served)
	})
	life.host, life.err = contract.Connect(ctx, toHost, fromHost, contract.HostOptions{
		Manual: true, Ended: func() { p.bury(life) },
	})
	return life
}

// forget lets the next batch begin another program.
func (p *program) forget(life *programLife) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == life {
		p.life = nil
	}
}

// Handle hands a batch to the program. For the processor a batch counts as received, also if the program was busy or
// died before it has read the batch; and a batch whose answer was lost has failed.
func (p *program) Handle(ctx context.Context, b *feed.Batch) error {
	p.takeEnd(b)
	life, err := p.handOver(ctx, b)
	l, cause := p.of.world.ledger, context.Cause(ctx)
	switch h, known := p.takeEnd(b); {
	case known:
		l.judgeBy(ctx, h.call)
		if err != nil {
			l.noteUnheard(h.call)
		}
		if err != nil && h.ok { // the answer did not arrive
			l.endCall(h.call, false, nil)
		} else {
			l.endCall(h.call, h.ok, h.done)
		}
		if err == nil {
			p.noteHeard(life, h.call)
		}
	case p.of.isDead(): // it has a page in memory, but what it does with that is not in this world
	case l.hasGivenUp(p.of, b.LeaseToken): // nobody has waited for it
	case err != nil && (cause == nil || errors.Is(cause, feed.ErrHandlerTimeout)): // else nothing counts
		l.endCall(l.handOver(ctx, p.of, b), false, nil)
	}
	return err
}

// noteUnheard notes a call that has failed in a program: if the program has died, the processor may not have heard of
// its wish for a checkpoint.
func (g *ledger) noteUnheard(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.tenure.manual && c.page != nil {
		c.tenure.unheard = c
	}
}

// forgetUnheard goes back to before a batch that comes again, though its handler has asked for a checkpoint: the
// program has died with that wish.
func (t *tenure) forgetUnheard(b *feed.Batch) {
	c := t.unheard
	if c == nil || c.page != t.hand {
		return
	}
	from := c.end - len(c.changes)
	if !begins(c.page.changes[from:c.end], b) {
		return
	}
	t.unheard, t.n, t.last = nil, from, c.page.tokenBefore(from)
	for _, change := range c.changes {
		delete(t.passed, versionOf(change))
		delete(t.asked, versionOf(change))
	}
}

// hasGivenUp reports whether a process does not work on a lease any more: it does not wait for a handler that is stuck.
func (g *ledger) hasGivenUp(by *instance, token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.model.tenures[place{by, token}]
	return t != nil && t.over
}

// judgeBy lets a call be judged by the context of the processor: that of the program ends with the call.
func (g *ledger) judgeBy(ctx context.Context, c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.ctx = ctx
}

// handOver hands a batch to the program that runs, or begins one.
func (p *program) handOver(ctx context.Context, b *feed.Batch) (life *programLife, err error) {
	for ctx.Err() == nil {
		life = p.begin(ctx)
		err = life.err
		if err == nil {
			err = life.host.Handle(ctx, b)
		}
		if ended := life.host.Err(); ended == nil || !errors.Is(err, ended) {
			return life, err
		}
		<-life.served // a process that has ended has no effect any more
		p.forget(life)
		switch {
		case errors.Is(err, contract.ErrNotSent) || life.err != nil:
			continue
		case life.host.Left() > 1: // nobody knows which of them is at fault
			return life, &feed.Failure{Outage: true, Err: err}
		}
		return life, err
	}
	return life, context.Cause(ctx)
}

// end ends the program after the last batch.
func (p *program) end() {
	p.mu.Lock()
	life := p.life
	p.mu.Unlock()
	if life != nil {
		life.host.Stop(0)
		life.host.Close()
	}
	p.lives.Wait()
}
