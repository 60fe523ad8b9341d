package wire

import (
	"bytes"
	"encoding/json"
)

// Encode returns the JSON of a value that always marshals. Encode omits the HTML escapes of [json.Marshal], which
// would change ids such as "a&b".
func Encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // cannot fail: values are strings, numbers, and JSON that was parsed before
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}
