package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/child"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/suspects"
	"github.com/millrace/changefeed/trigger/contract"
)

// supervise keeps a program running until ctx ends. The channel stopping is closed when no further batch comes.
func (w *Worker) supervise(ctx context.Context, stopping <-chan struct{}) {
	rest := firstPause
	for {
		l := w.currentLife()
		err := w.live(ctx, l, stopping)
		isOver := w.endLife(l, err)
		if ctx.Err() != nil || isOver {
			return
		}
		if w.hasGotOn(l) {
			rest = firstPause
		}
		w.opts.Log.Warn("the program has ended and is started again", "err", err, "in", rest)
		_ = pause.For(ctx, rest) // if ctx ends, the next life sees that
		rest = min(2*rest, lastPause)
	}
}

// endLife notes why a life has ended, and prepares the next one. It reports whether there is none.
func (w *Worker) endLife(l *life, err error) (isOver bool) {
	w.lives.Lock()
	defer w.lives.Unlock()
	isReady := l.host != nil
	l.err, l.process = err, nil
	if !isReady {
		close(l.ready)
	}
	w.life = newLife()
	if w.closed {
		w.life.err = feed.ErrStopped
		close(w.life.ready)
	}
	close(l.ended)
	return w.closed
}

// hasGotOn reports whether the program has made progress in a life.
func (w *Worker) hasGotOn(l *life) bool {
	w.lives.Lock()
	defer w.lives.Unlock()
	return l.gotOn
}

// live runs the program once, and returns why it has ended.
func (w *Worker) live(ctx context.Context, l *life, stopping <-chan struct{}) error {
	p, err := w.startProgram(l)
	if err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	exited := make(chan error, 1)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() { exited <- p.cmd.Wait() })
	late := fmt.Errorf("not within %v: want it as a line, written to the descriptor in $%s", w.opts.Start, contract.EnvWrite)
	starting, cancel := context.WithTimeoutCause(ctx, w.opts.Start, late)
	host, err := contract.Connect(starting, p.fromProgram, w.opts.Wire(p.toProgram), hostOptions(w.opts))
	cancel()
	defer host.Wait()
	end := "has ended before its hello"
	if err == nil {
		end = "has ended"
		w.opts.Log.Info("the program runs", "pid", p.cmd.Process.Pid, "batches", host.Batches(),
			"client", host.Client())
		w.lives.Lock()
		l.host, l.turn = host, suspects.NewTurn()
		w.lives.Unlock()
		close(l.ready)
		w.greet(host)
		err = w.accompany(ctx, host, exited, stopping)
	}
	return w.endProgram(p, exited, end, err)
}

// accompany waits for the end of the program, of the connection or of the supervision, and returns why the connection
// has ended; nil if all is in order.
func (w *Worker) accompany(
	ctx context.Context, host *contract.Host, exited chan error, stopping <-chan struct{},
) error {
	for {
		select {
		case <-stopping:
			host.Stop(w.opts.Drain)
			stopping = nil
		case <-ctx.Done():
			if stopping != nil {
				host.Stop(w.opts.Grace)
			}
			host.Close()
			return nil
		case <-host.Done():
			return host.Err()
		case err := <-exited:
			exited <- err
			return hearOut(host)
		}
	}
}

// hearOut waits until the host has read what the program said before its end, because these answers count, and returns
// why the connection has ended. A child process may still have the pipe, so hearOut does not wait for long.
func hearOut(host *contract.Host) error {
	if pause.UntilClosed(host.Done(), toldTime) {
		return host.Err()
	}
	return contract.ErrEnded
}

// running is a process with its pipes.
type running struct {
	cmd                    *exec.Cmd
	toProgram, fromProgram *os.File
	said                   *child.Output
}

// startProgram starts the process.
func (w *Worker) startProgram(l *life) (*running, error) {
	theirInput, toProgram, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirInput.Close()
	fromProgram, theirOutput, err := os.Pipe()
	if err != nil {
		toProgram.Close()
		return nil, err
	}
	defer theirOutput.Close()
	cmd := exec.Command(w.path)
	cmd.Args, cmd.Stdout, cmd.SysProcAttr = w.command, w.opts.Stdout, child.Apart()
	in, out := connectPipes(cmd, theirInput, theirOutput)
	cmd.Env = append(os.Environ(), "CHANGEFEED_CONTRACT="+strconv.Itoa(contract.Version),
		contract.EnvRead+"="+strconv.Itoa(in), contract.EnvWrite+"="+strconv.Itoa(out),
		"CHANGEFEED_INSTANCE="+w.opts.Instance)
	cmd.WaitDelay = w.opts.Grace
	said, err := child.NewStderr(cmd, &child.LineLog{Say: w.opts.Log.Warn})
	if err == nil {
		err = w.startProcess(l, cmd)
		said.CloseOurEnd()
	}
	if err != nil {
		toProgram.Close()
		fromProgram.Close()
		return nil, err
	}
	return &running{cmd, toProgram, fromProgram, said}, nil
}

// startProcess starts the process, unless the worker was killed.
func (w *Worker) startProcess(l *life, cmd *exec.Cmd) error {
	w.lives.Lock()
	defer w.lives.Unlock()
	if w.closed {
		return feed.ErrStopped
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	l.process = cmd
	return nil
}

// endProgram waits for the end of the process, and hurries it if necessary: a program that has broken the contract, or
// has not given a batch up, is killed. The error says why the program has ended, in the words of end; nil if it has
// ended as it should.
func (w *Worker) endProgram(p *running, exited <-chan error, end string, why error) error {
	var patience time.Duration
	switch {
	case why == nil, errors.Is(why, contract.ErrEnded):
		patience = w.opts.Grace
	case errors.As(why, new(*contract.BreachError)):
		patience = toldTime
	}
	err, isEnded := awaitExit(exited, patience)
	if !isEnded && why == nil {
		child.Terminate(p.cmd.Process)
		err, isEnded = awaitExit(exited, w.opts.Grace)
	}
	child.Kill(p.cmd.Process) // child processes may still run
	wasKilled := !isEnded
	if wasKilled {
		err = <-exited
	}
	p.toProgram.Close() // ends a write to a program that does not read
	p.fromProgram.Close()
	p.said.AwaitEnd()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	switch {
	case why == nil && err == nil:
		return nil
	case why != nil && !errors.Is(why, contract.ErrEnded):
		return fmt.Errorf("%s: %w", w.command[0], why)
	}
	if why != nil && wasKilled {
		return fmt.Errorf("%s has closed a pipe of the contract, and did not end within %v: it was killed", w.command[0],
			patience)
	}
	text := cmp.Or(errorText(err), "exit status 0")
	if reason := p.said.LastLine(); reason != "" {
		text += ": " + reason
	}
	return fmt.Errorf("%s %s: %s", w.command[0], end, text)
}

// toldTime is how long a program that has broken the contract may take to read how.
const toldTime = time.Second

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// awaitExit waits for the end of a process, at most for some time.
func awaitExit(exited <-chan error, patience time.Duration) (err error, isEnded bool) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err = <-exited:
		return err, true
	case <-timer.C:
		return nil, false
	}
}

// hostOptions returns the options of a connection.
func hostOptions(o WorkerOptions) contract.HostOptions {
	return contract.HostOptions{
		Unit: o.Unit, Instance: o.Instance, Manual: o.Manual, Timeout: o.Timeout, Stop: o.Stop,
		Events: true, Status: o.Status, CaughtUp: o.CaughtUp,
		Patience: func(cause contract.Cause) time.Duration {
			if cause == contract.CauseLost {
				return min(o.Grace, o.Expiration/hurriedPart)
			}
			return o.Grace
		},
		Silent: func(since time.Duration) {
			if since == 0 {
				o.Log.Warn("the program answers again")
				return
			}
			o.Log.Warn("the program says nothing: is its event loop blocked?",
				"for", since.Round(time.Second/10).String())
		},
	}
}
