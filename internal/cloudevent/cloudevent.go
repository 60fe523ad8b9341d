// Package cloudevent has what the bindings of CloudEvents to HTTP and NATS share: attributes as
// values of headers, and the way back to a message.
package cloudevent

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/outbox"
)

// Prefix is that of the headers that have attributes.
const Prefix = "ce-"

// Plain are the bytes that stand for themselves.
type Plain [256]bool

// PlainBytes are those that is says so of.
func PlainBytes(is func(c byte) bool) (p Plain) {
	for c := range p {
		p[c] = is(byte(c))
	}
	return p
}

// Escape makes each byte that is not plain %XX.
func (p *Plain) Escape(text string) string {
	i := 0
	for i < len(text) && p[text[i]] {
		i++
	}
	if i == len(text) { // as most are
		return text
	}
	escaped := append(make([]byte, 0, 2*len(text)), text[:i]...)
	for ; i < len(text); i++ {
		if c := text[i]; p[c] {
			escaped = append(escaped, c)
		} else {
			escaped = fmt.Appendf(escaped, "%%%02X", c)
		}
	}
	return string(escaped)
}

var backslashed = regexp.MustCompile(`\\(.)`)

var plain = PlainBytes(func(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' })

// Escape makes a header value of an attribute as the HTTP binding has it: what is not printable
// ASCII, spaces, double quotes and percent signs become %XX, byte by byte.
func Escape(value string) string { return plain.Escape(value) }

// Unescape makes the attribute of a header value, which has no more escapes than it needs or any number of them. Older
// senders put it into double quotes.
func Unescape(value string) (string, error) {
	if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
		value = backslashed.ReplaceAllString(value[1:len(value)-1], "$1")
	}
	var text strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '%' {
			text.WriteByte(value[i])
			continue
		}
		if i+2 >= len(value) {
			return "", fmt.Errorf("%w: header value %.100q ends in the middle of an escape", ErrMalformed, value)
		}
		c, err := strconv.ParseUint(value[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%w: header value %.100q: %.3q is no escape", ErrMalformed, value, value[i:])
		}
		text.WriteByte(byte(c))
		i += 2
	}
	if !utf8.ValidString(text.String()) {
		return "", fmt.Errorf("%w: header value %.100q is not UTF-8", ErrMalformed, value)
	}
	return text.String(), nil
}

// ErrMalformed: it is no CloudEvent of an outbox.
var ErrMalformed = errors.New("malformed CloudEvent")

// Attributes reads the headers that have attributes.
func Attributes(headers map[string][]string) (map[string]string, error) {
	all := map[string]string{}
	for name, values := range headers {
		name, ok := strings.CutPrefix(strings.ToLower(name), Prefix)
		if !ok {
			continue
		}
		// Which of two would count is for each reader to decide, so neither does.
		if len(values) != 1 {
			return nil, fmt.Errorf("%w: %d headers %s%s", ErrMalformed, len(values), Prefix, name)
		}
		value, err := Unescape(values[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name] = value
	}
	return all, nil
}

// Message is the message with these attributes and data: what [outbox.Message.CloudEvent] was given.
func Message(attributes map[string]string, data []byte) (m outbox.Message, err error) {
	m = outbox.Message{
		ID: attributes["id"], Key: attributes["partitionkey"], Action: attributes["type"], Source: attributes["source"],
		ObjectType: attributes["objecttype"], TraceParent: attributes["traceparent"],
		TraceState: attributes["tracestate"], Data: data,
	}
	// otherwise it stands in for an object without a name
	if subject := attributes["subject"]; m.ObjectType != "" || subject != m.Key {
		m.Object = subject
	}
	// The version first of all: in another one, the other attributes may mean something
	// else.
	if v := attributes["specversion"]; v != "1.0" || m.ID == "" {
		return m, fmt.Errorf("%w: specversion %q and id %q: want 1.0 and an id", ErrMalformed, v, m.ID)
	}
	if text := attributes["time"]; text != "" {
		if m.Time, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return m, fmt.Errorf("%w: time: %w", ErrMalformed, err)
		}
	}
	if text := attributes["sequence"]; text != "" {
		if m.Seq, err = strconv.ParseUint(text, 10, 64); err != nil {
			return m, fmt.Errorf("%w: sequence: %w", ErrMalformed, err)
		}
	}
	return m, nil
}
