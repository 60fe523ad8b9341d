package cosmosrest

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"
)

// Queries that compute take turns, so that other requests have the rest of the processors. A turn is over after a
// while when others wait. Short queries need none: their work is less than what the turns would cost.
const (
	freeWork = 1 << 19               // units of work without a turn, about a millisecond; and between looks at the clock
	turn     = 50 * time.Millisecond // while others wait
	maxWait  = 10 * time.Second      // for a turn; then it is a 429
	breath   = 20 * time.Microsecond // rest after as much: a processor without work looks at the network, a yielding one does not
	docWork  = 1 << 11               // units to read a document, besides its bytes
	keyWork  = 1 << 12               // units to look up a key or an id
	longText = 4 << 10               // bytes of a query that is parsed in a turn
	byteWork = 1 << 11               // units to parse a byte of it
)

// turns are those of all queries of a server.
type turns struct {
	free    chan struct{} // has room for each turn that is taken at once
	waiting atomic.Int64
}

func newTurns() turns {
	return turns{free: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// meter is the work of one request, and what it holds of the memory for queries. It implements [sql.Meter].
type meter struct {
	s       *Server
	ctx     context.Context
	work    int // units
	asked   int // units when it was last asked whether to go on
	held    int // bytes
	turning bool
	since   time.Time          // of the turn
	stop    context.CancelFunc // of ctx, when that has a limit
}

// errLate ends a query that takes too long.
var errLate = newFault(http.StatusRequestTimeout, 0, "RequestTimeout",
	"The query has not computed its rows within %v: want a filter that leaves less to compute, or fewer queries at once", maxCompute)

// limit has the request end, with a 408, when it has not computed its answer after maxCompute. It returns the
// context of all that it computes.
func (m *meter) limit() context.Context {
	if m.stop == nil {
		m.ctx, m.stop = context.WithTimeoutCause(m.ctx, maxCompute, errLate)
	}
	return m.ctx
}

// Work counts units of work that were done or are about to be. It waits for a turn, and fails when there is none or
// the request has ended.
func (m *meter) Work(units int) error {
	m.work += units
	if m.work-m.asked < freeWork {
		return nil
	}
	m.asked = m.work
	switch {
	case m.ctx.Err() != nil:
		return context.Cause(m.ctx)
	case m.turning && (time.Since(m.since) < turn || m.s.turns.waiting.Load() == 0):
		select {
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		case <-time.After(breath):
			return nil
		}
	}
	m.rest()
	return m.await()
}

// await waits for a turn, in line.
func (m *meter) await() error {
	all := &m.s.turns
	all.waiting.Add(1)
	defer all.waiting.Add(-1)
	patience := time.NewTimer(maxWait)
	defer patience.Stop()
	select {
	case all.free <- struct{}{}:
		m.turning, m.since = true, time.Now()
		return nil
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	case <-patience.C:
		return throttled(time.Duration(all.waiting.Load())*turn,
			"Request rate is large: %d queries compute at once, and this one had no turn for %v", cap(all.free), maxWait)
	}
}

// rest gives the turn to others: before an answer is sent, which may take as long as the client likes.
func (m *meter) rest() {
	if m.turning {
		m.turning = false
		<-m.s.turns.free
	}
}

// Hold accounts for bytes more that a query holds. When all together hold too much, it is
// a 429: others will be done soon.
func (m *meter) Hold(bytes int) error {
	m.held += bytes
	if m.s.held.Add(int64(bytes)) <= maxHeldRows {
		return nil
	}
	return throttled(holdPause, "The queries that sort, group or count hold more than %d MB together", maxHeldRows>>20)
}

// end gives everything back.
func (m *meter) end() {
	m.rest()
	m.s.held.Add(-int64(m.held))
	m.held = 0
	if m.stop != nil {
		m.stop()
	}
}

// throttled is a 429 that names its cause.
func throttled(after time.Duration, format string, args ...any) *fault {
	f := newFault(http.StatusTooManyRequests, subThrottled, codeTooManyRequests, format+". Try again in %v", append(args, after)...)
	f.after = after
	return f
}
