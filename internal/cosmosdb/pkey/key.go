package pkey

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// In JSON a key has many texts; here a key has a single text, which is used for comparing, storing and hashing: [1.0]
// and [1] must not become two partitions.

// Key is a parsed partition key.
type Key struct {
	text  string
	n     int // number of components; only counted if there are more than a container can have
	parts [epk.MaxLevels]epk.Component
}

// Text returns the canonical text of the key.
func (k *Key) Text() string { return k.text }

// Len returns the number of components.
func (k *Key) Len() int { return k.n }

// Components returns the components for hashing. They share the key's memory.
func (k *Key) Components() epk.Components { return k.parts[:min(k.n, len(k.parts))] }

// addComponent adds the next component. Surplus components are counted too, because the error for a key that is too
// long reports its length.
func (k *Key) addComponent(c epk.Component) {
	if k.n < len(k.parts) {
		k.parts[k.n] = c
	}
	k.n++
}

// Canonical returns the canonical text of a key; see [Parse].
func Canonical(text string) (feed.PartitionKey, error) {
	k, err := Parse(text)
	return feed.PartitionKey(k.text), err
}

// plainString returns the component of a key that consists of a single string, if the key's text contains the string
// unchanged: printable ASCII without escapes, as in most keys. Such a text is already canonical.
func plainString(key string) (string, bool) {
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

// Of returns the key of a document with these values at the paths, as JSON; nil is an absent value. As in the service,
// objects and arrays count as absent. Numbers outside the range of a float64 are not allowed in a key.
func Of(paths []Path, values [][]byte) (feed.PartitionKey, error) {
	// Most keys are short, so their text is built on the stack and allocated once.
	var short [128]byte
	key := append(short[:0], '[')
	for i, p := range paths {
		if i > 0 {
			key = append(key, ',')
		}
		value, err := values[i], error(nil)
		switch {
		case value == nil || value[0] == '{' || value[0] == '[':
			key = append(key, "{}"...) // feed.Undefined
		default:
			if key, err = AppendScalar(key, value); err != nil {
				return "", fmt.Errorf("read partition key %s: %w", p, err)
			}
		}
	}
	return feed.PartitionKey(append(key, ']')), nil
}

// Loose is Of for a client: a number that is not allowed in a key counts as absent, because the service has already
// accepted the document.
func Loose(paths []Path, values [][]byte) feed.PartitionKey {
	key, err := Of(paths, values)
	if err == nil {
		return key
	}
	for i, value := range values {
		if value == nil || value[0] == '{' || value[0] == '[' {
			continue
		}
		if _, err := AppendScalar(nil, value); err != nil {
			values[i] = nil // a number outside the range of a float64
		}
	}
	key, _ = Of(paths, values)
	return key
}

// AppendScalar appends the canonical text of a string, number, boolean or null. Most numbers are short integers;
// these are copied, because a float64 keeps all their digits.
func AppendScalar(dst, raw []byte) ([]byte, error) {
	const exact = 15 // digits that every float64 keeps
	switch raw[0] {
	case '"':
		return rawjson.AppendString(dst, rawjson.Key(raw).Name()), nil
	case 't', 'f', 'n':
		return append(dst, raw...), nil
	}
	if len(raw) <= exact && !bytes.ContainsAny(raw, ".eE") && string(raw) != "-0" {
		return append(dst, raw...), nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return dst, refuse("%s is out of range: want one that a float64 holds", Show(raw))
	}
	return rawjson.AppendNumber(dst, f), nil
}

// Show returns the type of a value and its first 64 bytes, for an error.
func Show(raw []byte) string {
	const most = 64
	text := string(raw)
	if len(text) > most {
		text = string(bytes.ToValidUTF8(raw[:most], nil)) + "..."
	}
	switch raw[0] {
	case '{':
		return "the object " + text
	case '[':
		return "the array " + text
	case '"':
		return "the string " + text
	case 't', 'f', 'n':
		return text
	}
	return "the number " + text
}
