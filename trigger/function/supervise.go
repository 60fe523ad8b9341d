package function

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/child"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/suspects"
)

// supervise keeps the program running until ctx ends.
func (h *Host) supervise(ctx context.Context) {
	rest := firstPause
	for {
		l := h.currentLife()
		err := h.live(ctx, l)
		isOver, hasHandled := h.endLife(l, err)
		if ctx.Err() != nil || isOver {
			return
		}
		if hasHandled {
			rest = firstPause
		}
		h.opts.Log.Warn("the program has ended and is started again", "err", err, "in", rest)
		_ = pause.For(ctx, rest) // if ctx ends, the next life sees that
		rest = min(2*rest, lastPause)
	}
}

// endLife notes why a life has ended, and prepares the next one. It reports whether there is none, and whether the
// program has answered an invocation.
func (h *Host) endLife(l *life, err error) (isOver, hasHandled bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.err, l.process = err, nil
	if err == nil {
		l.err = feed.ErrStopped
	}
	if l.address == "" {
		close(l.ready)
	}
	h.life = newLife()
	if h.closed || err == nil {
		h.life.err = feed.ErrStopped
		close(h.life.ready)
	}
	close(l.ended)
	return h.closed, l.handled
}

// running is a process with its outputs.
type running struct {
	cmd        *exec.Cmd
	said, told *child.Output // standard error and output
}

// live runs the program once, and returns why it has ended; nil if the supervision has ended.
func (h *Host) live(ctx context.Context, l *life) error {
	if ctx.Err() != nil { // ended in the pause before
		return nil
	}
	address, err := freeAddress()
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	p, err := h.startProgram(l, address)
	if err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	exited := make(chan error, 1)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		err := p.cmd.Wait()
		h.noteExit(l)
		exited <- err
	})
	if err = h.awaitAnswer(ctx, l, address); err == nil {
		h.opts.Log.Info("the program runs", "pid", p.cmd.Process.Pid, "address", address)
		h.mu.Lock()
		l.address, l.turn = address, suspects.NewTurn()
		h.mu.Unlock()
		close(l.ready)
		err = accompany(ctx, l, min(lateGrace, h.opts.Grace))
	}
	if ctx.Err() != nil {
		err = nil
	}
	return h.endProgram(p, exited, err)
}

// noteExit notes that the process is gone, and how many invocations it had.
func (h *Host) noteExit(l *life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.left = l.calls
	close(l.exited)
}

// accompany waits for the end of a program, and returns why it must end; nil if it is gone, or if ctx has ended.
func accompany(ctx context.Context, l *life, grace time.Duration) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.exited:
		return errGone
	case <-l.condemned:
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-late.C:
	case <-l.quiet:
	case <-l.exited:
	case <-ctx.Done():
	}
	return l.reason
}

// errGone: the process has ended by itself.
var errGone = errors.New("the program has ended")

// startProgram starts the process, unless the host was killed.
func (h *Host) startProgram(l *life, address string) (*running, error) {
	cmd := h.app.newCommand(h.opts.Environment, address, newID())
	cmd.SysProcAttr, cmd.WaitDelay = child.Apart(), h.opts.Grace
	said, err := child.NewStderr(cmd, &child.LineLog{Say: h.sayError})
	if err != nil {
		return nil, err
	}
	defer said.CloseOurEnd()
	told, err := child.NewStdout(cmd, &child.LineLog{Say: h.opts.Log.Info})
	if err != nil {
		return nil, err
	}
	defer told.CloseOurEnd()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, feed.ErrStopped
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	l.process = cmd
	return &running{cmd, said, told}, nil
}

// sayError logs a line of standard error, by the rule of Azure.
func (h *Host) sayError(line string, args ...any) {
	say := h.opts.Log.Error
	if strings.Contains(strings.ToLower(line), "warn") {
		say = h.opts.Log.Warn
	}
	say(line, args...)
}

// readyPause is the pause between two questions whether the program answers.
const readyPause = 25 * time.Millisecond

// awaitAnswer asks until the program answers anything at all. The error says why it does not.
func (h *Host) awaitAnswer(ctx context.Context, l *life, address string) error {
	starting, cancel := ctx, context.CancelFunc(func() {})
	if limit := h.app.Program.Start; limit > 0 {
		starting, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf(
			"it does not answer at %s, the port of FUNCTIONS_CUSTOMHANDLER_PORT, within %v (initializationTimeout)", address,
			limit))
	}
	defer cancel()
	slow := time.AfterFunc(h.opts.Patience, func() {
		h.opts.Log.Warn("the program does not answer yet: want a server at the port of FUNCTIONS_CUSTOMHANDLER_PORT",
			"address", address, "after", h.opts.Patience)
	})
	defer slow.Stop()
	ticker := time.NewTicker(readyPause)
	defer ticker.Stop()
	for {
		req, err := http.NewRequestWithContext(starting, http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			return err
		}
		resp, err := h.client.Transport.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
			return nil
		}
		select {
		case <-ticker.C:
		case <-l.exited:
			return errGone
		case <-starting.Done():
			return context.Cause(starting)
		}
	}
}

// endProgram ends a process that is not gone: it receives SIGTERM, and is killed after the grace. The error says why
// the program has ended; nil if it has ended as it should.
func (h *Host) endProgram(p *running, exited <-chan error, why error) error {
	var err error
	select {
	case err = <-exited:
	default:
		if !errors.Is(why, errGone) {
			child.Terminate(p.cmd.Process)
		}
		timer := time.NewTimer(h.opts.Grace)
		select {
		case err = <-exited:
		case <-timer.C:
			child.Kill(p.cmd.Process)
			err = <-exited
		}
		timer.Stop()
	}
	child.Kill(p.cmd.Process) // child processes may still run
	p.said.AwaitEnd()
	p.told.AwaitEnd()
	name := p.cmd.Args[0]
	switch {
	case why == nil:
		return nil
	case !errors.Is(why, errGone):
		return fmt.Errorf("%s was ended: %w", name, why)
	}
	text := "exit status 0"
	if err != nil {
		text = err.Error()
	}
	if reason := p.said.LastLine(); reason != "" {
		text += ": " + reason
	}
	return fmt.Errorf("%s has ended: %s", name, text)
}
