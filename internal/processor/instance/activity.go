package instance

import (
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Activities are the present steps of the work on a lease. The worker of the lease reads while batches are in the
// handler or the position is written, so Activities keeps all of them. The most important step is the activity of the
// lease: a call of the handler, otherwise a write of the position, otherwise the dispatcher's activity, otherwise the
// worker's activity. The zero value is ready.
type Activities struct {
	mu         sync.Mutex
	worker     step
	dispatcher step // zero if the dispatcher is idle
	calls      int  // batches in the handler
	called     time.Time
	writes     int       // of the position
	writing    time.Time // since when
}

// step is an activity, and when it began.
type step struct {
	activity feed.Activity
	since    time.Time
}

// WorkerDoes notes the worker's activity from now on.
func (a *Activities) WorkerDoes(activity feed.Activity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.worker = step{activity, time.Now()}
}

// DispatcherDoes notes the dispatcher's activity from now on, besides calls; empty if idle.
func (a *Activities) DispatcherDoes(activity feed.Activity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if activity != a.dispatcher.activity {
		a.dispatcher = step{activity, time.Now()}
	}
}

// BeginCall notes that the handler is called. EndCall must follow.
func (a *Activities) BeginCall() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	a.called = time.Now()
}

// EndCall notes that a call of the handler is over. From now on the worker's activity counts.
func (a *Activities) EndCall() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls--
	a.worker.since = time.Now()
}

// BeginWrite notes that the position is being written. EndWrite must follow.
func (a *Activities) BeginWrite() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writes++; a.writes == 1 {
		a.writing = time.Now()
	}
}

// EndWrite notes that a write of the position is over.
func (a *Activities) EndWrite() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes--
}

// Now returns the present activity, and since when.
func (a *Activities) Now() (feed.Activity, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.calls > 0:
		return feed.ActivityHandling, a.called
	case a.writes > 0:
		return feed.ActivityStoring, a.writing
	case a.dispatcher.activity != "":
		return a.dispatcher.activity, a.dispatcher.since
	}
	return a.worker.activity, a.worker.since
}
