// Package scratch contains the directories that must not outlive the process: those of demo and bench, and a copy that
// is not whole. A command removes its directories at its end. If the user does not wait for the end of an interrupted
// command, and interrupts a second time, the directories are removed, and the process ends.
package scratch

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// SameSignal: a second SIGTERM or SIGHUP within this time counts as the first, because timeout(1) sends its signal to
// the child, and then to the child's group.
const SameSignal = time.Second

// Terminations returns the signals that end a command as SIGTERM does. A terminal sends SIGHUP if its window is closed.
// Under nohup, SIGHUP is ignored, and the command goes on.
func Terminations() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGTERM, syscall.SIGHUP}
}

// Ends returns all signals that end a command: Ctrl-C and the terminations.
func Ends() []os.Signal { return append([]os.Signal{os.Interrupt}, Terminations()...) }

// IsAgain reports whether a signal that follows the first one after a time is an order to end at once. A second SIGINT
// always is, even at once: a person types Ctrl-C twice on purpose.
func IsAgain(s os.Signal, after time.Duration) bool { return s == os.Interrupt || after > SameSignal }

// A Dir is a directory that a command removes at its end.
type Dir struct {
	Path string

	moving   sync.Mutex // of changes of Path, and its removal after a second signal
	over     chan struct{}
	watching sync.WaitGroup
}

// Make makes a directory for a command in a directory; empty means the system's for temporary files. exit ends the
// process.
func Make(in, prefix string, exit func()) (*Dir, error) {
	path, err := os.MkdirTemp(in, prefix)
	if err != nil {
		return nil, fmt.Errorf("make directory for the data: %w", err)
	}
	return Guard(path, exit), nil
}

// Guard takes care of a directory that the command makes itself. The directory may not exist. exit ends the
// process.
func Guard(path string, exit func()) *Dir {
	d := &Dir{Path: path, over: make(chan struct{})}
	// Package signal does not wait for a reader, so two signals at the same time need room for two.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, Ends()...)
	d.watching.Go(func() {
		defer signal.Stop(signals)
		if AwaitSecond(signals, d.over) {
			_ = d.remove() // nobody is left to whom to report an error
			exit()
		}
	})
	return d
}

// AwaitSecond waits for a second signal, and returns false if over is closed before.
func AwaitSecond(signals <-chan os.Signal, over <-chan struct{}) bool {
	return AwaitAgain(time.Time{}, signals, over)
}

// AwaitAgain is [AwaitSecond] for a time at which the first signal has come; zero means not yet.
func AwaitAgain(first time.Time, signals <-chan os.Signal, over <-chan struct{}) bool {
	for {
		select {
		case s := <-signals:
			if !first.IsZero() && IsAgain(s, time.Since(first)) {
				return true
			}
			if first.IsZero() {
				first = time.Now()
			}
		case <-over:
			return false
		}
	}
}

// MoveTo says that the directory has another path now. The signals before count as before.
func (d *Dir) MoveTo(path string) {
	d.moving.Lock()
	defer d.moving.Unlock()
	d.Path = path
}

// Release leaves the directory, which its command keeps or has removed.
func (d *Dir) Release() {
	close(d.over)
	d.watching.Wait()
}

// Remove removes the directory, and releases it.
func (d *Dir) Remove() error {
	defer d.Release()
	return os.RemoveAll(d.Path)
}

// remove removes the directory while the command is still writing there: under another name, the directory gets no new
// files.
func (d *Dir) remove() error {
	d.moving.Lock()
	defer d.moving.Unlock()
	path := filepath.Clean(d.Path)
	if gone := path + ".gone"; os.Rename(path, gone) == nil {
		path = gone
	}
	return os.RemoveAll(path)
}
