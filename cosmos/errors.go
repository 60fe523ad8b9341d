package cosmos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed"
)

// Error is a request that the service refused. errors.Is finds the reason in it:
//
//	400, 405, 413    changefeed.ErrBadRequest; changefeed.ErrTooOld for a lost position
//	401, 403         changefeed.ErrForbidden, unless the write region has moved
//	404              changefeed.ErrNotFound, unless a replica lags behind
//	400/1024         ErrMadeAnew, which is a changefeed.ErrNotFound
//	409, 412         changefeed.ErrConflict, changefeed.ErrPrecondition
//	429              a changefeed.ThrottledError
//
// Any other status has none: the outcome of a write is then unknown, or it was repeated
// in vain.
type Error struct {
	Request    string // method and path
	Status     int
	SubStatus  int    // what the service adds to the status, 0 for nothing
	Code       string // the service's word for the status
	Message    string // first line of the service's message
	ActivityID string // for the service's support
	Action     string // the data action of Azure's roles that a forbidden request needs
	After      time.Duration
	reason     error
	hint       string // what to do about it
}

// ErrMadeAnew is the [changefeed.ErrNotFound] of a container that was deleted and made
// anew since it was opened. Positions in the old one mean nothing in the new one, which
// has to be opened again.
var ErrMadeAnew = fmt.Errorf("%w: the container was made anew", changefeed.ErrNotFound)

// Error gives the request, the status, what the service says, and what to do about it.
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

// Unwrap gives the reason, if the status has one.
func (e *Error) Unwrap() error { return e.reason }

// The sub-statuses that are told apart.
const (
	subWriteForbidden    = 3    // of 403: this is no write region any more
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

// refusal is the error of an answer.
func refusal(r request, resp *http.Response, body []byte) *Error {
	e := &Error{
		Request: r.String(), Status: resp.StatusCode, ActivityID: resp.Header.Get("x-ms-activity-id"),
		After: retryAfter(resp.Header),
	}
	e.SubStatus, _ = strconv.Atoi(resp.Header.Get("x-ms-substatus")) // absent: none
	var said struct{ Code, Message string }
	if json.Unmarshal(body, &said) == nil {
		e.Code, e.Message = said.Code, firstLine(said.Message)
	} else {
		e.Message = firstLine(strings.Join(strings.Fields(string(body)), " ")) // of a proxy, perhaps
	}
	e.reason = e.sentinel()
	if e.Status == http.StatusForbidden && e.SubStatus >= subNoRoleFirst && e.SubStatus <= subNoRoleLast {
		e.Action = r.action
	}
	e.hint = e.advice(ahead(resp.Header))
	return e
}

// advice is what to do about the error, when the service's clock is so far ahead of ours.
func (e *Error) advice(ahead time.Duration) string {
	switch {
	case e.reason == ErrMadeAnew:
		return "it was deleted and made anew since it was opened: start again, and decide where from"
	case e.Action != "":
		return "it needs the action " + e.Action
	case e.reason == changefeed.ErrForbidden && ahead.Abs() > clockWindow:
		return fmt.Sprintf("the service's clock is %v ahead of this machine's: want at most %v either way, set the clock", ahead.Round(time.Second), clockWindow)
	}
	return ""
}

// clockWindow is by how much the date of a request may be off, a little less than what
// the service bears.
const clockWindow = 14 * time.Minute

// ahead is how far the clock of who answered is ahead of ours, 0 when it does not say.
func ahead(h http.Header) time.Duration {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return time.Until(date)
}

// sentinel is what the status means to the processor.
func (e *Error) sentinel() error {
	switch e.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		if e.SubStatus == subOtherContainer {
			return ErrMadeAnew
		}
		return changefeed.ErrBadRequest
	case http.StatusUnauthorized:
		return changefeed.ErrForbidden
	case http.StatusForbidden:
		if !e.movedRegion() {
			return changefeed.ErrForbidden
		}
	case http.StatusNotFound:
		switch e.SubStatus {
		case subSessionNotReady:
			return nil
		case subOtherContainer:
			return ErrMadeAnew
		}
		return changefeed.ErrNotFound
	case http.StatusConflict:
		return changefeed.ErrConflict
	case http.StatusPreconditionFailed:
		return changefeed.ErrPrecondition
	case http.StatusTooManyRequests:
		return &changefeed.ThrottledError{After: e.pause()}
	}
	return nil
}

// pause is how long a throttled request is to wait.
func (e *Error) pause() time.Duration {
	if e.After > 0 {
		return e.After
	}
	return defaultThrottlePause
}

// movedRegion tells a region that does not take writes, or is no region, any more.
func (e *Error) movedRegion() bool {
	return e.Status == http.StatusForbidden && (e.SubStatus == subWriteForbidden || e.SubStatus == subAccountGone)
}

// movedRange tells a physical partition that was split, merged or moved, or is about to be.
func (e *Error) movedRange() bool {
	switch e.SubStatus {
	case subRangeGone, subCompletingSplit, subCompletingMove:
		return e.Status == http.StatusGone
	}
	return false
}

// longestAsked is the longest pause that is kept because it was asked for: the service
// asks for seconds, but a proxy may ask for hours, and nothing would be read meanwhile.
const longestAsked = time.Minute

// retryAfter is how long the service asks to wait, 0 when it does not say.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("x-ms-retry-after-ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, float64(longestAsked.Milliseconds())) * float64(time.Millisecond))
	}
	if s, err := strconv.Atoi(h.Get("Retry-After")); err == nil && s > 0 {
		return time.Duration(min(s, int(longestAsked.Seconds()))) * time.Second
	}
	return 0
}

// firstLine is what of a message is worth repeating. What the service would have signed
// follows over several lines.
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
