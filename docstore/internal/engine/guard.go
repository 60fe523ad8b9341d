package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The library cannot handle every error of a disk. If a log cannot be created or closed, the library panics with
// locks held. If a manifest fails, the library reports a fatal error and goes on. If a flush fails, the library
// retries at once and for ever, even while a store is being opened. Therefore the library uses a guard, which hides
// those errors:
//
//   - Temporary errors (no space, no descriptors) are waited out at points where nothing has
//     been done yet: before a file is created, or before a log reserves space. While the store
//     is being opened, the guard does not wait, because the caller of Open waits for an answer.
//   - Any other error of a log, a manifest or the directory breaks the guard. From then on
//     nothing on the disk is changed, and all operations of the library are pretended to
//     succeed, so that the library finishes and can be closed. The store fails with the
//     reason, and the files are as if the process had been killed at that moment. No new
//     compaction begins (compact.go), because it might read pretended tables.
//   - An error of a table is shown, because the library can retry; the guard slows down the
//     retries. If they do not succeed within 10 seconds, the guard breaks, unless the disk is
//     full: then writes are refused, and the retries go on until there is room.

// guard is a file system between the library and the disk.
type guard struct {
	vfs.FS
	dir string

	opening atomic.Bool // if set, reads fail too after the guard has broken, to end the opening
	listed  atomic.Bool // the directory has been listed
	afresh  atomic.Bool // logs get new files instead of reused ones
	stalled atomic.Bool // a write has waited for room for a long time
	leaving atomic.Bool // the store is being closed: the wait for a full disk is as short as for other errors
	failure atomic.Pointer[error]
	broken  chan struct{} // closed when failure is set
	closing chan struct{} // closed when the wait for the disk must end
	once    sync.Once
	syncs   listeners // of the logs

	mu      sync.Mutex
	last    error     // the error being waited out
	since   time.Time // tables have failed since then; zero if they do not fail
	retries int
	tell    func(error) // called with the failure
}

// How long the guard waits for a disk that may recover.
const (
	// diskPatience is how long writers wait before the store fails. A longer wait would look like a hang to their
	// callers.
	diskPatience = 10 * time.Second
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	readPause    = 100 * time.Millisecond // after a failed read, because the library may repeat the read at once
)

// newGuard returns the guard of a store being opened.
func newGuard(fs vfs.FS, dir string) *guard {
	g := &guard{
		FS: fs, dir: fs.PathDir(fs.PathJoin(dir, "x")), broken: make(chan struct{}),
		closing: make(chan struct{}),
	}
	g.opening.Store(true)
	return g
}

// breakWith breaks the guard. The guard keeps the first reason, because later reasons are its consequences.
func (g *guard) breakWith(reason error) {
	if !g.failure.CompareAndSwap(nil, &reason) {
		return
	}
	close(g.broken)
	g.mu.Lock()
	tell := g.tell
	g.mu.Unlock()
	if tell != nil {
		tell(reason)
	}
}

// err returns the reason why the guard broke, or nil.
func (g *guard) err() error {
	if e := g.failure.Load(); e != nil {
		return *e
	}
	return nil
}

// isBroken reports whether the guard is broken. If so, writes are only pretended.
func (g *guard) isBroken() bool { return g.failure.Load() != nil }

// endOpening ends the time in which reads fail after a break. From now on the guard calls tell with its failure, at
// once if there is a failure already.
func (g *guard) endOpening(tell func(error)) {
	g.opening.Store(false)
	g.mu.Lock()
	g.tell = tell
	g.mu.Unlock()
	if err := g.err(); err != nil {
		tell(err)
	}
}

// breakWhenDone breaks the guard when ctx ends, unless settled is called first.
func (g *guard) breakWhenDone(ctx context.Context) (settled func()) {
	giveUp := func() {
		if err := g.waitsFor(); err != nil {
			g.breakWith(fmt.Errorf("%w, while waiting for the disk: %w", context.Cause(ctx), err))
			return
		}
		g.breakWith(context.Cause(ctx))
	}
	stop := context.AfterFunc(ctx, giveUp)
	return func() {
		if !stop() {
			giveUp()
		}
	}
}

// endWaits ends all waits for the disk, because the library is being closed.
func (g *guard) endWaits() { g.once.Do(func() { close(g.closing) }) }

// pause waits, and returns false if another try is useless.
func (g *guard) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-g.broken:
	case <-g.closing:
	}
	return false
}

// pauseReads waits after a failed read of the library, before the next read. pauseReads also waits if the guard is
// broken: then the library looks for pretended tables, and would repeat this without a pause.
func (g *guard) pauseReads() {
	timer := time.NewTimer(readPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.closing:
	}
}

// mayPass reports whether an error may be temporary: other processes may free space, descriptors and memory.
func mayPass(err error) bool {
	for _, e := range []error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
		syscall.EAGAIN,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// insist retries f while its error may be temporary, and returns true if f succeeds. Otherwise insist breaks the
// guard. If the disk has become full since the check for room, insist waits until there is room, because nobody could
// read from a store whose guard is broken.
func (g *guard) insist(verb, name string, try func() error) bool {
	begin := time.Now()
	for wait := firstPause; !g.isBroken(); wait = min(2*wait, longestPause) {
		err := named(verb, name, try())
		g.waitingOut(err)
		if err == nil {
			g.stalled.Store(false)
			return true
		}
		long := time.Since(begin) >= diskPatience
		full := long && g.isLackOfRoom(err)
		g.stalled.Store(full)
		if g.opening.Load() || !mayPass(err) || long && !full || !g.pause(wait) {
			g.breakWith(err)
		}
	}
	return false
}

// breakOnError breaks the guard after an error of a step that cannot be retried, because half of the step may have
// been done.
func (g *guard) breakOnError(verb, name string, err error) {
	if err != nil {
		g.breakWith(named(verb, name, err))
	}
}

// named adds verb and file to an error that does not contain the file.
func named(verb, name string, err error) error {
	if err == nil || strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s %s: %w", verb, name, err)
}

// waitingOut records the error being waited out; nil means that the error has passed.
func (g *guard) waitingOut(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = err
}

// waitsFor returns the error being waited out, or nil.
func (g *guard) waitsFor() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// tableError records the result of a step on a table and returns the result to the library. If tables have failed for
// diskPatience, and the reason is not a full disk, tableError breaks the guard.
func (g *guard) tableError(verb, name string, err error) error {
	err = named(verb, name, err)
	g.mu.Lock()
	if err != nil {
		g.last, g.retries = err, g.retries+1
		if g.since.IsZero() {
			g.since = time.Now()
		}
	}
	out := err != nil && time.Since(g.since) >= diskPatience
	g.mu.Unlock()
	// with less than the reserve free, no more is written, so the library may retry for ever
	if out && !g.isLackOfRoom(err) {
		g.breakWith(err)
	}
	return err
}

// tableDone records that a table is on the disk. This ends a series of failures.
func (g *guard) tableDone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.since.IsZero() {
		g.last, g.retries, g.since = nil, 0, time.Time{}
	}
}

// beforeTable waits before a retry of a table. Each wait is longer than the last.
func (g *guard) beforeTable() {
	g.mu.Lock()
	n := g.retries
	g.mu.Unlock()
	if n > 0 {
		g.pause(min(firstPause<<min(n, 10), longestPause))
	}
}
