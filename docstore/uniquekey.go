package docstore

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// uniqueKeyValue returns the one text of the values at the paths of a unique key, a
// JSON array with an element for each path. The body must have passed parseDocument. A
// missing value is null, as in the service: so one document of a logical partition may
// lack the value.
func uniqueKeyValue(body []byte, paths []pkey.Path) ([]byte, error) {
	key := []byte{'['}
	for i, path := range paths {
		if i > 0 {
			key = append(key, ',')
		}
		value := rawjson.Lookup(body, path...)
		var err error
		switch {
		case value == nil:
			key = append(key, "null"...)
		case value[0] == '{' || value[0] == '[':
			key, err = appendNested(key, value)
		default:
			key, err = pkey.AppendScalar(key, value)
		}
		if err != nil {
			return nil, fmt.Errorf("read unique key %s: %w", path, err)
		}
	}
	return append(key, ']'), nil
}

// appendNested appends the one text of an object or array: no space, names sorted, of
// several members with one name the last.
// Numbers become float64 on the way, as they are for the service.
func appendNested(dst, raw []byte) ([]byte, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return dst, refuse("%s: %v", pkey.Show(raw), err) // a number out of range
	}
	return appendEncoded(dst, unsigned(v)), nil
}

// unsigned takes the sign off every zero of a decoded value, because -0 and 0 are equal
// and must have one text.
func unsigned(v any) any {
	switch v := v.(type) {
	case float64:
		return v + 0
	case []any:
		for i := range v {
			v[i] = unsigned(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = unsigned(v[name])
		}
	}
	return v
}

// appendEncoded appends the JSON of v without the escapes for HTML, which the service
// does not make. v must have come from JSON, so encoding cannot fail.
func appendEncoded(dst []byte, v any) []byte {
	b := bytes.NewBuffer(dst)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return dst
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
