package changeline

import (
	"errors"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

var errObject = errors.New("read document: want a JSON object")

// WithoutSystem is a document as its writer had it: the members that are not the store's,
// in their order, with the text of their values.
func WithoutSystem(body []byte) ([]byte, error) {
	if _, ok := rawjson.Check(body); !ok {
		return nil, errObject
	}
	if s := rawjson.Scan(body, 0); s.Peek() != '{' {
		return nil, errObject
	}
	return rawjson.Without(nil, body, service.IsSystem), nil
}
