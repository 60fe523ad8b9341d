package meter

import (
	"context"
	"net/http"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The account of a request: work, memory, and the turn on a processor.
//
// Computing queries take turns, so the other processors are free for other requests. If others wait, a turn ends
// after some time. Short queries need no turn, because turns would cost more than the work.

// The bounds of a turn, and of all the work of a query.
const (
	FreeWork = 1 << 19               // units of work without a turn, about a millisecond; also the interval of checks
	MaxWait  = 10 * time.Second      // for a turn; then the answer is a 429
	turn     = 50 * time.Millisecond // length of a turn if others wait

	// A query rests after FreeWork, because an idle processor polls the network, and a processor that only yields
	// does not. If other requests have come since, the rest is long, because their clients may also need the
	// processors.
	breath     = 20 * time.Microsecond
	longBreath = 500 * time.Microsecond

	DocWork  = 1 << 11 // units to read a document, in addition to its bytes
	KeyWork  = 1 << 12 // units to look up a key or an id
	ByteWork = 1 << 11 // units to parse a byte of a long query
	LongText = 4 << 10 // bytes from which a query is long, and parsed in a turn

	MaxCompute = 30 * time.Second // time limit of an answer, after which the answer is a 408
	unitWork   = 1 << 19          // units charged as 1 RU; they take about a millisecond
)

// Request counts the work of a request, and the memory of the query. Request implements [sql.Meter].
type Request struct {
	load    *Load
	ctx     context.Context
	work    int // units
	asked   int // units at the last check
	held    int // bytes
	turning bool
	others  int64              // number of requests begun at the last rest
	since   time.Time          // beginning of the turn
	stop    context.CancelFunc // of ctx, if there is a time limit
}

// errLate ends a query after its time limit.
var errLate = wire.Errorf(http.StatusRequestTimeout, 0, wire.CodeTimeout,
	"The query has not computed its rows within %v: want a filter that leaves less to compute, or fewer "+
		"queries at once", MaxCompute)

// Limit sets a time limit: without an answer within MaxCompute, the request ends with a 408. Limit returns the
// context for all computations of the request.
func (m *Request) Limit() context.Context {
	if m.stop == nil {
		m.ctx, m.stop = context.WithTimeoutCause(m.ctx, MaxCompute, errLate)
	}
	return m.ctx
}

// Work counts units of work, done or about to be done. Work may wait for a turn. Work fails if there is no turn in
// time, or if the request has ended.
func (m *Request) Work(units int) error {
	m.work += units
	if m.work-m.asked < FreeWork {
		return nil
	}
	m.asked = m.work
	switch {
	case m.ctx.Err() != nil:
		return context.Cause(m.ctx)
	case m.turning && (time.Since(m.since) < turn || m.load.waiting.Load() == 0):
		return m.yieldProcessor()
	}
	m.Rest()
	return m.awaitTurn()
}

// yieldProcessor leaves the processor to others for a moment.
func (m *Request) yieldProcessor() error {
	rest := breath
	if begun := m.load.begun.Load(); begun != m.others {
		m.others, rest = begun, longBreath
	}
	select {
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	case <-time.After(rest):
		return nil
	}
}

// awaitTurn waits in line for a turn.
func (m *Request) awaitTurn() error {
	all := m.load
	all.waiting.Add(1)
	defer all.waiting.Add(-1)
	patience := time.NewTimer(MaxWait)
	defer patience.Stop()
	select {
	case all.turns <- struct{}{}:
		m.turning, m.since, m.others = true, time.Now(), all.begun.Load()
		return nil
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	case <-patience.C:
		return wire.Throttled(time.Duration(all.waiting.Load())*turn,
			"%d queries compute at once, and this one had no turn for %v", cap(all.turns), MaxWait)
	}
}

// Rest gives the turn back. This must happen before an answer is sent, because sending takes as long as the client
// likes.
func (m *Request) Rest() {
	if m.turning {
		m.turning = false
		<-m.load.turns
	}
}

// Hold adds bytes to the memory of a query. If all queries together hold too much, the error is a 429.
func (m *Request) Hold(bytes int) error {
	m.held += bytes
	if m.load.held.Add(int64(bytes)) <= MaxHeld {
		return nil
	}
	return wire.Throttled(retryPause, "The queries that sort, group or count hold more than %d MB together",
		MaxHeld>>20)
}

// End releases the turn, the memory and the time limit of the request.
func (m *Request) End() {
	m.Rest()
	m.load.held.Add(-int64(m.held))
	m.held = 0
	if m.stop != nil {
		m.stop()
	}
}

// Context returns the context for all computations of the request. The context ends with the request, or at the time
// limit.
func (m *Request) Context() context.Context { return m.ctx }

// Units returns the units of work done so far.
func (m *Request) Units() int { return m.work }

// Charge returns the charge, in request units, of a query after reading so many items and bytes. If the charge for
// the work is higher, the charge for the work counts: otherwise a self-join over a single document would cost as much
// as reading the document.
func (m *Request) Charge(items, bytes int) float64 {
	return max(service.ScanCharge(items, bytes), float64(m.work/unitWork))
}
