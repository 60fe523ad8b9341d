package docstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxKeyPaths is how many levels a hierarchical partition key has at most.
const maxKeyPaths = 3

// keyPath is the path of a partition key or unique key, a name for each level. Paths
// lead through objects only.
type keyPath []string

// String returns the path in a form that parseKeyPath reads.
func (p keyPath) String() string {
	var b strings.Builder
	for _, name := range p {
		b.WriteByte('/')
		if name == "" || isWildcard(name) || strings.ContainsAny(name, `/"'`) || strings.TrimSpace(name) != name {
			name = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
		}
		b.WriteString(name)
	}
	return b.String()
}

func isWildcard(name string) bool { return name == "*" || name == "?" || name == "[]" }

// parseKeyPath reads a path such as /address/city or /address/"zip / post code". Within
// quotes of either kind, a backslash makes the next character literal.
func parseKeyPath(path string) (keyPath, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, refuse("path %q does not begin with a slash: want one as in /tenant", path)
	}
	if !utf8.ValidString(path) {
		return nil, refuse("path %q is not UTF-8: want one as in /tenant", path)
	}
	var p keyPath
	for rest := path; rest != ""; {
		name, tail, err := cutSegment(rest[1:])
		if err != nil {
			return nil, fmt.Errorf("read path %q: %w", path, err)
		}
		if tail != "" && tail[0] != '/' {
			return nil, refuse("path %q goes on behind a quote: want a slash there", path)
		}
		p, rest = append(p, name), tail
	}
	if isSystem(p[0]) {
		return nil, refuse("path %q leads to a system property: want one of your own", path)
	}
	return p, nil
}

// cutSegment takes the first name off a path without its slash. Wildcards are refused
// here: indexing policies have them, keys do not, and a name of that form needs quotes.
func cutSegment(path string) (name, tail string, err error) {
	if path != "" && (path[0] == '"' || path[0] == '\'') {
		return cutQuoted(path)
	}
	end := strings.IndexByte(path+"/", '/')
	name, tail = path[:end], path[end:]
	switch {
	case name == "":
		return "", "", refuse("a slash has no name behind it: want one as in /tenant")
	case isWildcard(name):
		return "", "", refuse("segment %s is a wildcard: want a name, or %q for a property of that name", name, name)
	}
	return name, tail, nil
}

// cutQuoted is cutSegment for a path that begins with a quote.
func cutQuoted(path string) (name, tail string, err error) {
	var b strings.Builder
	for i := 1; i < len(path); i++ {
		switch path[i] {
		case path[0]:
			return b.String(), path[i+1:], nil
		case '\\':
			if i++; i == len(path) {
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return "", "", refuse("segment %s has no closing quote", path)
}

// parseKeyPaths reads the partition key paths of a container.
func parseKeyPaths(paths []string) ([]keyPath, error) {
	if len(paths) < 1 || len(paths) > maxKeyPaths {
		return nil, refuse("container has %d partition key paths: want 1 to %d", len(paths), maxKeyPaths)
	}
	var parsed []keyPath
	for _, path := range paths {
		p, err := parseKeyPath(path)
		if err != nil {
			return nil, fmt.Errorf("read partition key paths: %w", err)
		}
		if slices.ContainsFunc(parsed, func(other keyPath) bool { return slices.Equal(other, p) }) {
			return nil, refuse("partition key path %s comes twice: want different paths", p)
		}
		parsed = append(parsed, p)
	}
	return parsed, nil
}

// uniqueKeyValue returns the one text of the values at the paths of a unique key, a
// JSON array with an element for each path. The body must have passed parseDocument. A
// missing value is null, as in the service: so one document of a logical partition may
// lack the value.
func uniqueKeyValue(body []byte, paths []keyPath) ([]byte, error) {
	w := walker{text: body}
	w.space()
	root := span{w.pos, len(body)}
	key := []byte{'['}
	for i, p := range paths {
		if i > 0 {
			key = append(key, ',')
		}
		value := lookup(body, root, p).of(body)
		var err error
		switch {
		case value == nil:
			key = append(key, "null"...)
		case value[0] == '{' || value[0] == '[':
			key, err = appendNested(key, value)
		default:
			key, err = appendScalar(key, value)
		}
		if err != nil {
			return nil, fmt.Errorf("read unique key %s: %w", p, err)
		}
	}
	return append(key, ']'), nil
}

// appendNested appends the one text of an object or array: no space, names sorted, of
// several members with one name the last.
func appendNested(dst, raw []byte) ([]byte, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return dst, refuse("%s: %v", show(raw), err) // a number out of range
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

// appendScalar appends the one text of a string, number, boolean or null, as
// [changefeed.Key] writes it. Short integers, which are most numbers, are copied: no
// float64 changes their digits.
func appendScalar(dst, raw []byte) ([]byte, error) {
	const exact = 15 // digits that every float64 keeps
	switch raw[0] {
	case '"':
		return appendString(dst, unquote(raw)), nil
	case 't', 'f', 'n':
		return append(dst, raw...), nil
	}
	if len(raw) <= exact && !bytes.ContainsAny(raw, ".eE") && string(raw) != "-0" {
		return append(dst, raw...), nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return dst, refuse("%s is out of range: want one that a float64 holds", show(raw))
	}
	return appendEncoded(dst, f+0), nil // -0 and 0 are one key
}

// appendString appends s as a JSON string. Plain ASCII takes the quick way; the rest is
// left to the encoder, whose escapes are those that canonical keys have.
func appendString(dst []byte, s string) []byte {
	from := len(dst)
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ' || c >= utf8.RuneSelf:
			return appendEncoded(dst[:from], s)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
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

// unquote returns the text of a JSON string. Half of a surrogate pair becomes U+FFFD.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return string(raw) // cannot be: raw is JSON
	}
	return s
}

// show names the type of a value and quotes its first 64 bytes, for an error.
func show(raw []byte) string {
	const most = 64
	text := string(raw)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
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
