package docstore

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

// The engine does not bear every error of a disk: it panics, with locks held, when a log
// cannot be made or closed; it calls a failed manifest fatal and goes on; it tries a
// failed flush again at once and for ever, also while it opens a store. So it stands on
// a guard, which shows it no error that it cannot bear:
//
//   - What may pass (no space, no descriptors) is tried again for a while where nothing has
//     been done yet: to make a file, to give a log room. Not while the store is opened.
//   - Any other error of a log, a manifest or the directory breaks the guard. From then on
//     nothing on the disk is changed: all that the engine does is pretended to succeed, so
//     that it comes to an end and can be closed. The store fails with the reason, and the
//     files are as if the process had been killed in that moment.
//   - An error of a table is shown, because the engine can try again; the guard sees that
//     it does not do so at once. If that does not help either, the guard breaks.
type guard struct {
	vfs.FS
	dir string

	opening atomic.Bool // reads fail too once the guard is broken, to end the opening
	listed  atomic.Bool // the directory has been listed
	afresh  atomic.Bool // logs are made anew, not recycled
	failure atomic.Pointer[error]
	broken  chan struct{} // closed with failure
	closing chan struct{} // closed when nobody waits for the disk any more
	once    sync.Once

	mu      sync.Mutex
	last    error     // that is being waited out
	since   time.Time // tables cannot be written since then; zero when they can
	retries int
	tell    func(error) // of the failure
}

// Waits for a disk that may come back.
const (
	diskPatience = 10 * time.Second
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	readPause    = 100 * time.Millisecond // after a failed read, which the engine may try again at once
)

func newGuard(fs vfs.FS, dir string) *guard {
	g := &guard{FS: fs, dir: fs.PathDir(fs.PathJoin(dir, "x")), broken: make(chan struct{}), closing: make(chan struct{})}
	g.opening.Store(true)
	return g
}

// fail breaks the guard; the first reason stays.
func (g *guard) fail(reason error) {
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

// err is why the guard broke.
func (g *guard) err() error {
	if e := g.failure.Load(); e != nil {
		return *e
	}
	return nil
}

func (g *guard) frozen() bool { return g.failure.Load() != nil }

// opened ends the time in which reads fail with the guard, and has tell called with the
// failure, at once if there is one.
func (g *guard) opened(tell func(error)) {
	g.opening.Store(false)
	g.mu.Lock()
	g.tell = tell
	g.mu.Unlock()
	if err := g.err(); err != nil {
		tell(err)
	}
}

// until breaks the guard when ctx ends, unless settled is called before.
func (g *guard) until(ctx context.Context) (settled func()) {
	giveUp := func() {
		if err := g.waitsFor(); err != nil {
			g.fail(fmt.Errorf("%w, while waiting for the disk: %w", context.Cause(ctx), err))
			return
		}
		g.fail(context.Cause(ctx))
	}
	stop := context.AfterFunc(ctx, giveUp)
	return func() {
		if !stop() {
			giveUp()
		}
	}
}

// hurry ends all waits for the disk, for the engine is closed.
func (g *guard) hurry() { g.once.Do(func() { close(g.closing) }) }

// pause waits; false tells that there is no use in trying again.
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

// mayPass tells the errors that somebody else may end.
func mayPass(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// insist tries what must be done, for a while if need be, and then breaks the guard.
func (g *guard) insist(verb, name string, try func() error) bool {
	begin := time.Now()
	for wait := firstPause; !g.frozen(); wait = min(2*wait, longestPause) {
		err := named(verb, name, try())
		g.waitingOut(err)
		if err == nil {
			return true
		}
		if g.opening.Load() || !mayPass(err) || time.Since(begin) >= diskPatience || !g.pause(wait) {
			g.fail(err)
		}
	}
	return false
}

// must breaks the guard after an error of what cannot be tried again.
func (g *guard) must(verb, name string, err error) {
	if err != nil {
		g.fail(named(verb, name, err))
	}
}

// named has an error say what was done to which file.
func named(verb, name string, err error) error {
	if err == nil || strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s %s: %w", verb, name, err)
}

func (g *guard) waitingOut(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = err
}

// waitsFor is what is being waited out; nil for nothing.
func (g *guard) waitsFor() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// table notes the outcome of something done to a table, and passes it on.
func (g *guard) table(verb, name string, err error) error {
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
	if out {
		g.fail(err)
	}
	return err
}

// tableDone notes that a table is on the disk.
func (g *guard) tableDone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.since.IsZero() {
		g.last, g.retries, g.since = nil, 0, time.Time{}
	}
}

// beforeTable waits before another try of a table.
func (g *guard) beforeTable() {
	g.mu.Lock()
	n := g.retries
	g.mu.Unlock()
	if n > 0 {
		g.pause(min(firstPause<<min(n, 10), longestPause))
	}
}
