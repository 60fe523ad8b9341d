package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Refusals. Status and sub-status are those on which SDKs act: with another sub-status a
// client would retry for ever, or read its partitions again for nothing. A message begins with
// the service's sentence, for which programs look, if that is known; ours follows.

// Error is an answer that refuses: status, sub-status, code and message as the service has
// them.
type Error struct {
	Status  int
	Sub     int
	Code    string
	Message string
	After   time.Duration   // when to try again, for a 429
	Extra   json.RawMessage // additionalErrorInfo
	Allow   string          // methods, of a 405
	Bare    bool            // from the gateway, which puts no frame around the message
	Details json.RawMessage // of a query: its errors, each with its place, in place of the message
}

// Led is the error with a sentence of the service before its message.
func (e *Error) Led(sentence string) *Error {
	if !strings.HasSuffix(sentence, ".") {
		sentence += ":"
	}
	e.Message = sentence + " " + e.Message
	return e
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Errorf is an error whose message is cut to a length that clients accept.
func Errorf(status, sub int, code, format string, args ...any) *Error {
	return &Error{Status: status, Sub: sub, Code: code, Message: Clip(fmt.Sprintf(format, args...))}
}

// Clip is a message, cut if it is too long. Messages repeat parts of requests, which may be
// megabytes.
func Clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}

// BadRequest is a 400 without a sub-status.
func BadRequest(format string, args ...any) *Error {
	return Errorf(http.StatusBadRequest, 0, CodeBadRequest, format, args...)
}

// NotFound is a 404 with a sub-status, or 0 for none.
func NotFound(sub int, format string, args ...any) *Error {
	return Errorf(http.StatusNotFound, sub, CodeNotFound, format, args...)
}

// PreconditionFailed is the 412 of a condition that is not met.
func PreconditionFailed(format string, args ...any) *Error {
	return Errorf(http.StatusPreconditionFailed, 0, CodePrecondition, format, args...)
}

// Gone is the 410 of a partition key range that was split or merged: the client reads the
// ranges again.
func Gone(format string, args ...any) *Error {
	return Errorf(http.StatusGone, SubRangeGone, CodeGone, format, args...)
}

// TooLarge is the 413 of a body above a limit in bytes.
func TooLarge(limit int64) *Error {
	return Errorf(http.StatusRequestEntityTooLarge, 0, CodeTooLarge, "Request size is too large: want at most %d bytes", limit)
}

// Throttled is a 429 that names its cause, and the time after which to try again.
func Throttled(after time.Duration, format string, args ...any) *Error {
	e := Errorf(http.StatusTooManyRequests, subThrottled, "TooManyRequests", format+". Try again in %v", append(args, after)...)
	e.After = after
	return e.Led("Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429")
}

// Sentences of the service that several places give. Programs look for them.
const (
	NoResource = "Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found"
	NoKey      = "The partition key supplied in x-ms-partitionkey header has fewer components than defined in the the collection."
	OtherKey   = "PartitionKey extracted from document doesn't match the one specified in the header. Learn more: https://aka.ms/CosmosDB/sql/errors/wrong-pk-value"
)

// Sub-statuses that clients act on.
const (
	SubKeyMismatch    = 1001 // 400: the partition key is not the document's
	SubCrossPartition = 1004 // 400: the gateway cannot serve the query over partitions
	SubWrongRID       = 1024 // 400: the container was made anew
	SubNoSession      = 1002 // 404: the session token is ahead of the server
	SubOwnerNotFound  = 1003 // 404: the database of the container is missing
	SubRangeGone      = 1002 // 410: split or merged
	SubAnswerTooLarge = 3402 // 413, of an operation of a bulk: the read is to be sent in another request
	subThrottled      = 3200 // 429: the range is over its budget
)

// Codes of errors that several places give.
const (
	CodeBadRequest   = "BadRequest"
	CodeForbidden    = "Forbidden"
	CodeGone         = "Gone"
	CodeNotAllowed   = "MethodNotAllowed"
	CodeNotFound     = "NotFound"
	CodePrecondition = "PreconditionFailed"
	CodeTimeout      = "RequestTimeout"
	CodeTooLarge     = "RequestEntityTooLarge"
	CodeUnauthorized = "Unauthorized"
)

// StatusClientGone is the status, in logs, of an answer that nobody reads.
const StatusClientGone = 499

// Body is the answer's JSON. Messages of the service are framed twice, a JSON text in a
// JSON string, and SDKs unpack them so.
func (e *Error) Body(activity string) []byte {
	message := e.Message
	switch {
	case e.Details != nil:
		message = fmt.Sprintf("Message: {\"errors\":[%s]}", e.Details)
	case !e.Bare:
		message = fmt.Sprintf("Message: {\"Errors\":[%s]}", Encode(e.Message)) // %q would have escapes that JSON has not
	}
	b, _ := json.Marshal(struct {
		Code    string          `json:"code"`
		Message string          `json:"message"`
		Extra   json.RawMessage `json:"additionalErrorInfo,omitempty"`
	}{e.Code, message + "\r\nActivityId: " + activity, e.Extra}) // always marshals
	return b
}
