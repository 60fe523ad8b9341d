package cosmosrest

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// itemError is [errorOf] for an error about an item. The message begins with the service's sentence.
func itemError(err error) *wire.Error {
	e := errorOf(err)
	sentence := ""
	if _, ours := errors.AsType[*wire.Error](err); !ours || e.Status == http.StatusPreconditionFailed {
		sentence = itemSentences[e.Status]
	}
	switch {
	case errors.Is(err, docstore.ErrKeyMismatch):
		sentence = wire.OtherKey
	case errors.Is(err, docstore.ErrNotJSON):
		sentence = invalidPayload
	case errors.Is(err, docstore.ErrIDLength):
		sentence = "Ensure to provide a unique non-empty string less than '1024' characters."
	case errors.Is(err, docstore.ErrNoID):
		sentence = "The input content is invalid because the required properties - 'id; ' - are missing. Learn more: " +
			"https://aka.ms/CosmosDB/sql/errors/missing-id"
	}
	if sentence == "" {
		return e
	}
	return e.Led(sentence)
}

// invalidPayload is the service's sentence about a body that is damaged.
const invalidPayload = "The request payload is invalid. Ensure to provide a valid request payload."

// itemSentences are the service's sentences about an item, by status.
var itemSentences = map[int]string{
	http.StatusNotFound: "Entity with the specified id does not exist in the system. More info: " +
		"https://aka.ms/cosmosdb-tsg-not-found",
	http.StatusConflict: "Entity with the specified id already exists in the system.",
	http.StatusPreconditionFailed: "Operation cannot be performed because one of the specified precondition " +
		"is not met. " + otherVersion,
}

// otherVersion is what the service says of a condition on a version that does not hold. The words about items have
// changed, and programs look for either.
const otherVersion = "One of the specified pre-condition is not met. Learn more: " +
	"https://aka.ms/CosmosDB/sql/errors/precondition-failed."

// resourceError is [errorOf] for an error about a database, container, user or permission. The message begins with the
// service's sentence.
func resourceError(err error) *wire.Error {
	e := errorOf(err)
	switch e.Status {
	case http.StatusConflict:
		return e.Led("Resource with specified id, name, or unique index already exists. " +
			"Resource with specified id or name already exists.")
	case http.StatusPreconditionFailed:
		return e.Led(otherVersion)
	}
	return e
}

// errorOf returns the answer that the service gives for an error. If the service has no such error, the answer is a
// 500: such an error is a defect, and is logged.
func errorOf(err error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	if q, ok := errors.AsType[*sql.Error](err); ok {
		e := wire.BadRequest("%s", q.Message)
		e.Sub, e.Details = q.Sub, q.JSON()
		return e
	}
	// The service's sentences about a condition come before the message, and say what the end of the error says.
	e := &wire.Error{Message: wire.Clip(strings.TrimSuffix(err.Error(), ": "+feed.ErrPrecondition.Error()))}
	// An error may match several of these cases. Special errors come before the errors that they wrap:
	// ErrPrecondition before ErrConflict, and ErrTooLarge before ErrBadRequest.
	switch {
	case errors.Is(err, context.Canceled):
		e.Status, e.Code = wire.StatusClientGone, "ClientClosedRequest"
	case errors.Is(err, context.DeadlineExceeded):
		e.Status, e.Code = http.StatusRequestTimeout, wire.CodeTimeout
	case errors.Is(err, feed.ErrPrecondition):
		e.Status, e.Code = http.StatusPreconditionFailed, wire.CodePrecondition
	case errors.Is(err, feed.ErrConflict):
		e.Status, e.Code = http.StatusConflict, "Conflict"
	case errors.Is(err, feed.ErrNotFound):
		e.Status, e.Code = http.StatusNotFound, wire.CodeNotFound
	case errors.Is(err, feed.ErrForbidden):
		e.Status, e.Code = http.StatusForbidden, wire.CodeForbidden
	case errors.Is(err, feed.ErrGone):
		e.Status, e.Sub, e.Code = http.StatusGone, wire.SubRangeGone, wire.CodeGone
	case errors.Is(err, docstore.ErrKeyMismatch):
		e.Status, e.Sub, e.Code = http.StatusBadRequest, wire.SubKeyMismatch, wire.CodeBadRequest
	case errors.Is(err, docstore.ErrTooLarge), errors.Is(err, docstore.ErrBatchLimit):
		e.Status, e.Code = http.StatusRequestEntityTooLarge, wire.CodeTooLarge
	case errors.Is(err, feed.ErrTooOld), errors.Is(err, feed.ErrBadRequest):
		e.Status, e.Code = http.StatusBadRequest, wire.CodeBadRequest
	case errors.Is(err, docstore.ErrClosed), errors.Is(err, docstore.ErrFailed), errors.Is(err, docstore.ErrDiskFull):
		e.Status, e.Code = http.StatusServiceUnavailable, "ServiceUnavailable"
	default:
		e.Status, e.Code = http.StatusInternalServerError, "InternalServerError"
	}
	return e
}
