package changeline

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/feed"
)

// Append appends a change with everything that is known of it, as the object that Write writes, without a line end. The
// text is that of [json.Encoder] for described, which takes four times as long, because it checks each document anew.
func Append(dst []byte, r feed.Range, c *feed.Change, next string) ([]byte, error) {
	dst, err := appendChange(dst, r, c, next)
	if err != nil {
		return dst, fmt.Errorf("write change: %w", err)
	}
	return dst, nil
}

func appendChange(dst []byte, r feed.Range, c *feed.Change, next string) ([]byte, error) {
	dst = append(dst, `{"lsn":`...)
	dst = strconv.AppendInt(dst, c.LSN, 10)
	dst = append(dst, `,"time":"`...)
	dst, err := c.Time.AppendText(dst)
	if err != nil {
		return dst, err
	}
	dst = append(dst, `","op":"`...)
	dst = append(dst, c.Op.String()...)
	dst = appendText(append(dst, `","id":`...), c.ID)
	if dst, err = appendCompact(append(dst, `,"key":`...), string(c.PartitionKey)); err != nil {
		return dst, err
	}
	dst = appendText(append(dst, `,"range":`...), r.String())
	if c.Expired {
		dst = append(dst, `,"expired":true`...)
	}
	if len(c.Body) > 0 {
		if dst, err = appendDocument(append(dst, `,"document":`...), c.Body); err != nil {
			return dst, err
		}
	}
	if len(c.Previous) > 0 {
		if dst, err = appendDocument(append(dst, `,"previous":`...), c.Previous); err != nil {
			return dst, err
		}
	}
	if c.PreviousLSN != 0 {
		dst = strconv.AppendInt(append(dst, `,"previous_lsn":`...), c.PreviousLSN, 10)
	}
	if next != "" {
		dst = appendText(append(dst, `,"next":`...), next)
	}
	return append(dst, '}'), nil
}

// appendText appends a JSON string.
func appendText(dst []byte, s string) []byte {
	isSimple := !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })
	if isSimple {
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"')
	}
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted)
	// Documents would else come out with \u003c in place of <, which is the same JSON
	// and another text.
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string is always JSON
	return append(dst, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

// appendDocument is appendCompact for a text that is usually compact already.
func appendDocument(dst, text []byte) ([]byte, error) {
	if len(text) > 0 && isPlain(text) {
		return append(dst, text...), nil
	}
	return appendCompact(dst, text)
}

// appendCompact appends JSON without space between its parts. It trusts that the text is JSON, because the text comes
// from a store; but whatever the text is, no line end is appended.
func appendCompact[T string | []byte | json.RawMessage](dst []byte, text T) ([]byte, error) {
	if len(text) == 0 {
		return dst, errors.New("a value is empty: want JSON")
	}
	before, begin, isString := len(dst), 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			isString = !isString
		case c == '\\' && isString && i+1 < len(text) && text[i+1] >= ' ':
			i++
		case c > ' ' && c != '\\' || c == ' ' && isString:
		case !isString && (c == ' ' || c == '\n' || c == '\r' || c == '\t'):
			dst = append(dst, text[begin:i]...)
			begin = i + 1
		default: // not JSON: say why
			return appendChecked(dst[:before], []byte(text))
		}
	}
	return append(dst, text[begin:]...), nil
}

// isPlain reports whether a text has neither space nor control characters, as a document that a program has written and
// that has no prose. If so, the text is compact, provided that it is JSON. isPlain looks at eight bytes at a time.
func isPlain(text []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(text) >= 8 {
		word := binary.LittleEndian.Uint64(text)
		below := (word - (' '+1)*ones) &^ word & highs // has a bit for the first byte up to a space
		escape := word ^ '\\'*ones
		if (below | (escape-ones)&^escape&highs) == 0 {
			text = text[8:]
			continue
		}
		if below != 0 {
			return false
		}
		i := bytes.IndexByte(text, '\\')
		if i+1 >= len(text) || text[i+1] <= ' ' {
			return false
		}
		text = text[i+2:]
	}
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
		}
		if i == len(text) || text[i] <= ' ' {
			return false
		}
	}
	return true
}

// appendChecked is appendCompact with a check of the whole text.
func appendChecked(dst, text []byte) ([]byte, error) {
	var flat bytes.Buffer
	err := json.Compact(&flat, text)
	return append(dst, flat.Bytes()...), err
}
