package wire

import (
	"bytes"
	"encoding/json"
)

// Encode is the JSON of a value that always marshals, without the HTML escapes of
// [json.Marshal], which would show in ids such as "a&b".
func Encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // values are strings, numbers, and JSON that was read
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}
