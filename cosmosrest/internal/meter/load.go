package meter

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// The load: how much all requests of a server hold and compute at once, as plain counters.
// Each limit refuses the request that would exceed it with a 429, because the requests
// before it will be done soon.

// The bounds keep a server within half a gigabyte, whatever its clients ask.
const (
	MaxHeld    = 192 << 20 // bytes that queries hold while they are computed
	MaxSending = 128 << 20 // bytes of large answers that are sent
	Large      = 64 << 10  // bytes of an answer above which it is counted

	retryPause = time.Second // after a refusal because of what others hold
)

// Load is the work of all requests of a server at one moment.
type Load struct {
	turns   chan struct{} // has room for each turn that is taken at once
	waiting atomic.Int64  // for a turn
	begun   atomic.Int64  // requests, ever
	held    atomic.Int64  // bytes of queries that are computed
	sending atomic.Int64  // bytes of large answers that are being sent
}

// NewLoad lets queries compute on half of the processors, so that point reads and writes
// find one free.
func NewLoad() *Load {
	return &Load{turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// Usage is a [Load] at one moment.
type Usage struct {
	Turns, MaxTurns int
	Held, Sending   int64 // bytes
}

// Usage is the present use, for tests and metrics.
func (l *Load) Usage() Usage {
	return Usage{len(l.turns), cap(l.turns), l.held.Load(), l.sending.Load()}
}

// Request begins the account of a request, which ends with [Request.End].
func (l *Load) Request(ctx context.Context) Request {
	l.begun.Add(1)
	return Request{load: l, ctx: ctx}
}

// Send counts an answer of so many bytes until sent is called. A large one is refused while
// too much is being sent, unless it must go out. Memory for answers is held for as long as
// clients read slowly.
func (l *Load) Send(bytes int, must bool) (sent func(), err error) {
	if bytes <= Large {
		return func() {}, nil
	}
	sent = func() { l.sending.Add(-int64(bytes)) }
	if l.sending.Add(int64(bytes)) > MaxSending && !must {
		sent()
		return nil, wire.Throttled(retryPause, "The answers that clients are slow to read are more than %d MB together", MaxSending>>20)
	}
	return sent, nil
}
