package leasedoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// object is a JSON object whose members keep order and text, which a map would lose:
// documents are written as .NET writes them, and members of others come back unchanged.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// parseObject reads an object; of a repeated name, the last value, as everywhere here.
// Of a broken text it returns the members before the break, for the listing.
func parseObject(text []byte) (object, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var o object
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return o, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return o, fmt.Errorf("member %v: %w", name, err)
		}
		o.put(name.(string), value)
	}
	if _, err := dec.Token(); err != nil {
		return o, err
	}
	if dec.More() {
		return o, errors.New("text after the object")
	}
	return o, nil
}

// put adds a member or replaces its value.
func (o *object) put(name string, value json.RawMessage) {
	for i := range *o {
		if (*o)[i].name == name {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, member{name, value})
}

// get returns the value of a member, nil when absent or null: .NET writes unset members
// as null.
func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name && string(m.value) != "null" {
			return m.value
		}
	}
	return nil
}

// getFold is get that accepts a name in another case: Java writes feedRange, .NET
// FeedRange.
func (o object) getFold(name string) json.RawMessage {
	if v := o.get(name); v != nil {
		return v
	}
	for _, m := range o {
		if strings.EqualFold(m.name, name) && string(m.value) != "null" {
			return m.value
		}
	}
	return nil
}

// has reports whether a member is present, even as null.
func (o object) has(name string) bool {
	for _, m := range o {
		if m.name == name {
			return true
		}
	}
	return false
}

// text returns the object without spaces between members.
func (o object) text() []byte {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(m.name)...)
		b = append(b, ':')
		b = append(b, m.value...)
	}
	return append(b, '}')
}

// quote returns the JSON text of a string, without the HTML escapes of [json.Marshal],
// which .NET does not write.
func quote(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return json.RawMessage(`""`) // unreachable: a string always encodes
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
