package cosmos

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/millrace/changefeed/internal/pause"
)

// When a request is sent again
//
//	answer                          read                     write
//	429 that asks for up to 1 s     after that pause         after that pause
//	429 that asks for longer        ThrottledError           ThrottledError
//	449, 410 of an item             after a pause            after a pause
//	403/3, 403/1008                 account read anew        account read anew
//	404/1002                        next region              next region
//	never sent (no connection)      next region              next region
//	408, 500, 502, 503, 504,        next region              error: it may have
//	no answer, lost connection                               been carried out
//	anything else                   error                    error
//
// A request is sent at most five times, and the pauses begin at 50 ms and double. After that the client returns an
// error, and the processor, which knows how urgent the request is, waits. No pause exceeds the end of the context.
const (
	maxAttempts  = 5
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	maxDoublings = 10
)

// verdict says how to go on after an error.
type verdict struct {
	again     bool
	elsewhere bool          // this region does not serve the request now
	moved     bool          // the account's regions have changed
	after     time.Duration // at least
}

// judgeError implements the table above.
func (r request) judgeError(err error) verdict {
	e, answered := errors.AsType[*Error](err)
	if !answered {
		return verdict{again: !r.writes || neverSent(err), elsewhere: true}
	}
	switch e.Status {
	case http.StatusTooManyRequests:
		return verdict{again: e.pauseAsked() <= longestPause, after: e.pauseAsked()}
	case statusRetryWith:
		return verdict{again: true, after: e.After}
	case http.StatusGone:
		return verdict{again: !r.moves}
	case http.StatusForbidden:
		return verdict{again: e.movedRegion(), moved: e.movedRegion()}
	case http.StatusNotFound:
		lags := e.SubStatus == subSessionNotReady
		return verdict{again: lags, elsewhere: lags}
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return verdict{again: !r.writes, elsewhere: true, after: min(e.After, longestPause)}
	}
	return verdict{}
}

// neverSent reports whether no byte of a request was sent, because there was no connection. In this case even a write
// can be sent again.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// do sends a request, again if necessary.
func (c *Client) do(ctx context.Context, r request) (*answer, error) {
	return c.sendTo(ctx, r, func() *url.URL { return c.targetOf(ctx, r) })
}

// sendTo is do with a choice of regions. All attempts have the same activity id.
func (c *Client) sendTo(ctx context.Context, r request, target func() *url.URL) (*answer, error) {
	activity := newActivity()
	for n := 1; ; n++ {
		if ctx.Err() != nil {
			return nil, lost(ctx, r, nil)
		}
		to := target()
		a, err := c.sendOnce(ctx, to, r, activity)
		if err == nil {
			c.regions.markAnswered(to)
		}
		if err == nil || ctx.Err() != nil {
			return a, err
		}
		v := r.judgeError(err)
		if v.elsewhere {
			c.regions.markFailed(to)
			// The region has answered, and the error is the request's fault.
		} else {
			c.regions.markAnswered(to)
		}
		if v.moved {
			c.regions.expireAccount()
		}
		if !v.again || n == maxAttempts {
			return nil, err
		}
		c.log.DebugContext(ctx, "request is sent again", "attempt", n, "host", to.Host, "error", err)
		if err := pause.For(ctx, max(v.after, backoff(n))); err != nil {
			return nil, lost(ctx, r, err)
		}
	}
}

// backoff returns the pause after this many attempts. It doubles, to relieve a struggling service, and varies by half,
// so that clients that failed together do not return together.
func backoff(attempts int) time.Duration {
	d := min(firstPause<<min(attempts-1, maxDoublings), longestPause)
	return d/2 + rand.N(d/2+1)
}
