package function

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/child"
	"github.com/millrace/changefeed/internal/suspects"
)

// HostOptions are the optional settings of a [Host]. The zero value works.
type HostOptions struct {
	// Environment has the variables of the program, NAME=VALUE, to which the host adds its own. Nil is the environment
	// of this process.
	Environment []string

	// Grace is the time between SIGTERM and SIGKILL. The default is [DefaultGrace].
	Grace time.Duration

	// Drain is [changefeed.Options.Drain]: how long an invocation may go on when the processor stops. The program is
	// told with each request, unless Drain is 0.
	Drain time.Duration

	// Patience is how long the program may take to answer after its start before the log says that it does not. The
	// default is [DefaultPatience].
	Patience time.Duration

	// Log receives what the program prints and the functions log, and the starts and ends of the program. Nil is
	// [slog.Default].
	Log *slog.Logger
}

// The durations if you do not set those of HostOptions.
const (
	DefaultGrace    = 5 * time.Second
	DefaultPatience = 10 * time.Second
)

// The pauses between the end of the program and its next start. The first one follows a program that has done an
// invocation; without one the pause doubles.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// lateGrace is how long other invocations may go on when one has taken too long, at most, before the program is ended.
const lateGrace = 2 * time.Second

// A Host keeps the program of an app, its custom handler, which does the invocations of all functions. A program that
// ends, whatever its exit code, is started again after a pause.
type Host struct {
	app    *App
	opts   HostOptions
	client *http.Client
	stop   context.CancelFunc // ends the supervision

	supervision sync.WaitGroup
	suspects    suspects.Suspects

	mu     sync.Mutex
	life   *life // the present or the next one
	closed bool  // no further program may start
}

// life is one run of the program.
type life struct {
	ready   chan struct{} // closed when address or err is set
	address string        // host and port of the program that answers
	err     error         // why the program could not be started, or has ended
	turn    *suspects.Turn

	condemned chan struct{} // closed when the program must end; reason says why
	reason    error
	quiet     chan struct{} // closed when a program that must end has no invocation in hand
	exited    chan struct{} // closed when the process is gone
	ended     chan struct{} // closed when the process and its group are gone, and the next life is there

	process *exec.Cmd
	calls   int  // invocations in hand
	left    int  // invocations in hand when the process ended
	handled bool // an invocation was answered
}

func newLife() *life {
	return &life{
		ready: make(chan struct{}), condemned: make(chan struct{}), quiet: make(chan struct{}),
		exited: make(chan struct{}), ended: make(chan struct{}),
	}
}

// NewHost makes the host of an app. NewHost starts nothing, but looks for the program. Call Start before a processor
// runs, and Close afterwards.
func NewHost(app *App, o HostOptions) (*Host, error) {
	if o.Environment == nil {
		o.Environment = os.Environ()
	}
	o.Environment = slices.Clip(o.Environment)
	o.Grace, o.Patience = cmp.Or(o.Grace, DefaultGrace), cmp.Or(o.Patience, DefaultPatience)
	o.Log = cmp.Or(o.Log, slog.Default())
	if app.Program.Executable == "" {
		return nil, errors.New("function: the app has no program: want customHandler.description.defaultExecutablePath")
	}
	if cmd := app.newCommand(o.Environment, loopback+":0", ""); cmd.Err != nil {
		return nil, fmt.Errorf("customHandler.description.defaultExecutablePath is %s: find program: %w",
			app.Program.Executable, cmd.Err)
	}
	return &Host{app: app, opts: o, client: newClient(), life: newLife()}, nil
}

// Start starts the program, and starts it again whenever it has ended, until Close.
func (h *Host) Start(ctx context.Context) {
	supervised, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.mu.Lock()
	h.stop = stop
	h.mu.Unlock()
	h.supervision.Go(func() { h.supervise(supervised) })
}

// Close ends the program: it receives SIGTERM, and is killed after Grace. Close returns when the program is gone. Close
// when all processors have ended: an invocation in hand fails.
func (h *Host) Close() {
	if h.stop != nil {
		h.stop()
		h.supervision.Wait()
	}
	h.client.CloseIdleConnections()
}

// Kill ends the program at once, and starts no other: its invocations have failed.
func (h *Host) Kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.stop != nil {
		h.stop() // a pause before the next start ends
	}
	if p := h.life.process; p != nil {
		child.Kill(p.Process)
	}
}

func (h *Host) currentLife() *life {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life
}

// condemn asks for the end of a program, and says why.
func (h *Host) condemn(l *life, reason error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.reason != nil {
		return
	}
	l.reason = reason
	close(l.condemned)
	if l.calls == 0 {
		close(l.quiet)
	}
}

// beginCall counts an invocation. It reports false if the program takes none any more.
func (h *Host) beginCall(l *life) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.reason != nil || isClosed(l.exited) {
		return false
	}
	l.calls++
	return true
}

// endCall counts the end of an invocation, and notes whether the program has answered.
func (h *Host) endCall(l *life, isAnswered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.calls--
	l.handled = l.handled || isAnswered
	if l.calls == 0 && l.reason != nil {
		close(l.quiet)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// untried returns the error of an invocation that the program never had: no change is at fault.
func untried(err error) error { return &feed.Failure{Outage: true, Err: err} }
