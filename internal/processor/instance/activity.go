package instance

import (
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Activities are what is being done with a lease. Its worker reads while batches are in the handler, so both are kept; the
// activity of the lease is the one that matters most: a call of the handler, then what the dispatcher does, then what the
// worker does. The zero value is ready.
type Activities struct {
	mu         sync.Mutex
	worker     step
	dispatcher step // zero if the dispatcher has nothing to do
	calls      int  // batches in the handler
	called     time.Time
}

// step is an activity, and since when.
type step struct {
	activity feed.Activity
	since    time.Time
}

// WorkerDoes notes what the worker does from now on.
func (a *Activities) WorkerDoes(activity feed.Activity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.worker = step{activity, time.Now()}
}

// DispatcherDoes notes what the dispatcher does from now on besides its calls; empty for nothing.
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

// EndCall notes that a call of the handler is over. What the worker does counts from now on.
func (a *Activities) EndCall() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls--
	a.worker.since = time.Now()
}

// Now returns what is being done, and since when.
func (a *Activities) Now() (feed.Activity, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.calls > 0:
		return feed.ActivityHandling, a.called
	case a.dispatcher.activity != "":
		return a.dispatcher.activity, a.dispatcher.since
	}
	return a.worker.activity, a.worker.since
}
