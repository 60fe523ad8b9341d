package keyspace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Text is the JSON of one component of a partition key, without the HTML escapes of
// [json.Marshal] and the sign of a zero, because one value must have one text. Of a value that
// no component can have it is the name of its type, which every parser of keys refuses.
func Text(component any) string {
	switch reflect.ValueOf(component).Kind() {
	case reflect.Map, reflect.Struct, reflect.Slice, reflect.Array, reflect.Pointer:
		return fmt.Sprintf("%T", component)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(component); err != nil {
		return fmt.Sprintf("%T", component)
	}
	if text := strings.TrimSuffix(b.String(), "\n"); text != "-0" {
		return text
	}
	return "0"
}
