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

// Contract puts the handler of a quarter of the processes behind the contract. Set it before the first world begins.
//
// The checkers follow what handlers receive, and the contract can lose an answer, or hand a batch over late. So a rare
// seed still breaks a rule about attempts or order that the processor has kept: look at its story first.
var Contract bool

// maxInProgram is how many batches a program has at once. Fewer than a process has leases and keys, so some wait.
const maxInProgram = 3

// errDied is the cause with which the other calls of a program end that has died. They count as failures.
var errDied = errors.New("the program has died")

// program is a handler behind the contract. A panic of the handler ends the program, with all batches in hand, and the
// next batch begins another one.
type program struct {
	of    *instance
	lives sync.WaitGroup

	mu    sync.Mutex
	life  *programLife
	begun map[string]bool // batches whose handler was called, by batchNameOf
}

// batchNameOf names a batch on both ends of the contract.
func batchNameOf(b *feed.Batch) string {
	return fmt.Sprint(b.LeaseToken, b.Epoch, b.Attempt, b.Redriven, b.Changes[0].LSN, b.Changes[0].ID, len(b.Changes))
}

// note notes whether the handler of a batch was called, and returns what was noted before.
func (p *program) note(b *feed.Batch, begun bool) (before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := batchNameOf(b)
	before = p.begun[name]
	if delete(p.begun, name); begun {
		p.begun[name] = true
	}
	return before
}

// programLife is one run of a program.
type programLife struct {
	host   *contract.Host
	err    error
	served chan struct{} // closed when all its calls have ended
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
	dying, die := context.WithCancelCause(context.WithoutCancel(ctx))
	handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) (err error) {
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("the program dies: %v", reason)
				fromProgram.Close() // the answer does not arrive
				die(errDied)
			}
		}()
		p.note(b, true)
		return p.of.Handle(ctx, b)
	})
	p.lives.Go(func() {
		_ = contract.Serve(dying, toProgram, fromProgram, handler, contract.ProgramOptions{Batches: maxInProgram})
		fromProgram.Close()
		toProgram.Close()
		die(nil)
		close(life.served)
	})
	life.host, life.err = contract.Connect(ctx, toHost, fromHost, contract.HostOptions{Manual: true})
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
// died before it has read the batch.
func (p *program) Handle(ctx context.Context, b *feed.Batch) error {
	p.note(b, false)
	err := p.handOver(ctx, b)
	l := p.of.world.ledger
	switch begun := p.note(b, false); {
	case err == nil:
	case begun:
		l.noteLostAnswer(b)
	default:
		l.endCall(l.handOver(ctx, p.of, b), false, nil)
	}
	return err
}

// noteLostAnswer records that a batch has failed for its processor, whatever its handler has returned.
func (g *ledger) noteLostAnswer(b *feed.Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range b.Changes {
		g.failed[versionOf(c)] = true
	}
}

// handOver hands a batch to the program that runs, or begins one.
func (p *program) handOver(ctx context.Context, b *feed.Batch) error {
	for ctx.Err() == nil {
		life := p.begin(ctx)
		err := life.err
		if err == nil {
			err = life.host.Handle(ctx, b)
		}
		if ended := life.host.Err(); ended == nil || !errors.Is(err, ended) {
			return err
		}
		<-life.served // a process that has ended has no effect any more
		p.forget(life)
		switch {
		case errors.Is(err, contract.ErrNotSent) || life.err != nil:
			continue
		case life.host.Left() > 1: // nobody knows which of them is at fault
			return &feed.Failure{Outage: true, Err: err}
		}
		return err
	}
	return context.Cause(ctx)
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
