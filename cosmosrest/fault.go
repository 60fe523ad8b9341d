package cosmosrest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/docstore"
)

// fault is an answer that refuses: status, sub-status, code and message as the
// service's.
type fault struct {
	status  int
	sub     int
	code    string
	message string
	after   time.Duration   // when to try again, for 429
	extra   json.RawMessage // additionalErrorInfo
	allow   string          // methods, of a 405
	gateway bool            // told by the gateway, which puts no frame around the message
}

// Error is the message.
func (f *fault) Error() string { return f.message }

func newFault(status, sub int, code, format string, args ...any) *fault {
	return &fault{status: status, sub: sub, code: code, message: clipped(fmt.Sprintf(format, args...))}
}

const maxMessage = 4 << 10 // bytes; requests that it repeats are larger

// clipped is a message that is not too long.
func clipped(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}

// badRequest is a 400 without a sub-status.
func badRequest(format string, args ...any) *fault {
	return newFault(http.StatusBadRequest, 0, "BadRequest", format, args...)
}

// Sub-statuses that clients act on.
const (
	subKeyMismatch      = 1001  // 400: the partition key is not the document's
	subCrossPartition   = 1004  // 400: the gateway cannot serve the query over partitions
	subRangeGone        = 1002  // 410: split or merged
	subNoSession        = 1002  // 404: the session token is ahead of the server
	subOwnerNotFound    = 1003  // 404: the container or database of the resource is missing
	subWrongRID         = 1024  // 400: the container was made anew
	subThrottled        = 3200  // 429: the range is over its budget
	subDateOutOfWindow  = 0     // 403
	statusRetryWith     = 449   // never sent
	clientGone          = 499   // nobody reads it
	codeTooManyRequests = "429" // the service's word for it
)

// faultOf gives an error the answer that the service has for it.
func faultOf(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if q, ok := errors.AsType[*sql.Error](err); ok {
		return badRequest("%s", q.Message)
	}
	f := &fault{message: clipped(err.Error())}
	switch {
	case errors.Is(err, context.Canceled):
		f.status, f.code = clientGone, "ClientClosedRequest"
	case errors.Is(err, context.DeadlineExceeded):
		f.status, f.code = http.StatusRequestTimeout, "RequestTimeout"
	case errors.Is(err, changefeed.ErrPrecondition):
		f.status, f.code = http.StatusPreconditionFailed, "PreconditionFailed"
	case errors.Is(err, changefeed.ErrConflict):
		f.status, f.code = http.StatusConflict, "Conflict"
	case errors.Is(err, changefeed.ErrNotFound):
		f.status, f.code = http.StatusNotFound, "NotFound"
	case errors.Is(err, changefeed.ErrForbidden):
		f.status, f.code = http.StatusForbidden, "Forbidden"
	case errors.Is(err, changefeed.ErrGone):
		f.status, f.sub, f.code = http.StatusGone, subRangeGone, "Gone"
	case errors.Is(err, docstore.ErrKeyMismatch):
		f.status, f.sub, f.code = http.StatusBadRequest, subKeyMismatch, "BadRequest"
	case errors.Is(err, docstore.ErrTooLarge), errors.Is(err, docstore.ErrBatchLimit):
		f.status, f.code = http.StatusRequestEntityTooLarge, "RequestEntityTooLarge"
	case errors.Is(err, changefeed.ErrTooOld), errors.Is(err, changefeed.ErrBadRequest):
		f.status, f.code = http.StatusBadRequest, "BadRequest"
	case errors.Is(err, docstore.ErrClosed), errors.Is(err, docstore.ErrFailed):
		f.status, f.code = http.StatusServiceUnavailable, "ServiceUnavailable"
	default:
		f.status, f.code = http.StatusInternalServerError, "InternalServerError"
	}
	return f
}

// body is the answer's JSON. The service puts messages in the same forms.
func (f *fault) body(activity string) []byte {
	message := f.message
	if !f.gateway {
		message = fmt.Sprintf("Message: {\"Errors\":[%q]}", f.message)
	}
	b, _ := json.Marshal(struct {
		Code    string          `json:"code"`
		Message string          `json:"message"`
		Extra   json.RawMessage `json:"additionalErrorInfo,omitempty"`
	}{f.code, message + "\r\nActivityId: " + activity, f.extra}) // always marshals
	return b
}
