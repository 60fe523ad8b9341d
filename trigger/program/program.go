// Package program makes a program the handler of a change feed processor: it is started for each batch of changes,
// in any language, and the batch is done when it exits with 0.
//
//	handler, err := program.New([]string{"./mail.sh", "-q"}, program.Options{Stderr: os.Stderr})
//	...
//	processor, err := changefeed.New(orders, leases, handler, changefeed.Options{Instance: "mailer-1"})
//
// The program reads the changes from its standard input, one a line: the document as JSON or, with [Options.Meta], an
// object that has the document in it. Its environment says what the batch is of:
//
//	CHANGEFEED_LEASE      the token of the lease
//	CHANGEFEED_RANGE      its range of effective partition keys, min-max
//	CHANGEFEED_INSTANCE   the name of the processor's instance
//	CHANGEFEED_ATTEMPT    1 the first time, then one more each time that the batch has failed
//
// Any other exit code is a failure, after which the processor delivers the batch again. A program must be idempotent:
// after a crash of the processor, too, the last batch is delivered again.
//
// # How a program ends
//
// A program is a process group of its own, so that a Ctrl-C of the terminal reaches the processor alone, which lets the
// program finish. When the processor ends a batch before the program does, the group gets SIGTERM, and SIGKILL if it
// does not heed that. After a lost lease another instance begins a tenth of the expiration later, so the kill comes
// after half of that. On Linux a program dies with the process that started it. Where there are no process groups, the
// program is killed at once, and what it has started goes on.
//
// Whether a batch is done is decided by the lease: a position is stored under the ETag of the lease, so the exit code
// of a program whose lease was lost changes nothing.
package program

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
)

// Options are the optional settings of a [Handler].
type Options struct {
	// Meta writes each change as an object with its LSN, time, operation, id, key and range beside the document,
	// because a document alone does not say whether it was deleted, or in which order it was written.
	Meta bool

	// Grace is the time between SIGTERM and SIGKILL. It should be shorter than [changefeed.Options.Drain], or the
	// processor gives the handler up before the kill. The default is [DefaultGrace].
	Grace time.Duration

	// Expiration is that of the leases, [changefeed.Options.Expiration]: after a lost lease the kill comes within a
	// twentieth of it. The default is a minute, as there.
	Expiration time.Duration

	// Jobs is how many programs run at most at once, for all leases together; 0 is no limit. A batch waits for its
	// turn within [changefeed.Options.HandlerTimeout].
	Jobs int

	// Stdout and Stderr get what programs write, several of them at the same time. Nil discards it.
	Stdout, Stderr io.Writer

	// Log gets each line that a program writes to standard error, as a warning with the lease of its
	// batch, so that lines of several programs can be told apart. Stderr then gets nothing.
	Log *slog.Logger
}

// DefaultGrace is the grace of a program whose options name none.
const DefaultGrace = 5 * time.Second

const defaultExpiration = time.Minute

// hurriedPart is the part of the expiration that a program has after its lease was lost: half of the margin that the
// processor keeps.
const hurriedPart = 20

// A Handler is a [feed.Handler] that starts a program for each batch. It may be shared by processors.
type Handler struct {
	path    string
	command []string // beginning with the name that it was called by
	opts    Options
	form    changeline.Form
	turns   chan struct{} // one in it for each program that runs; nil is no limit

	mu      sync.Mutex
	running map[*exec.Cmd]string // those that have not ended, with their leases
	cut     []string             // leases whose batches were ended because the processor stops
	closed  bool                 // nothing may be started any more
}

// New makes the handler of a command, a program and its arguments. The program is looked for as a shell does, now and
// not at the first batch: the error is an [exec.Error] when there is none.
func New(command []string, o Options) (*Handler, error) {
	if len(command) == 0 {
		return nil, errors.New("program: command is empty: want a program and its arguments")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("find program: %w", err)
	}
	o.Grace, o.Expiration = cmp.Or(o.Grace, DefaultGrace), cmp.Or(o.Expiration, defaultExpiration)
	h := &Handler{path: path, command: slices.Clone(command), opts: o, form: changeline.Form{Meta: o.Meta}}
	if o.Jobs > 0 {
		h.turns = make(chan struct{}, o.Jobs)
	}
	return h, nil
}

// Handle starts the program on a batch and waits for it. Its error has the exit code or the signal that ended the
// program, and the last line that it wrote to standard error, at most 1 KB.
func (h *Handler) Handle(ctx context.Context, b *feed.Batch) error {
	input, err := h.lines(b)
	if err != nil {
		return err
	}
	if h.turns != nil {
		select {
		case h.turns <- struct{}{}:
			defer func() { <-h.turns }()
		case <-ctx.Done():
			return fmt.Errorf("wait for one of %d programs to end: %w", h.opts.Jobs, context.Cause(ctx))
		}
	}
	cmd := h.process(ctx, b, input)
	to := h.opts.Stderr
	if h.opts.Log != nil {
		to = &lineLog{log: h.opts.Log.With("lease", b.LeaseToken)}
	}
	said, err := newStderr(cmd, to)
	if err == nil {
		err = h.start(b.LeaseToken, cmd)
		said.started()
	}
	if err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	defer h.forget(cmd)
	ended := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() { ended <- cmd.Wait() })
	defer waiting.Wait()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = h.end(ctx, cmd.Process, ended)
	}
	said.ended()
	if errors.Is(err, exec.ErrWaitDelay) { // it exited with 0, and left the pipe to others
		err = nil
	}
	if err != nil {
		kill(cmd.Process) // what it has started must not go on beside the next attempt
		if errors.Is(context.Cause(ctx), feed.ErrStopped) {
			h.unfinished(b.LeaseToken)
		}
		if reason := said.reason(); reason != "" {
			return fmt.Errorf("%s: %w: %s", h.command[0], err, reason)
		}
		return fmt.Errorf("%s: %w", h.command[0], err)
	}
	return nil
}

// start starts a process, unless all were killed.
func (h *Handler) start(lease string, cmd *exec.Cmd) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return feed.ErrStopped
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if h.running == nil {
		h.running = map[*exec.Cmd]string{}
	}
	h.running[cmd] = lease
	return nil
}

func (h *Handler) forget(cmd *exec.Cmd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, cmd)
}

func (h *Handler) unfinished(lease string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = append(h.cut, lease)
}

// Unfinished returns, sorted, the tokens of the leases whose batches were ended because the processor stops, since the
// last call: these batches are delivered again.
func (h *Handler) Unfinished() (leases []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	leases, h.cut = h.cut, nil
	slices.Sort(leases)
	return slices.Compact(leases)
}

// Running returns, sorted, the tokens of the leases for whose batches a program runs.
func (h *Handler) Running() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Compact(slices.Sorted(maps.Values(h.running))) // a lease may have several batches in hand
}

// Kill ends all programs and what they have started, and lets no other begin: their batches have failed. It is for a
// process that is about to exit without waiting for [changefeed.Processor.Run], because its programs would outlive it.
func (h *Handler) Kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for cmd := range h.running {
		kill(cmd.Process)
	}
}

// lines returns the changes of a batch, a line each.
func (h *Handler) lines(b *feed.Batch) (*bytes.Buffer, error) {
	var text bytes.Buffer
	w := bufio.NewWriter(&text)
	for _, c := range b.Changes {
		if err := h.form.Write(w, b.Range, c, ""); err != nil {
			return nil, err
		}
	}
	return &text, w.Flush()
}

func (h *Handler) process(ctx context.Context, b *feed.Batch, input *bytes.Buffer) *exec.Cmd {
	cmd := exec.Command(h.path)
	cmd.Args = h.command
	cmd.Env = append(os.Environ(),
		"CHANGEFEED_LEASE="+b.LeaseToken,
		"CHANGEFEED_RANGE="+b.Range.String(),
		"CHANGEFEED_INSTANCE="+b.Instance,
		"CHANGEFEED_ATTEMPT="+strconv.Itoa(b.Attempt),
	)
	cmd.Stdin, cmd.Stdout = fenced{ctx, input}, h.opts.Stdout
	cmd.WaitDelay = h.opts.Grace
	cmd.SysProcAttr = apart()
	return cmd
}

// fenced is input that ends when the lease is lost, because a process that was stopped and resumes must feed nobody. A
// program that is asked to end gets the rest, because it may use it. Where nothing is left to hold back, the end is
// the end: an error there would make [exec.Cmd.Wait] fail for a program that has exited with 0.
type fenced struct {
	ctx  context.Context
	left *bytes.Buffer
}

// Read implements [io.Reader].
func (f fenced) Read(p []byte) (int, error) {
	if f.left.Len() > 0 && errors.Is(context.Cause(f.ctx), feed.ErrLeaseLost) {
		return 0, feed.ErrLeaseLost
	}
	return f.left.Read(p)
}

// end asks a program to end, kills it if it does not, and returns how it ended.
func (h *Handler) end(ctx context.Context, process *os.Process, ended <-chan error) (err error) {
	patience := h.opts.Grace
	if errors.Is(context.Cause(ctx), feed.ErrLeaseLost) {
		patience = min(patience, h.opts.Expiration/hurriedPart)
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
