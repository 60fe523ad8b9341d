package cosmosrest

import (
	"errors"
	"slices"
	"sync"

	"github.com/millrace/changefeed/cosmosrest/internal/binaryjson"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Documents in Cosmos binary JSON. The store keeps text, so binary bodies are converted on their way in, and answers on
// their way out. Text passes unchanged. docs/decisions/0011 has the measurements behind this.

// documentBody reads the body of a request about documents as text. checked reports whether the text is known to be
// JSON in UTF-8.
func (c *call) documentBody(limit int64) (text []byte, checked bool, err error) {
	body, err := c.in.Body(limit)
	if err != nil || !binaryjson.Is(body) {
		return body, false, err
	}
	text, err = textOf(body, int(limit))
	return text, true, err
}

// textOf returns the text of a body in binary JSON, with room for the system properties of an item.
func textOf(body []byte, limit int) ([]byte, error) {
	text, err := binaryjson.AppendText(make([]byte, 0, len(body)+len(body)/4+service.SystemRoom), body, limit)
	switch {
	case errors.Is(err, binaryjson.ErrTooLong):
		return nil, wire.TooLarge(int64(limit))
	case err != nil:
		return nil, wire.BadRequest("body is not binary JSON: %v", err).Led(invalidPayload)
	}
	return text, nil
}

// binaryBodies is a pool of buffers for answers.
var binaryBodies = sync.Pool{New: func() any { return new([]byte) }}

// maxBinaryKept is the largest size of a buffer that returns to the pool.
const maxBinaryKept = 2 * wire.MaxPage

// sendDocuments is [call.sendReply] for a body with documents, in the format that the client wants.
func (c *call) sendDocuments(status int, text []byte) error {
	if !c.binary || len(text) == 0 {
		return c.sendReply(status, text)
	}
	if !c.written { // the answer to a write is always sent
		if err := c.work.Work(len(text)); err != nil {
			return err
		}
	}
	buffer := binaryBodies.Get().(*[]byte)
	*buffer = binaryjson.Append(slices.Grow((*buffer)[:0], len(text)), text)
	err := c.sendReply(status, *buffer)
	if cap(*buffer) <= maxBinaryKept {
		binaryBodies.Put(buffer)
	}
	return err
}
