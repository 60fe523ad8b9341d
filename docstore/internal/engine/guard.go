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

// The library does not bear every error of a disk. It panics, with locks held, when a
// log cannot be made or closed, calls a failed manifest fatal and goes on, and tries
// a failed flush again at once and for ever, even while a store is being opened.
// Therefore the library stands on a guard, which hides those errors:
//
//   - Errors that may pass (no space, no descriptors) are waited out, where nothing has been
//     done yet: before a file is made or a log gets room. Not while the store is opened,
//     because the caller of Open waits for an answer.
//   - Any other error of a log, a manifest or the directory breaks the guard. From then on
//     nothing on the disk is changed, and everything that the library does is pretended to
//     succeed, so that the library comes to an end and can be closed. The store fails with the
//     reason, and the files are as if the process had been killed in that moment. No compaction
//     begins any more (compact.go), because what it would read may be pretended.
//   - An error of a table is shown, because the library can try again; the guard paces the
//     tries. If they do not help within 10 seconds, the guard breaks, unless the disk is full:
//     then writes are refused, and the tries go on until there is room.

// guard stands between the library and the disk.
type guard struct {
	vfs.FS
	dir string

	opening atomic.Bool // then reads fail too once the guard is broken, to end the opening
	listed  atomic.Bool // the directory has been listed
	afresh  atomic.Bool // logs are made anew, not recycled
	stalled atomic.Bool // a write has waited for room for long
	leaving atomic.Bool // the store is being closed: a full disk is waited for no longer than other errors
	failure atomic.Pointer[error]
	broken  chan struct{} // closed with failure
	closing chan struct{} // closed when nobody waits for the disk any more
	once    sync.Once

	mu      sync.Mutex
	last    error     // is being waited out
	since   time.Time // tables cannot be written since then; zero when they can
	retries int
	tell    func(error) // of the failure
}

// Waits for a disk that may come back.
const (
	// diskPatience is how long writers wait before the store fails. Longer would look
	// like a hang to their callers.
	diskPatience = 10 * time.Second
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	readPause    = 100 * time.Millisecond // after a failed read, which the library may try again at once
)

// newGuard guards the files of a store that is being opened.
func newGuard(fs vfs.FS, dir string) *guard {
	g := &guard{FS: fs, dir: fs.PathDir(fs.PathJoin(dir, "x")), broken: make(chan struct{}), closing: make(chan struct{})}
	g.opening.Store(true)
	return g
}

// breakWith breaks the guard; the first reason stays, because later ones are its
// consequences.
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

// isBroken reports whether the guard is broken: then writes only pretend to be done.
func (g *guard) isBroken() bool { return g.failure.Load() != nil }

// endOpening ends the time in which reads fail with the guard. From now on the guard calls
// tell with its failure, at once if there is one already.
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

// pause waits; false means that another try is of no use.
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

// pauseReads waits between two reads of the library of which the first has failed. It waits while the guard is
// broken too: then the library looks for tables that were pretended, and would look without a pause.
func (g *guard) pauseReads() {
	timer := time.NewTimer(readPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.closing:
	}
}

// mayPass reports whether an error may end by itself: other processes free space,
// descriptors and memory.
func mayPass(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// insist tries f until it succeeds, for as long as its error may pass, and then breaks
// the guard; true means that f succeeded. A disk that has become full since the room was looked
// for is waited for until there is room, because with a broken guard nobody could read.
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

// breakOnError breaks the guard after an error of a step that cannot be tried again: half of it
// may have been done.
func (g *guard) breakOnError(verb, name string, err error) {
	if err != nil {
		g.breakWith(named(verb, name, err))
	}
}

// named adds verb and file to an error that lacks the file.
func named(verb, name string, err error) error {
	if err == nil || strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s %s: %w", verb, name, err)
}

// waitingOut records the error that is being waited out, nil when it has passed.
func (g *guard) waitingOut(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = err
}

// waitsFor returns the error that is being waited out, or nil.
func (g *guard) waitsFor() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// tableError records the outcome of a step on a table and returns it to the library. It
// breaks the guard when tables have failed for diskPatience, other than by a full disk.
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
	if out && !g.isLackOfRoom(err) { // with less than the reserve nothing more is written, so the library may try for ever
		g.breakWith(err)
	}
	return err
}

// tableDone records that a table is on the disk, which ends a series of failures.
func (g *guard) tableDone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.since.IsZero() {
		g.last, g.retries, g.since = nil, 0, time.Time{}
	}
}

// beforeTable waits before another try of a table, longer each time.
func (g *guard) beforeTable() {
	g.mu.Lock()
	n := g.retries
	g.mu.Unlock()
	if n > 0 {
		g.pause(min(firstPause<<min(n, 10), longestPause))
	}
}
