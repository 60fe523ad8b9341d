package function

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The host of Azure reads its files with Json.NET, which takes more than JSON: comments, a comma after the last member,
// and a byte order mark.

// A member is a member of an object.
type member struct {
	name  string
	value json.RawMessage
}

// toJSON overwrites comments, and commas after the last member, with blanks. All other bytes keep their places.
func toJSON(text []byte) []byte {
	text = bytes.Clone(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	comma := -1 // after which there were only blanks
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			i = endOfString(text, i)
			comma = -1
		case c == '/':
			end := endOfComment(text, i)
			if end == i {
				return text // no JSON
			}
			blank(text[i:end])
			i = end - 1
		case c == ',':
			comma = i
		case (c == '}' || c == ']') && comma >= 0:
			text[comma], comma = ' ', -1
		case !strings.ContainsRune(" \t\r\n", rune(c)):
			comma = -1
		}
	}
	return text
}

// endOfString returns the place of the quotation mark that ends the string which begins at i.
func endOfString(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i
}

// endOfComment returns the end of the comment that begins at i, or i if none begins there.
func endOfComment(text []byte, i int) int {
	ends, length := "\n", 0
	switch {
	case bytes.HasPrefix(text[i:], []byte("//")):
	case bytes.HasPrefix(text[i:], []byte("/*")):
		ends, length = "*/", 2
	default:
		return i
	}
	const opening = 2
	end := bytes.Index(text[i+opening:], []byte(ends))
	if end < 0 {
		return len(text)
	}
	return i + opening + end + length
}

// blank overwrites a text with blanks, except for the ends of lines.
func blank(text []byte) {
	for i, c := range text {
		if c != '\n' {
			text[i] = ' '
		}
	}
}

var errNoObject = errors.New("it is no object: want { at the beginning")

// parseObject reads the members of an object in their order.
func parseObject(text []byte) (members []member, err error) {
	if !json.Valid(text) {
		return nil, syntaxError(text)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return nil, errNoObject
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		members = append(members, member{fmt.Sprint(name), value})
	}
	return members, nil
}

// syntaxError says in which line a text is no JSON.
func syntaxError(text []byte) error {
	err := json.Unmarshal(text, new(any))
	wrong, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	line := 1 + bytes.Count(text[:min(int(wrong.Offset), len(text))], []byte("\n"))
	return fmt.Errorf("line %d: it is no JSON: %s", line, strings.TrimPrefix(wrong.Error(), "json: "))
}

// plainText returns the text of a JSON string, or a number or boolean as its text.
func plainText(value json.RawMessage) (text string, ok bool) {
	var v any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number, bool:
		return fmt.Sprint(v), true
	}
	return "", false
}

// parseArray reads the elements of an array.
func parseArray(text []byte) (elements []json.RawMessage, err error) {
	err = json.Unmarshal(text, &elements)
	return elements, err
}
