package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Errors of the protocol. SDKs act on status and sub-status: with a wrong sub-status a client would retry for ever,
// or read its partitions again in vain. If the service's sentence is known, a message begins with this sentence,
// because programs look for the sentence; our own text follows.

// Error is an error answer, with the service's status, sub-status, code and message.
type Error struct {
	Status  int
	Sub     int
	Code    string
	Message string
	After   time.Duration   // when to retry, for a 429
	Extra   json.RawMessage // additionalErrorInfo
	Allow   string          // allowed methods, for a 405
	Bare    bool            // an error of the gateway, whose message has no frame
	Details json.RawMessage // errors of a query with their places; replaces the message
}

// Led returns the error with a sentence of the service before its message.
func (e *Error) Led(sentence string) *Error {
	if !strings.HasSuffix(sentence, ".") {
		sentence += ":"
	}
	e.Message = sentence + " " + e.Message
	return e
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errorf returns an error. A message that is too long for clients is cut.
func Errorf(status, sub int, code, format string, args ...any) *Error {
	return &Error{Status: status, Sub: sub, Code: code, Message: Clip(fmt.Sprintf(format, args...))}
}

// Clip cuts a message that is too long. Messages repeat parts of requests, which may be megabytes.
func Clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}

// BadRequest returns a 400 without a sub-status.
func BadRequest(format string, args ...any) *Error {
	return Errorf(http.StatusBadRequest, 0, CodeBadRequest, format, args...)
}

// NotFound returns a 404 with a sub-status; 0 means none.
func NotFound(sub int, format string, args ...any) *Error {
	return Errorf(http.StatusNotFound, sub, CodeNotFound, format, args...)
}

// PreconditionFailed returns the 412 of a condition that does not hold.
func PreconditionFailed(format string, args ...any) *Error {
	return Errorf(http.StatusPreconditionFailed, 0, CodePrecondition, format, args...)
}

// Gone returns the 410 of a partition key range that was split or merged. The client then reads the ranges again.
func Gone(format string, args ...any) *Error {
	return Errorf(http.StatusGone, SubRangeGone, CodeGone, format, args...)
}

// TooLarge returns the 413 of a body that is larger than limit bytes.
func TooLarge(limit int64) *Error {
	return Errorf(http.StatusRequestEntityTooLarge, 0, CodeTooLarge, "Request size is too large: want at most %d bytes",
		limit)
}

// Throttled returns a 429 with its cause, and the time after which to retry.
func Throttled(after time.Duration, format string, args ...any) *Error {
	e := Errorf(http.StatusTooManyRequests, subThrottled, "TooManyRequests", format+". Try again in %v",
		append(args, after)...)
	e.After = after
	return e.Led("Request rate is large. More Request Units may be needed, so no changes were made. Please retry " +
		"this request later. Learn more: http://aka.ms/cosmosdb-error-429")
}

// Sentences of the service used in several places. Programs look for them.
const (
	NoResource = "Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found"
	NoKey      = "The partition key supplied in x-ms-partitionkey header has fewer components than defined in the " +
		"the collection."
	PartKey = "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition " +
		"key field values specified in the document."
	OtherKey = "PartitionKey extracted from document doesn't match the one specified in the header. Learn more: " +
		"https://aka.ms/CosmosDB/sql/errors/wrong-pk-value"
)

// Sub-statuses that clients act on.
const (
	SubKeyMismatch    = 1001 // 400: the partition key differs from the document's
	SubCrossPartition = 1004 // 400: the gateway cannot serve the query across partitions
	SubWrongRID       = 1024 // 400: the container was deleted and created again
	SubNoSession      = 1002 // 404: the session token is ahead of the server
	SubOwnerNotFound  = 1003 // 404: the database of the container is missing
	SubRangeGone      = 1002 // 410: the range was split or merged
	SubAnswerTooLarge = 3402 // 413, of an operation of a bulk: send the read in another request
	subThrottled      = 3200 // 429: the range is over its budget
)

// Error codes used in several places.
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

// StatusClientGone is the status, in logs, of an answer whose client has gone.
const StatusClientGone = 499

// Body returns the answer's JSON. The service frames messages twice, as a JSON text in a JSON string, and SDKs unpack
// them accordingly.
func (e *Error) Body(activity string) []byte {
	message := e.Message
	switch {
	case e.Details != nil:
		message = fmt.Sprintf("Message: {\"errors\":[%s]}", e.Details)
	case !e.Bare:
		// %q would write escapes that JSON does not have
		message = fmt.Sprintf("Message: {\"Errors\":[%s]}", Encode(e.Message))
	}
	b, _ := json.Marshal(struct {
		Code    string          `json:"code"`
		Message string          `json:"message"`
		Extra   json.RawMessage `json:"additionalErrorInfo,omitempty"`
	}{e.Code, message + "\r\nActivityId: " + activity, e.Extra}) // cannot fail
	return b
}
