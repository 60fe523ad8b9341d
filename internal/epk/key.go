package epk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Marker bytes. They start every component in both byte layouts. The gaps are the
// service's: it has markers for types that are no partition keys.
const (
	markUndefined byte = 0x00
	markNull      byte = 0x01
	markFalse     byte = 0x02
	markTrue      byte = 0x03
	markNumber    byte = 0x05
	markString    byte = 0x08
)

// Component is the value at a partition key path. The zero Component is undefined: the
// item has no value at that path. Components are comparable.
type Component struct {
	mark byte
	num  float64
	str  string
}

// Components is a partition key: a component for each path, or fewer for a prefix of a
// hierarchical key.
type Components []Component

// Null returns the component for a JSON null.
func Null() Component { return Component{mark: markNull} }

// Bool returns the component for b.
func Bool(b bool) Component {
	if b {
		return Component{mark: markTrue}
	}
	return Component{mark: markFalse}
}

// Number returns the component for f.
func Number(f float64) Component { return Component{mark: markNumber, num: f} }

// String returns the component for s.
func String(s string) Component { return Component{mark: markString, str: s} }

// Parse reads a partition key as it travels in the header
// x-ms-documentdb-partitionkey: a JSON array of strings, numbers, booleans,
// nulls, and {} for undefined. An error names the component that is wrong.
func Parse(key string) (Components, error) {
	if s, ok := PlainString(key); ok {
		return Components{String(s)}, nil
	}
	if !strings.HasPrefix(strings.TrimLeft(key, " \t\r\n"), "[") {
		return nil, fmt.Errorf(`parse partition key %s: want a JSON array, such as ["London"]`, clip(key))
	}
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(key), &raw); err != nil {
		return nil, fmt.Errorf("parse partition key %s: %w", clip(key), err)
	}
	c := make(Components, len(raw))
	for i, r := range raw {
		var err error
		if c[i], err = parseComponent(r); err != nil {
			return nil, fmt.Errorf("parse partition key: component %d is %s: %w", i, clip(string(r)), err)
		}
	}
	return c, nil
}

// PlainString returns the only component of a key that is a single string, if the text
// of the key holds the string as it is: printable ASCII without escapes, as most keys
// are. Such a key has no other text, so callers need not make the text canonical. The
// JSON decoder, which costs more than the hash, is then not needed.
func PlainString(key string) (string, bool) {
	last := len(key) - len(`"]`)
	if last < len(`["`) || key[:2] != `["` || key[last:] != `"]` {
		return "", false
	}
	s := key[2:last]
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			return "", false
		}
	}
	return s, true
}

var (
	errArray  = errors.New("an array cannot be a component; want a string, a number, true, false, null or {}")
	errObject = errors.New("an object with members cannot be a component; want a string, a number, true, false, null or {}")
	errNumber = errors.New("the number does not fit a float64; want one between -1.8e308 and 1.8e308")
)

// parseComponent reads an element, which is known to be valid JSON.
func parseComponent(raw json.RawMessage) (Component, error) {
	switch raw[0] {
	case 'n':
		return Null(), nil
	case 't', 'f':
		return Bool(raw[0] == 't'), nil
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return String(s), err
	case '[':
		return Component{}, errArray
	case '{':
		if len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0 {
			return Component{}, errObject
		}
		return Component{}, nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return Component{}, errNumber
	}
	return Number(f), nil
}

// clip keeps an error message readable when the key in it is not.
func clip(s string) string {
	const longest = 64
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
