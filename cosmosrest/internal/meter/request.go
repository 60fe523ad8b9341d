package meter

import (
	"context"
	"net/http"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The account of one request: work, memory, and its turn on a processor.
//
// Queries that compute take turns, so that other requests have the rest of the processors.
// A turn is over after a while when others wait. Short queries need none: their work is
// less than the turns would cost.

// The bounds of a turn, and of all the work of a query.
const (
	FreeWork = 1 << 19               // units of work without a turn, about a millisecond; and between looks at the clock
	MaxWait  = 10 * time.Second      // for a turn; then it is a 429
	turn     = 50 * time.Millisecond // while others wait

	// A query rests after FreeWork, because a processor without work looks at the network
	// and a yielding one does not. While other requests come it rests for long, because
	// their clients, too, may need the processors.
	breath     = 20 * time.Microsecond
	longBreath = 500 * time.Microsecond

	DocWork  = 1 << 11 // units to read a document, besides its bytes
	KeyWork  = 1 << 12 // units to look up a key or an id
	ByteWork = 1 << 11 // units to parse a byte of a query that is parsed in a turn
	LongText = 4 << 10 // bytes of such a query

	MaxCompute = 30 * time.Second // to answer a query; then it is a 408
	unitWork   = 1 << 19          // units that are charged 1 RU, which take about a millisecond
)

// Request is the work of one request, and the memory that it holds for its query. It
// implements [sql.Meter].
type Request struct {
	load    *Load
	ctx     context.Context
	work    int // units
	asked   int // units when it was last asked whether to go on
	held    int // bytes
	turning bool
	others  int64              // requests of the server that had begun at the last rest
	since   time.Time          // of the turn
	stop    context.CancelFunc // of ctx, when that has a limit
}

// errLate ends a query that takes too long.
var errLate = wire.Errorf(http.StatusRequestTimeout, 0, wire.CodeTimeout,
	"The query has not computed its rows within %v: want a filter that leaves less to compute, or fewer queries at once", MaxCompute)

// Limit has the request end, with a 408, when it has not computed its answer after
// MaxCompute. It returns the context of all its computations.
func (m *Request) Limit() context.Context {
	if m.stop == nil {
		m.ctx, m.stop = context.WithTimeoutCause(m.ctx, MaxCompute, errLate)
	}
	return m.ctx
}

// Work counts units of work that were done or are about to be. It waits for a turn, and
// fails if there is none in time or the request has ended.
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
		return m.breathe()
	}
	m.Rest()
	return m.await()
}

// breathe leaves the processor to others for a moment.
func (m *Request) breathe() error {
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

// await waits for a turn, in line.
func (m *Request) await() error {
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

// Rest returns the turn: before an answer is sent, which may take as long as the client
// likes.
func (m *Request) Rest() {
	if m.turning {
		m.turning = false
		<-m.load.turns
	}
}

// Hold accounts for bytes more that a query holds. If all queries together hold too much,
// it is a 429.
func (m *Request) Hold(bytes int) error {
	m.held += bytes
	if m.load.held.Add(int64(bytes)) <= MaxHeld {
		return nil
	}
	return wire.Throttled(retryPause, "The queries that sort, group or count hold more than %d MB together", MaxHeld>>20)
}

// End returns all that the request holds.
func (m *Request) End() {
	m.Rest()
	m.load.held.Add(-int64(m.held))
	m.held = 0
	if m.stop != nil {
		m.stop()
	}
}

// Context is that of all that the request computes. It ends with the request, and at its
// limit.
func (m *Request) Context() context.Context { return m.ctx }

// Units is how much work was done.
func (m *Request) Units() int { return m.work }

// Charge is the charge in request units of a query that read so much, or of its work if
// that is more: without the work, a self-join over one document would cost as much as
// reading it.
func (m *Request) Charge(items, bytes int) float64 {
	return max(service.ScanCharge(items, bytes), float64(m.work/unitWork))
}
