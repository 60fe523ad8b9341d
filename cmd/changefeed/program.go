package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/changefeed"
)

// How a program handles a batch
//
// It is a process of a group of its own, so that a Ctrl-C of the terminal is for
// changefeed alone, which lets it finish. When the processor ends the batch, the group is
// told to end, and killed if it does not. After a lost lease another instance begins a
// tenth of the expiration later, so there the kill comes after half of that.
//
// Whether a batch is done is for the lease to decide: a position is stored under the
// ETag of the lease, so what a program says after the lease was lost changes nothing.

// A program is a [changefeed.Handler]: it is started for each batch.
type program struct {
	path   string
	args   []string // beginning with the name that it was called by
	form   lineForm
	grace  time.Duration // between SIGTERM and SIGKILL,
	hurry  time.Duration // and after the lease was lost
	stdout io.Writer
	stderr io.Writer

	mu      sync.Mutex
	running map[string]*os.Process // by lease: those that have not ended
	cut     []string               // leases whose batches were ended because the processor stops
	closed  bool                   // nothing may be started any more
}

// hurryPart is the part of the expiration that a program has after its lease was lost:
// half of the margin that the processor keeps.
const hurryPart = 20

// Handle implements [changefeed.Handler].
func (p *program) Handle(ctx context.Context, b *changefeed.Batch) error {
	input, err := p.lines(b)
	if err != nil {
		return err
	}
	cmd := p.command(ctx, b, input)
	if err := p.start(b.LeaseToken, cmd); err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	defer p.forget(b.LeaseToken)
	ended := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() { ended <- cmd.Wait() })
	defer waiting.Wait()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = p.end(ctx, cmd.Process, ended)
	}
	if errors.Is(err, exec.ErrWaitDelay) { // it exited with 0, and left the pipe to others
		err = nil
	}
	if err != nil {
		kill(cmd.Process) // what it has started must not go on beside the next attempt
		if errors.Is(context.Cause(ctx), changefeed.ErrStopped) {
			p.unfinished(b.LeaseToken)
		}
		return fmt.Errorf("%s: %w", p.args[0], err)
	}
	return nil
}

// start starts a program, unless all were killed.
func (p *program) start(lease string, cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return changefeed.ErrStopped
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if p.running == nil {
		p.running = map[string]*os.Process{}
	}
	p.running[lease] = cmd.Process
	return nil
}

func (p *program) forget(lease string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, lease)
}

func (p *program) unfinished(lease string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = append(p.cut, lease)
}

// wereCut are the leases whose batches were ended, and forgets them.
func (p *program) wereCut() (leases []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	leases, p.cut = p.cut, nil
	slices.Sort(leases)
	return leases
}

// atWork are the leases whose batches are in hand.
func (p *program) atWork() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.running))
}

// killAll ends all programs and what they have started, and lets no other begin.
func (p *program) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, process := range p.running {
		kill(process)
	}
}

// lines are the changes of a batch, a line each.
func (p *program) lines(b *changefeed.Batch) (*bytes.Buffer, error) {
	var text bytes.Buffer
	w := bufio.NewWriter(&text)
	for _, c := range b.Changes {
		if err := p.form.write(w, b.Range, c, ""); err != nil {
			return nil, err
		}
	}
	return &text, w.Flush()
}

func (p *program) command(ctx context.Context, b *changefeed.Batch, input *bytes.Buffer) *exec.Cmd {
	cmd := exec.Command(p.path)
	cmd.Args = p.args
	cmd.Env = append(os.Environ(),
		"CHANGEFEED_LEASE="+b.LeaseToken,
		"CHANGEFEED_RANGE="+b.Range.String(),
		"CHANGEFEED_INSTANCE="+b.Instance,
		"CHANGEFEED_ATTEMPT="+strconv.Itoa(b.Attempt),
	)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = fenced{ctx, input}, p.stdout, p.stderr
	cmd.WaitDelay = p.grace
	cmd.SysProcAttr = apart()
	return cmd
}

// fenced is input that stops when the lease is lost: a process that was stopped and
// resumes feeds nobody. A program that is asked to end gets the rest, because it may use
// it. Where nothing is left to hold back, the end is the end: an error there would make
// [exec.Cmd.Wait] fail for a program that has exited with 0.
type fenced struct {
	ctx  context.Context
	left *bytes.Buffer
}

// Read reads while it may.
func (f fenced) Read(p []byte) (int, error) {
	if f.left.Len() > 0 && errors.Is(context.Cause(f.ctx), changefeed.ErrLeaseLost) {
		return 0, changefeed.ErrLeaseLost
	}
	return f.left.Read(p)
}

// end ends the program, first kindly, and returns how it ended.
func (p *program) end(ctx context.Context, process *os.Process, ended <-chan error) (err error) {
	patience := p.grace
	if errors.Is(context.Cause(ctx), changefeed.ErrLeaseLost) {
		patience = p.hurry
	}
	terminate(process)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err = <-ended:
		kill(process) // what it has started may still be there
	case <-timer.C:
		kill(process)
		err = <-ended
	}
	return err
}
