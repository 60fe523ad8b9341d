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

// Parse reads a range written min-max in hex. It is not ok for any other text, or a range without a key.
func Parse[R ~struct{ Min, Max string }](text string) (r R, ok bool) {
	least, most, ok := strings.Cut(strings.ToUpper(text), "-")
	if !ok || !isHex(least) || !isHex(most) || least >= most {
		return r, false
	}
	return R{least, most}, true
}

func isHex(text string) bool { return strings.Trim(text, "0123456789ABCDEF") == "" }

// Join writes ranges, with commas between them.
func Join[R ~struct{ Min, Max string }](ranges []R) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = span(r).Min + "-" + span(r).Max
	}
	return strings.Join(texts, ",")
}

// Split reads the text of [Join]. It is not ok if the ranges do not tile the whole.
func Split[R ~struct{ Min, Max string }](whole R, text string) (parts []R, ok bool) {
	at := span(whole).Min
	for part := range strings.SplitSeq(text, ",") {
		r, ok := Parse[R](part)
		if !ok || span(r).Min != at {
			return nil, false
		}
		parts, at = append(parts, r), span(r).Max
	}
	return parts, at == span(whole).Max
}
