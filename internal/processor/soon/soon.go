// Package soon writes often-changing state soon: by one goroutine, however often it is asked, and never twice at once.
package soon

import (
	"math"
	"sync"
	"time"
)

// Writer writes some state whenever it is asked, or some time after it has changed.
type Writer struct {
	gap   time.Duration
	run   func(func())
	write func() error

	mu      sync.Mutex
	writing bool          // by a goroutine
	again   bool          // there is more to write than when it began
	fresh   bool          // there was a change since
	over    chan struct{} // closed when the goroutine ends; nil before the first
	last    time.Time     // when a write began or ended last
}

// Never is when nothing is to be written.
const Never = time.Duration(math.MaxInt64)

// New returns a writer that calls write in goroutines that run starts. After an error nothing is written any more. A
// change is written at the latest when gap has passed since the last write ended, if Due is called then.
func New(gap time.Duration, run func(func()), write func() error) *Writer {
	return &Writer{gap: gap, run: run, write: write}
}

// Write has the state written as it is now, or later. It does not wait.
func (w *Writer) Write() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = true
	if w.writing {
		return
	}
	over := make(chan struct{})
	w.writing, w.over = true, over
	w.run(func() {
		defer close(over)
		for w.next() && w.write() == nil {
		}
	})
}

// Wait waits until all that Write has asked for is written, or a write has failed.
func (w *Writer) Wait() {
	w.mu.Lock()
	over := w.over
	w.mu.Unlock()
	if over != nil {
		<-over
	}
}

// next reports whether there is something to write.
func (w *Writer) next() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing, w.again, w.fresh, w.last = w.again, false, w.fresh && !w.again, time.Now()
	return w.writing
}

// Changed notes that the state has changed.
func (w *Writer) Changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fresh = true
}

// Due has a change written whose time has come, and returns how long until one must be.
func (w *Writer) Due() time.Duration {
	w.mu.Lock()
	fresh, left := w.fresh, w.gap-time.Since(w.last)
	w.mu.Unlock()
	switch {
	case !fresh:
		return Never
	case left <= 0:
		w.Write()
		return Never
	}
	return left
}
