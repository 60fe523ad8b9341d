package meter

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// The load is how much all requests of a server hold and compute at once, as plain counters. A request over a limit
// is refused with a 429, because the requests before it will finish soon.

// The limits keep a server within half a gigabyte, whatever its clients request.
const (
	MaxHeld    = 192 << 20 // bytes held by computing queries
	MaxSending = 128 << 20 // bytes of large answers being sent
	Large      = 64 << 10  // larger answers, in bytes, are counted

	retryPause = time.Second // wait after a refusal because other requests hold too much
)

// Load is the work of all requests of a server at a given moment.
type Load struct {
	turns   chan struct{} // has capacity for the turns taken at the same time
	waiting atomic.Int64  // for a turn
	begun   atomic.Int64  // number of requests since the start
	held    atomic.Int64  // bytes of computing queries
	sending atomic.Int64  // bytes of large answers being sent
}

// NewLoad returns a Load that lets queries compute on half of the processors, so the other half is free for point
// reads and writes.
func NewLoad() *Load {
	return &Load{turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// Usage is a [Load] at a given moment.
type Usage struct {
	Turns, MaxTurns int
	Held, Sending   int64 // bytes
}

// Usage returns the present use, for tests and metrics.
func (l *Load) Usage() Usage {
	return Usage{len(l.turns), cap(l.turns), l.held.Load(), l.sending.Load()}
}

// Request begins the account of a request. The caller must call [Request.End].
func (l *Load) Request(ctx context.Context) Request {
	l.begun.Add(1)
	return Request{load: l, ctx: ctx}
}

// Send counts an answer of so many bytes until the caller calls sent. If too many bytes are being sent, a large
// answer is refused, unless must is set. Slow clients keep the memory of their answers in use for a long time.
func (l *Load) Send(bytes int, must bool) (sent func(), err error) {
	if bytes <= Large {
		return func() {}, nil
	}
	sent = func() { l.sending.Add(-int64(bytes)) }
	if l.sending.Add(int64(bytes)) > MaxSending && !must {
		sent()
		return nil, wire.Throttled(retryPause, "The answers that clients are slow to read are more than %d MB together",
			MaxSending>>20)
	}
	return sent, nil
}
