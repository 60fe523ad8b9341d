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

// SameSignal: a second SIGTERM within this time counts as the first, because timeout(1) sends SIGTERM to the child, and
// then to the child's group.
const SameSignal = time.Second

// A Dir is a directory that a command removes at its end.
type Dir struct {
	Path string

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
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
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
	var first time.Time
	for {
		select {
		case s := <-signals:
			// A second SIGINT always counts, even at once: a person types Ctrl-C twice on purpose.
			if !first.IsZero() && (s != syscall.SIGTERM || time.Since(first) > SameSignal) {
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
	path := filepath.Clean(d.Path)
	if gone := path + ".gone"; os.Rename(path, gone) == nil {
		path = gone
	}
	return os.RemoveAll(path)
}
