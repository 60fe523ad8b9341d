package docstore

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// uniqueKeyValue returns the values at the paths of a unique key in one canonical text: a JSON array with an element
// for each path. The caller must have checked body with parseDocument. As in the service, a missing value counts as
// null, so only one document of a logical partition may lack the value.
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

// appendNested appends the canonical text of an object or array: without spaces, with names sorted, and with only the
// last member of each name. Numbers become float64, as in the service.
func appendNested(dst, raw []byte) ([]byte, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return dst, refuse("%s: %v", pkey.Show(raw), err) // a number out of range
	}
	return appendEncoded(dst, unsigned(v)), nil
}

// unsigned removes the sign of every zero in a decoded value, because -0 and 0 are equal and must have the same text.
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

// appendEncoded appends the JSON of v without escapes for HTML, because the service does not escape them. v must come
// from decoded JSON, so encoding cannot fail.
func appendEncoded(dst []byte, v any) []byte {
	b := bytes.NewBuffer(dst)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return dst
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
