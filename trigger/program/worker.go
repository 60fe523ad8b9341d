package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/child"
	"github.com/millrace/changefeed/internal/inhand"
	"github.com/millrace/changefeed/internal/suspects"
	"github.com/millrace/changefeed/trigger/contract"
)

// WorkerOptions are the optional settings of a [Worker].
type WorkerOptions struct {
	// Unit and Instance are told to the program: the name of the deployment unit and of the instance.
	Unit, Instance string

	// Manual says that the processor has [changefeed.Options.Manual]: the program confirms what it has handled.
	Manual bool

	// Timeout is [changefeed.Options.HandlerTimeout], and Drain is [changefeed.Options.Drain]. The program is told.
	Timeout, Drain time.Duration

	// Grace is how long the program may take to give up a batch that is canceled, and to end after the last batch,
	// before the program is killed. After a lost lease that is less, see Expiration. Set Grace shorter than Drain. The
	// default is [DefaultGrace].
	Grace time.Duration

	// Expiration is the expiration of the leases, [changefeed.Options.Expiration]: a program that has a batch of a lost
	// lease is killed after a twentieth of this time. The default is a minute.
	Expiration time.Duration

	// Start is how long the program may take from its start to its hello. The default is [DefaultStart].
	Start time.Duration

	// Stdout receives the standard output of the program. Nil discards the output.
	Stdout io.Writer

	// Log receives each line of the program's standard error as a warning, and the starts and ends of the program. Nil
	// is [slog.Default].
	Log *slog.Logger

	// Stop is called if the program asks for the end of the processor.
	Stop func()

	// Status and CaughtUp answer the questions of the program about its unit, see [contract.HostOptions].
	Status   func(context.Context) (contract.UnitStatus, error)
	CaughtUp func(context.Context) error

	// Hint returns what to do about an error, for the events that Hooks make. Nil has no hints.
	Hint func(error) string

	// Wire, if set, wraps the pipe to the program. Tests of programs use it to slow messages down.
	Wire func(toProgram io.WriteCloser) io.WriteCloser
}

// DefaultStart is the time for the start of a program if you do not set WorkerOptions.Start.
const DefaultStart = 30 * time.Second

// The pauses between the end of a program and the next start. The first one follows a program that has handled a batch
// or, with Manual, has confirmed one; without such a batch the pause doubles.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// A Worker is a [feed.Handler] that keeps one long-lived program, which handles the batches of all leases and speaks
// the contract of package contract. A program that ends, whatever its exit code, is started again after a pause.
//
// The batch that a program has when it ends has failed. If the program has several, nobody knows which of them is at
// fault. So none of them counts as an attempt, and the next program receives one batch at a time until these batches
// have come again: if one of them ends the program once more, that batch alone is blamed.
type Worker struct {
	path    string
	command []string
	opts    WorkerOptions
	stop    context.CancelFunc // ends the supervision

	supervision sync.WaitGroup

	inHand
	news

	suspects suspects.Suspects

	lives  sync.Mutex
	life   *life // the present or the next one
	closed bool  // no further program may start
}

// life is one run of the program.
type life struct {
	ready chan struct{} // closed when host or err is set
	host  *contract.Host
	err   error // why the program could not be started

	ended chan struct{} // closed when the process is gone; err says why

	process *exec.Cmd
	turn    *suspects.Turn
	gotOn   bool // a batch was handled and, if the program confirms by itself, confirmed
}

// NewWorker makes a worker of a command, a program and its arguments. If the program is missing, the error is an
// [exec.Error]. Call Start before the processor runs and Close afterwards.
func NewWorker(command []string, o WorkerOptions) (*Worker, error) {
	path, err := findProgram(command)
	if err != nil {
		return nil, err
	}
	o.Grace, o.Expiration = cmp.Or(o.Grace, DefaultGrace), cmp.Or(o.Expiration, defaultExpiration)
	o.Start, o.Log = cmp.Or(o.Start, DefaultStart), cmp.Or(o.Log, slog.Default())
	if o.Wire == nil {
		o.Wire = func(toProgram io.WriteCloser) io.WriteCloser { return toProgram }
	}
	return &Worker{
		path: path, command: slices.Clone(command), opts: o, life: newLife(), news: news{hint: o.Hint},
	}, nil
}

func newLife() *life {
	return &life{ready: make(chan struct{}), ended: make(chan struct{})}
}

// Start starts the program, and starts it again whenever it has ended, until Close. When ctx ends, the program is told
// that no further batch comes.
func (w *Worker) Start(ctx context.Context) {
	supervised, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	w.supervision.Go(func() { w.supervise(supervised, ctx.Done()) })
}

// Close ends the program: it sees the end of its input, receives SIGTERM after Grace, and is killed after another
// Grace. Close returns when the program is gone.
func (w *Worker) Close() {
	if w.stop != nil {
		w.stop()
		w.supervision.Wait()
	}
}

// Kill ends the program at once, and starts no other: its batches have failed.
func (w *Worker) Kill() {
	w.lives.Lock()
	defer w.lives.Unlock()
	w.closed = true
	if p := w.life.process; p != nil {
		child.Kill(p.Process)
	}
}

// Batches returns how many batches the running program handles at once; 0 if none runs.
func (w *Worker) Batches() int {
	if host := w.Host(); host != nil {
		return host.Batches()
	}
	return 0
}

// Host returns the connection to the running program; nil if none runs.
func (w *Worker) Host() *contract.Host {
	w.lives.Lock()
	defer w.lives.Unlock()
	return w.life.host
}

// Handle hands a batch to the program and returns the outcome that the program reports. If the program does not run,
// Handle waits for its next start. If the program cannot be started, no change is at fault: the error is a
// [*feed.Failure] of an outage.
func (w *Worker) Handle(ctx context.Context, b *feed.Batch) error {
	for {
		l := w.currentLife()
		select {
		case <-l.ready:
		case <-ctx.Done():
			return contract.Untried(fmt.Errorf("wait for %s to start: %w", w.command[0], context.Cause(ctx)))
		}
		if l.host == nil { // err is set, and nobody changes it any more
			return contract.Untried(l.err)
		}
		err := w.handleAlone(ctx, l, b)
		if errors.Is(err, contract.ErrNotSent) {
			select {
			case <-l.ended: // the next life is there
				continue
			case <-ctx.Done():
				return contract.Untried(context.Cause(ctx))
			}
		}
		return err
	}
}

// handleAlone hands a batch to the program, alone if a batch like this may have ended the last program.
func (w *Worker) handleAlone(ctx context.Context, l *life, b *feed.Batch) error {
	leave, err := w.suspects.Enter(ctx, l.turn)
	if err != nil {
		return contract.Untried(fmt.Errorf("wait for the batch before: %w", err))
	}
	defer leave()
	inhand.Count(&w.inHand, b.LeaseToken, +1)
	defer inhand.Count(&w.inHand, b.LeaseToken, -1)
	mustConfirm := w.opts.Manual && b.IsManual() // unlike a dead letter that is tried again
	if mustConfirm {
		b = w.noting(l, b)
	}
	err = l.host.Handle(ctx, b)
	switch {
	case errors.Is(err, contract.ErrNotSent):
		return err
	case l.host.Err() != nil && errors.Is(err, l.host.Err()):
		err = w.blameProgram(ctx, l, b)
	default:
		w.acquitProgram(l, b.LeaseToken, err == nil && !mustConfirm)
	}
	if err != nil && errors.Is(context.Cause(ctx), feed.ErrStopped) {
		inhand.Interrupt(&w.inHand, b.LeaseToken)
	}
	return err
}

// blameProgram returns the error of a batch that a program had when it ended.
func (w *Worker) blameProgram(ctx context.Context, l *life, b *feed.Batch) error {
	<-l.ended // the exit code is known, and the process has no effect any more
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l.host.Left() <= 1 {
		return l.err
	}
	w.suspects.Add(b.LeaseToken)
	return &feed.Failure{
		Outage: true, Err: fmt.Errorf("%w (with %d batches in hand; they come again one at a time)", l.err, l.host.Left()),
	}
}

// noting returns a batch whose checkpoint is progress of a program that confirms by itself.
func (w *Worker) noting(l *life, b *feed.Batch) *feed.Batch {
	noted := *b
	noted.OnCheckpoint(func(ctx context.Context) error {
		err := b.Checkpoint(ctx)
		if err == nil {
			w.gotOn(l)
		}
		return err
	})
	return &noted
}

// acquitProgram notes that a program has survived a batch of a lease.
func (w *Worker) acquitProgram(l *life, lease string, isProgress bool) {
	w.suspects.Acquit(lease)
	if isProgress {
		w.gotOn(l)
	}
}

// gotOn notes that a program has made progress.
func (w *Worker) gotOn(l *life) {
	w.lives.Lock()
	defer w.lives.Unlock()
	l.gotOn = true
}

func (w *Worker) currentLife() *life {
	w.lives.Lock()
	defer w.lives.Unlock()
	return w.life
}
