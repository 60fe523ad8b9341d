// Package program makes a program the handler of a change feed processor: the handler starts the program, written in
// any language, for each batch of changes. The batch is done when the program exits with 0.
//
//	handler, err := program.New([]string{"./mail.sh", "-q"}, program.Options{Stderr: os.Stderr})
//	...
//	processor, err := changefeed.New(orders, leases, handler, changefeed.Options{Instance: "mailer-1"})
//
// The program reads the changes from standard input, each on a line: the document as JSON or, with [Options.Meta], an
// object with the document. The environment describes the batch:
//
//	CHANGEFEED_LEASE      the token of the lease
//	CHANGEFEED_RANGE      its range of effective partition keys, min-max
//	CHANGEFEED_INSTANCE   the name of the processor's instance
//	CHANGEFEED_ATTEMPT    1 the first time, then one more each time that the batch has failed
//
// Any other exit code is a failure, after which the processor redelivers the batch. Write an idempotent program: after
// a crash of the processor, the last two batches may be redelivered too.
//
// # How a program ends
//
// A program has its own process group, so that a Ctrl-C of the terminal reaches only the processor, which lets the
// program finish. If the processor ends a batch before the program does, the group receives SIGTERM, and later SIGKILL
// if necessary. After a lost lease another instance begins a tenth of the expiration later, so the kill comes after
// half of that time. On Linux a program dies with its parent process. If there are no process groups, the program is
// killed at once, and its child processes go on.
//
// The lease decides whether a batch is done: a position is stored under the ETag of the lease. So if the lease was
// lost, the exit code of the program changes nothing.
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
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
	"github.com/millrace/changefeed/internal/child"
	"github.com/millrace/changefeed/internal/inhand"
	"github.com/millrace/changefeed/trigger/contract"
)

// Options are the optional settings of a [Handler].
type Options struct {
	// Meta writes each change as an object with its LSN, time, operation, id, key and range beside the document,
	// because a document alone does not show a delete, or the order of the writes.
	Meta bool

	// Grace is the time between SIGTERM and SIGKILL. Set Grace shorter than [changefeed.Options.Drain]; otherwise the
	// processor gives the handler up before the kill. The default is [DefaultGrace].
	Grace time.Duration

	// Expiration is the expiration of the leases, [changefeed.Options.Expiration]: after a lost lease the kill comes
	// within a twentieth of this time. The default is a minute, as in changefeed.Options.
	Expiration time.Duration

	// Jobs limits how many programs run at the same time, for all leases together; 0 is no limit. The time of a waiting
	// batch counts against [changefeed.Options.HandlerTimeout], and if that is over, no change is at fault.
	Jobs int

	// Stdout and Stderr receive the output of programs, possibly of several at the same time. Nil discards the output.
	Stdout, Stderr io.Writer

	// Log receives each line of a program's standard error, as a warning with the lease of the batch. So you can
	// distinguish the lines of several programs. Stderr then receives nothing.
	Log *slog.Logger
}

// DefaultGrace is the grace if you do not set Options.Grace.
const DefaultGrace = 5 * time.Second

const defaultExpiration = time.Minute

// hurriedPart is the part of the expiration which a program has after the loss of the lease: half of the processor's
// safety margin.
const hurriedPart = 20

// A Handler is a [feed.Handler] that starts a program for each batch. Several processors may share a Handler.
type Handler struct {
	path    string
	command []string // beginning with the name of the program, as given
	opts    Options
	form    changeline.Form
	turns   chan struct{} // contains an element for each running program; nil is no limit

	inHand

	ends   sync.Mutex
	runs   map[*exec.Cmd]bool // running programs
	closed bool               // no further program may start
}

// New makes the handler of a command, a program and its arguments. New searches for the program as a shell does, now
// and not at the first batch: if the program is missing, the error is an [exec.Error].
func New(command []string, o Options) (*Handler, error) {
	path, err := findProgram(command)
	if err != nil {
		return nil, err
	}
	o.Grace, o.Expiration = cmp.Or(o.Grace, DefaultGrace), cmp.Or(o.Expiration, defaultExpiration)
	h := &Handler{path: path, command: slices.Clone(command), opts: o, form: changeline.Form{Meta: o.Meta}}
	if o.Jobs > 0 {
		h.turns = make(chan struct{}, o.Jobs)
	}
	return h, nil
}

// findProgram returns the path of the program of a command, as a shell finds it.
func findProgram(command []string) (string, error) {
	if len(command) == 0 {
		return "", errors.New("program: command is empty: want a program and its arguments")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return "", fmt.Errorf("find program: %w", err)
	}
	return path, nil
}

// Handle starts the program on a batch and waits for the end. The error contains the exit code of the program, or the
// signal that ended the program, and the last line of standard error, at most 1 KB.
func (h *Handler) Handle(ctx context.Context, b *feed.Batch) error {
	input, err := h.batchLines(b)
	if err != nil {
		return err
	}
	if h.turns != nil {
		select {
		case h.turns <- struct{}{}:
			defer func() { <-h.turns }()
		case <-ctx.Done():
			return contract.Untried(fmt.Errorf("wait for one of %d programs to end: %w", h.opts.Jobs,
				context.Cause(ctx)))
		}
	}
	// before the program runs: what it prints may reach somebody before its start has returned
	inhand.Count(&h.inHand, b.LeaseToken, +1)
	defer inhand.Count(&h.inHand, b.LeaseToken, -1)
	cmd := h.runProcess(ctx, b, input)
	to := h.opts.Stderr
	if h.opts.Log != nil {
		to = &child.LineLog{Say: h.opts.Log.With("lease", b.LeaseToken).Warn}
	}
	said, err := child.NewStderr(cmd, to)
	if err == nil {
		err = h.startProcess(cmd)
		said.CloseOurEnd()
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
		err = h.endProcess(ctx, cmd.Process, ended)
	}
	said.AwaitEnd()
	if errors.Is(err, exec.ErrWaitDelay) { // the program exited with 0, and other processes still have the pipe
		err = nil
	}
	if err != nil {
		child.Kill(cmd.Process) // child processes must not go on beside the next attempt
		if errors.Is(context.Cause(ctx), feed.ErrStopped) {
			inhand.Interrupt(&h.inHand, b.LeaseToken)
		}
		if reason := said.LastLine(); reason != "" {
			return fmt.Errorf("%s: %w: %s", h.command[0], err, reason)
		}
		return fmt.Errorf("%s: %w", h.command[0], err)
	}
	return nil
}

// startProcess starts a process, unless all programs were killed.
func (h *Handler) startProcess(cmd *exec.Cmd) error {
	h.ends.Lock()
	defer h.ends.Unlock()
	if h.closed {
		return feed.ErrStopped
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if h.runs == nil {
		h.runs = map[*exec.Cmd]bool{}
	}
	h.runs[cmd] = true
	return nil
}

func (h *Handler) forget(cmd *exec.Cmd) {
	h.ends.Lock()
	defer h.ends.Unlock()
	delete(h.runs, cmd)
}

// Kill ends all programs and their child processes, and starts no other: their batches have failed. Call Kill if your
// process is about to exit without waiting for [changefeed.Processor.Run], because otherwise the programs would go on.
func (h *Handler) Kill() {
	h.ends.Lock()
	defer h.ends.Unlock()
	h.closed = true
	for cmd := range h.runs {
		child.Kill(cmd.Process)
	}
}

// batchLines returns the changes of a batch, one per line.
func (h *Handler) batchLines(b *feed.Batch) (*bytes.Buffer, error) {
	var text bytes.Buffer
	w := bufio.NewWriter(&text)
	for _, c := range b.Changes {
		if err := h.form.Write(w, b.Range, c, ""); err != nil {
			return nil, err
		}
	}
	return &text, w.Flush()
}

func (h *Handler) runProcess(ctx context.Context, b *feed.Batch, input *bytes.Buffer) *exec.Cmd {
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
	cmd.SysProcAttr = child.Apart()
	return cmd
}

// fenced is input that ends when the lease is lost, because a process that was suspended and resumes must not write to
// a program. If a program is only asked to end, it receives the rest of the input, because it may use the rest. If no
// input is left, Read returns the usual end: an error there would make [exec.Cmd.Wait] fail for a program that has
// exited with 0.
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

// endProcess asks a program to end, kills the program if necessary, and returns the result.
func (h *Handler) endProcess(ctx context.Context, process *os.Process, ended <-chan error) (err error) {
	patience := h.opts.Grace
	if errors.Is(context.Cause(ctx), feed.ErrLeaseLost) {
		patience = min(patience, h.opts.Expiration/hurriedPart)
	}
	child.Terminate(process)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err = <-ended:
		child.Kill(process) // child processes may still run
	case <-timer.C:
		child.Kill(process)
		err = <-ended
	}
	return err
}
