package contract

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// HostOptions are the optional settings of a [Host].
type HostOptions struct {
	// Unit and Instance are told to the program: the name of the deployment unit and of the instance.
	Unit, Instance string

	// Manual says that the processor has Options.Manual: the program must confirm handled batches.
	Manual bool

	// Timeout is the processor's Options.HandlerTimeout, which the program is told with each batch; 0 is no limit.
	Timeout time.Duration

	// Patience returns how long a program may take to answer a cancel. After that the connection fails with
	// [ErrNotHeeded]. If Patience is nil, the host waits without a limit: the processor then reports a stuck handler.
	Patience func(Cause) time.Duration

	// Silent is called if a program that has announced heartbeats is silent for three of them, and once more with 0
	// when the program says something again.
	Silent func(since time.Duration)

	// Stop is called if the program asks for the end of the processor.
	Stop func()

	// Events says that the owner of the host calls [Host.Tell] with the events of the processor.
	Events bool

	// Status and CaughtUp answer the questions of the program about the unit. Each may wait until the processor runs. A
	// program of a host without them cannot ask.
	Status   func(context.Context) (UnitStatus, error)
	CaughtUp func(context.Context) error

	// Ended is called once, when the connection has ended.
	Ended func()
}

// ErrNotHeeded: the program has not answered a cancel in time.
var ErrNotHeeded = errors.New("the program has not given a canceled batch up in time")

// ErrEnded: the program has closed its end of the connection, usually because the program has ended.
var ErrEnded = errors.New("the program has closed the connection")

// ErrNotSent wraps the error of [Host.Handle] if the connection ended before the batch was sent: the program cannot be
// at fault, and another connection may handle the batch.
var ErrNotSent = errors.New("the batch was not sent")

// A Host is the processor's end of a connection to a program. It is a [feed.Handler].
type Host struct {
	opts  HostOptions
	slots chan struct{} // has an element for each batch that the program has
	lines *writer
	hello toHost

	work  sync.WaitGroup  // the goroutines of the connection
	ctx   context.Context // of checkpoints: ends with the connection
	end   context.CancelFunc
	done  chan struct{} // closed when the connection has ended
	mute  chan struct{} // closed when nothing more is written
	heard chan struct{} // has an element if a message has come

	questions atomic.Int32  // that wait for their answers
	measuring chan struct{} // has an element while a status is measured

	mu     sync.Mutex
	lastID int64
	calls  map[int64]*call
	unsure unconfirmed
	err    error // why the connection has ended
	left   int   // batches in hand at the end

	untold int // events that are not written yet
	missed int // events that were left out since the last one

	lastToken int64
	tokens    map[int64]chan tokenAnswer // requests without an answer
}

// call is a batch that the program has.
type call struct {
	batch  *feed.Batch
	answer chan error // has room for the outcome
}

// Connect makes a host of a connection: Connect sends the host's hello and waits for the program's hello, until ctx
// ends. The program reads from w and writes to r. After the connection has ended, and if Connect fails, close r, and
// call Wait.
func Connect(ctx context.Context, r io.Reader, w io.Writer, o HostOptions) (*Host, error) {
	h := &Host{
		opts: o, calls: map[int64]*call{},
		done: make(chan struct{}), mute: make(chan struct{}), heard: make(chan struct{}, 1),
		measuring: make(chan struct{}, 1),
	}
	h.ctx, h.end = context.WithCancel(context.WithoutCancel(ctx))
	h.lines = newWriter()
	h.work.Go(func() {
		defer close(h.mute)
		h.lines.writeLines(w, h.writeFailed)
	})
	h.lines.sendLine(encode(hostHello{KindHello, Version, o.Unit, o.Instance, o.Manual, o.abilities()}), nil)
	hello := make(chan toHost, 1)
	h.work.Go(func() { h.readMessages(bufio.NewReader(r), hello) })
	select {
	case h.hello = <-hello:
	case <-h.done:
		return h, h.Err()
	case <-ctx.Done():
		err := fmt.Errorf("wait for the hello of the program: %w", context.Cause(ctx))
		h.endConnection(err)
		return h, h.Err() // the connection may have ended before, and ctx with it
	}
	h.slots = make(chan struct{}, h.hello.Batches)
	if period := time.Duration(h.hello.Heartbeat * float64(time.Second)); period > 0 {
		h.work.Go(func() { h.watchSilence(silentPeriods * period) })
	}
	return h, nil
}

// writeFailed ends the connection with a program that reads no more. Earlier messages of the program may still be in
// the pipe, so writeFailed first waits for the end of the pipe, for a short time.
func (h *Host) writeFailed() {
	if !pause.UntilClosed(h.done, time.Second) {
		h.endConnection(ErrEnded)
	}
}

// silentPeriods is the number of heartbeats that may be missing.
const silentPeriods = 3

// Batches returns how many batches the program handles at once.
func (h *Host) Batches() int { return h.hello.Batches }

// Client returns the name of the program's library, such as "python 1.0"; empty if unknown.
func (h *Host) Client() string { return h.hello.Client }

// Done returns a channel that is closed when the connection has ended.
func (h *Host) Done() <-chan struct{} { return h.done }

// Err returns why the connection has ended; nil before.
func (h *Host) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Left returns how many batches the program had when the connection ended; 0 before.
func (h *Host) Left() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left
}

// Wait waits until the goroutines of a connection that has ended are gone: they read until r ends.
func (h *Host) Wait() { h.work.Wait() }

// AwaitWritten waits, after Close, until the program was sent everything, at most for a time: a program may not read.
func (h *Host) AwaitWritten(limit time.Duration) { pause.UntilClosed(h.mute, limit) }

// Close ends the connection: the program sees the end of the input.
func (h *Host) Close() { h.endConnection(ErrClosed) }

// Fail ends the connection as Close does, and tells a program that wants events why: the processor has ended with an
// error. code, reason and hint may be empty: the class of the error, the word of [feed.CodeOf], and the next step.
func (h *Host) Fail(text, code, reason, hint string) {
	if h.hello.Events {
		h.lines.sendLine(encode(toProgram{
			Type: KindError, Error: cutText(text), Code: code, Reason: reason, Hint: hint,
		}), nil)
	}
	h.Close()
}

// ErrClosed: the host has closed the connection.
var ErrClosed = errors.New("the processor has closed the connection")

// Stop tells the program that no further batch comes, and how long the batches in hand may take.
func (h *Host) Stop(within time.Duration) {
	h.lines.sendLine(encode(toProgram{Type: KindStop, Seconds: within.Seconds()}), nil)
}

// Handle sends a batch to the program and returns the outcome: nil, a [*feed.Failure] or another error. If ctx ends
// first, Handle tells the program and waits until the program has given the batch up.
func (h *Host) Handle(ctx context.Context, b *feed.Batch) error {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-h.done:
		return fmt.Errorf("%w: %w", ErrNotSent, h.Err())
	case <-ctx.Done():
		return Untried(fmt.Errorf("wait for one of %d batches of the program to end: %w", cap(h.slots),
			context.Cause(ctx)))
	}
	c := &call{b, make(chan error, 1)}
	id, err := h.beginCall(c)
	if err != nil {
		return err
	}
	line := h.lines.takeBuffer()
	if *line, err = encodeBatch(*line, h.describeBatch(id, b), b, h.hello.Columns); err != nil {
		h.lines.freeBuffer(line)
		h.takeCall(id)
		return err
	}
	h.lines.sendBuffer(line, func() error { // a process that was suspended must not begin a batch of a lost lease
		if cause := context.Cause(ctx); cause != nil {
			h.answerCall(id, Untried(cause))
			return cause
		}
		return nil
	})
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		return h.giveUp(ctx, id, c)
	}
}

// Untried returns the error of a batch that the program never had: no change is at fault, so nothing counts as an
// attempt, also if the time of the batch is over.
func Untried(err error) error { return &feed.Failure{Outage: true, Err: err} }

// beginCall gives a batch its id.
func (h *Host) beginCall(c *call) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotSent, h.err)
	}
	h.lastID++
	h.calls[h.lastID] = c
	if c.batch.IsManual() {
		h.unsure.add(h.lastID, c.batch)
	}
	return h.lastID, nil
}

// describeBatch describes a batch.
func (h *Host) describeBatch(id int64, b *feed.Batch) batchHead {
	head := batchHead{
		Type: KindBatch, ID: id, Lease: b.LeaseToken, Range: b.Range.String(),
		Instance: b.Instance, Epoch: b.Epoch, Attempt: b.Attempt, Cut: b.Cut, Redriven: b.Redriven,
		Manual: b.IsManual(), Session: b.Session, Head: b.Head, Charge: b.Charge, Seconds: h.opts.Timeout.Seconds(),
	}
	if b.Position != (feed.Position{}) {
		head.Position = b.Position.String()
	}
	return head
}

// giveUp tells the program to give a batch up, and waits for the answer.
func (h *Host) giveUp(ctx context.Context, id int64, c *call) error {
	cause := causeOf(context.Cause(ctx))
	message := toProgram{Type: KindCancel, ID: id, Cause: cause}
	var late <-chan time.Time
	if h.opts.Patience != nil {
		patience := h.opts.Patience(cause)
		message.Seconds = patience.Seconds()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	h.lines.sendLine(encode(message), func() error {
		if h.findCall(id) == nil {
			return feed.ErrStopped // answered meanwhile
		}
		return nil
	})
	select {
	case err := <-c.answer:
		if errors.Is(err, errReleased) {
			return context.Cause(ctx)
		}
		return err
	case <-late:
		h.endConnection(fmt.Errorf("%w (lease %s, %s)", ErrNotHeeded, c.batch.LeaseToken, cause))
		return <-c.answer
	}
}

// findCall returns the call of a batch that the program has; nil if there is no call with this id.
func (h *Host) findCall(id int64) *call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[id]
}

// takeCall ends and returns a call; nil if there is none.
func (h *Host) takeCall(id int64) *call {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.calls[id]
	delete(h.calls, id)
	return c
}

// answerCall ends a call with an outcome.
func (h *Host) answerCall(id int64, outcome error) {
	if c := h.takeCall(id); c != nil {
		c.answer <- outcome
	}
}

// endConnection ends the connection: each batch that the program has has failed.
func (h *Host) endConnection(err error) {
	h.mu.Lock()
	if h.err != nil {
		h.mu.Unlock()
		return
	}
	h.err = err
	calls := h.calls
	h.calls, h.left = nil, len(calls) // a nil map has no call
	h.unsure.abandon(calls)           // before the end is seen, so before another program can confirm anything
	close(h.done)
	h.mu.Unlock()
	for _, c := range calls {
		c.answer <- err
	}
	if wrong, ok := errors.AsType[*BreachError](err); ok {
		h.lines.sendLine(encode(toProgram{Type: KindError, Error: wrong.Error()}), nil)
	}
	h.lines.endLines()
	h.end()
	if h.opts.Ended != nil {
		h.opts.Ended()
	}
}
