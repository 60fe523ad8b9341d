package cosmos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
)

// All refusals have one type, with the reason as a sentinel of package feed: the processor asks for reasons and knows
// no status, so that it works over any store, while people see the status that the service's documents explain.

// Error is a request that the service refused. With errors.Is you find the reason:
//
//	400, 405, 413    feed.ErrBadRequest; feed.ErrTooOld for a lost position
//	401, 403         feed.ErrForbidden, unless the write region has moved
//	404              feed.ErrNotFound, unless a replica lags behind
//	400/1024         ErrMadeAnew, which is a feed.ErrNotFound
//	409, 412         feed.ErrConflict, feed.ErrPrecondition
//	429              a feed.ThrottledError
//
// Any other status has no reason: the outcome of a write is then unknown, or every repetition failed.
type Error struct {
	Request    string // method and path
	Status     int
	SubStatus  int    // the service's refinement of the status, 0 for none
	Code       string // the service's word for the status
	Message    string // first line of the service's message
	ActivityID string // for the service's support
	Action     string // the data action of Azure's roles that a forbidden request needs
	After      time.Duration
	reason     error
	hint       string // how to go on
}

// ErrMadeAnew is the [feed.ErrNotFound] of a container that was deleted and made anew after you opened it. Positions of
// the old container are invalid in the new container: open the container again, and decide where to start.
var ErrMadeAnew = fmt.Errorf("%w: the container was made anew", feed.ErrNotFound)

// Error gives the request, the status, the service's message, and a hint how to go on.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d", e.Request, e.Status)
	if e.SubStatus != 0 {
		fmt.Fprintf(&b, "/%d", e.SubStatus)
	}
	for _, text := range []string{" " + e.Code, ": " + e.Message} {
		if len(text) > 2 {
			b.WriteString(text)
		}
	}
	if e.hint != "" {
		fmt.Fprintf(&b, "; %s", e.hint)
	}
	if e.ActivityID != "" {
		fmt.Fprintf(&b, " (activity %s)", e.ActivityID)
	}
	return b.String()
}

// Unwrap returns the reason, nil if the status has none.
func (e *Error) Unwrap() error { return e.reason }

// The sub-statuses that the client distinguishes.
const (
	// Azure documents few of these; the rest is from the source of its SDKs.
	subWriteForbidden    = 3    // of 403: no longer a write region
	subAccountGone       = 1008 // of 403: this region has been removed
	subSessionNotReady   = 1002 // of 404: the replica lags behind
	subRangeGone         = 1002 // of 410: split or merged
	subCompletingSplit   = 1007 // of 410
	subCompletingMove    = 1008 // of 410
	subOtherContainer    = 1024 // of 400 and 404: the container was made anew
	subNoRoleFirst       = 5300 // of 403: from here
	subNoRoleLast        = 5303 // up to here, no role of the caller grants the action
	statusRetryWith      = 449  // two writes met
	maxMessage           = 300  // bytes of the service's message that an error repeats
	defaultThrottlePause = time.Second
)

// refusal returns the error of an answer.
func refusal(r request, resp *http.Response, body []byte) *Error {
	e := &Error{
		Request: r.String(), Status: resp.StatusCode, ActivityID: resp.Header.Get(headerActivity),
		After: retryAfter(resp.Header),
	}
	e.SubStatus, _ = strconv.Atoi(resp.Header.Get("x-ms-substatus")) // absent: none
	var said struct{ Code, Message string }
	if json.Unmarshal(body, &said) == nil {
		e.Code, e.Message = said.Code, firstLine(said.Message)
	} else {
		e.Message = firstLine(strings.Join(strings.Fields(string(body)), " ")) // a proxy may have sent it
	}
	e.reason = e.sentinel()
	if e.Status == http.StatusForbidden && e.SubStatus >= subNoRoleFirst && e.SubStatus <= subNoRoleLast {
		e.Action = r.action
	}
	e.hint = e.advice(ahead(resp.Header))
	return e
}

// advice returns a hint how to go on. advice mentions the clock because a wrong clock makes every signature invalid,
// and the service answers with a plain 403.
func (e *Error) advice(ahead time.Duration) string {
	switch {
	case e.reason == ErrMadeAnew:
		return adviceAnew
	case e.Action != "":
		return "it needs the action " + e.Action
	case e.reason == feed.ErrForbidden && ahead.Abs() > clockWindow:
		return fmt.Sprintf("the service's clock is %v ahead of this machine's: want at most %v either way, set "+
			"the clock", ahead.Round(time.Second), clockWindow)
	}
	return ""
}

// adviceAnew is how to go on after [ErrMadeAnew].
const adviceAnew = "it was deleted and made anew since it was opened: start again, and decide where from"

// clockWindow is the largest tolerated error of a request's date: a minute less than the service accepts, so that the
// hint also appears at the edge.
const clockWindow = 14 * time.Minute

// ahead returns how far the clock of the answering machine is ahead of ours, 0 if
// unknown.
func ahead(h http.Header) time.Duration {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return time.Until(date)
}

// sentinel returns the reason of the status, on which the processor acts.
func (e *Error) sentinel() error {
	switch e.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		if e.SubStatus == subOtherContainer {
			return ErrMadeAnew
		}
		return feed.ErrBadRequest
	case http.StatusUnauthorized:
		return feed.ErrForbidden
	case http.StatusForbidden:
		if !e.movedRegion() {
			return feed.ErrForbidden
		}
	case http.StatusNotFound:
		switch e.SubStatus {
		// A replica that lags behind cannot say whether the item exists.
		case subSessionNotReady:
			return nil
		case subOtherContainer:
			return ErrMadeAnew
		}
		return feed.ErrNotFound
	case http.StatusConflict:
		return feed.ErrConflict
	case http.StatusPreconditionFailed:
		return feed.ErrPrecondition
	case http.StatusTooManyRequests:
		return &feed.ThrottledError{After: e.pauseAsked()}
	}
	return nil
}

// pauseAsked returns how long a throttled request must wait.
func (e *Error) pauseAsked() time.Duration {
	if e.After > 0 {
		return e.After
	}
	return defaultThrottlePause
}

// movedRegion reports whether the region no longer accepts writes, or no longer exists.
func (e *Error) movedRegion() bool {
	return e.Status == http.StatusForbidden && (e.SubStatus == subWriteForbidden || e.SubStatus == subAccountGone)
}

// movedRange reports whether a physical partition was split, merged or moved, or is
// about to be.
func (e *Error) movedRange() bool {
	switch e.SubStatus {
	case subRangeGone, subCompletingSplit, subCompletingMove:
		return e.Status == http.StatusGone
	}
	return false
}

// longestAsked bounds a requested pause: the service asks for seconds, but a proxy may ask for hours, and nothing would
// be read meanwhile.
const longestAsked = time.Minute

// retryAfter returns how long the service asks to wait, 0 if it does not ask.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("x-ms-retry-after-ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, float64(longestAsked.Milliseconds())) * float64(time.Millisecond))
	}
	if s, err := strconv.Atoi(h.Get("Retry-After")); err == nil && s > 0 {
		return time.Duration(min(s, int(longestAsked.Seconds()))) * time.Second
	}
	return 0
}

// firstLine returns the useful part of a message, without the lines of text that the service would have signed.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line, _, _ = strings.Cut(line, "Server used the following payload to sign")
	line = strings.TrimSpace(strings.TrimPrefix(line, "Message:"))
	var several struct{ Errors []string }
	if json.Unmarshal([]byte(line), &several) == nil && len(several.Errors) > 0 {
		line = strings.Join(several.Errors, "; ")
	}
	if len(line) > maxMessage {
		line = strings.ToValidUTF8(line[:maxMessage], "") + "…"
	}
	return line
}
