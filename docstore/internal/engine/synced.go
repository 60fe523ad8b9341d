package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// listeners are functions to be called with the duration of each sync of the log. If there are none, a sync costs one
// atomic load more.
type listeners struct {
	mu  sync.Mutex                                  // of changes
	all atomic.Pointer[[]*func(took time.Duration)] // replaced as a whole; nil if there are none
}

// add adds a listener, until remove is called.
func (l *listeners) add(f func(took time.Duration)) (remove func()) {
	l.change(func(all []*func(time.Duration)) []*func(time.Duration) { return append(all, &f) })
	return func() {
		l.change(func(all []*func(time.Duration)) []*func(time.Duration) {
			return slices.DeleteFunc(all, func(g *func(time.Duration)) bool { return g == &f })
		})
	}
}

// change replaces the listeners by a changed copy.
func (l *listeners) change(by func([]*func(time.Duration)) []*func(time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*func(time.Duration)
	if old := l.all.Load(); old != nil {
		all = slices.Clone(*old)
	}
	if all = by(all); len(all) == 0 {
		l.all.Store(nil)
		return
	}
	l.all.Store(&all)
}

// timed calls do, and tells the listeners how long do has taken.
func (l *listeners) timed(do func() error) error {
	all := l.all.Load()
	if all == nil {
		return do()
	}
	begun := time.Now()
	err := do()
	took := time.Since(begun)
	for _, f := range *all {
		(*f)(took)
	}
	return err
}

// OnSync calls f after each sync of a log, with its duration, until stop is called. Writes wait for f.
func (e *Engine) OnSync(f func(took time.Duration)) (stop func()) { return e.guard.syncs.add(f) }
