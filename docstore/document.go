package docstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/rawjson"
	"github.com/millrace/changefeed/internal/service"
)

// The limits of one document; each is the service's.
const (
	maxDocument = service.MaxItem // bytes of the body
	maxNesting  = 128             // objects and arrays in each other
	maxID       = 1023            // bytes of the id
	maxTTL      = math.MaxInt32   // seconds
)

// ErrTooLarge is the [changefeed.ErrBadRequest] of a document above 2 MB.
var ErrTooLarge = fmt.Errorf("%w: document is too large", changefeed.ErrBadRequest)

// document is a body that was read once: what the store needs to know of it, and which
// of its text is the user's.
//
// Where an object has several members of one name, the last one counts, as it does for
// [encoding/json] and for JavaScript. All stay in the text. Queries, patches, leases and
// the client have the same rule; docs/server.md says why.
type document struct {
	id   string
	key  changefeed.PartitionKey
	ttl  int // seconds; 0 is none of its own, -1 is for ever
	body []byte
	user []span // runs of members that are no system properties
}

// systemProps are the members that the store adds to each document.
type systemProps struct {
	rid  string
	self string
	etag string // with its quotes, as a header carries it
	ts   int64  // Unix seconds
}

// isSystem tells the members that the store owns: what a user gives for them is dropped.
func isSystem[T string | []byte](name T) bool {
	switch string(name) {
	case "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn":
		return true
	}
	return false
}

// parseDocument reads a body for a container with these partition key paths. The
// document keeps the body, which must not change afterwards.
func parseDocument(body []byte, paths []keyPath) (document, error) {
	w, err := walkObject(body)
	if err != nil {
		return document{}, err
	}
	d := document{body: body}
	var id, ttl span
	var user runs
	values := make([]span, len(paths)) // of the first segment of each path
	for m := range w.members() {
		user.add(m.span, !isSystem(m.name))
		switch string(m.name) {
		case "id":
			id = m.value
		case "ttl":
			ttl = m.value
		}
		for i, p := range paths {
			if string(m.name) == p[0] {
				values[i] = m.value
			}
		}
	}
	d.user = user.spans
	if w.deepest > maxNesting {
		return document{}, refuse("document has %d levels of objects and arrays: want at most %d", w.deepest, maxNesting)
	}
	if d.id, err = parseID(id.of(body)); err != nil {
		return document{}, err
	}
	if d.ttl, err = parseTTL(ttl.of(body)); err != nil {
		return document{}, err
	}
	d.key, err = partitionKey(body, paths, values)
	return d, err
}

// partitionKey is the key in the text that [changefeed.Key] gives, from the values of
// the first segments of the paths.
func partitionKey(body []byte, paths []keyPath, values []span) (changefeed.PartitionKey, error) {
	var short [128]byte
	key := append(short[:0], '[')
	for i, p := range paths {
		if i > 0 {
			key = append(key, ',')
		}
		value := lookup(body, values[i], p[1:]).of(body)
		var err error
		switch {
		case value == nil:
			key = append(key, "{}"...) // changefeed.Undefined
		case value[0] == '{' || value[0] == '[':
			return "", refuse("partition key %s is %s: want a string, number, boolean or null", p, show(value))
		default:
			key, err = appendScalar(key, value)
		}
		if err != nil {
			return "", fmt.Errorf("read partition key %s: %w", p, err)
		}
	}
	return changefeed.PartitionKey(append(key, ']')), nil
}

// parseID reads the value of the member id; nil is none.
func parseID(raw []byte) (string, error) {
	if raw == nil {
		return "", refuse("document has no id: want a string of 1 to %d bytes", maxID)
	}
	if raw[0] != '"' {
		return "", refuse("id is %s: want a string of 1 to %d bytes", show(raw), maxID)
	}
	id := unquote(raw)
	if id == "" || len(id) > maxID {
		return "", refuse("id is %s, of %d bytes: want 1 to %d bytes", show(raw), len(id), maxID)
	}
	return id, nil
}

// parseTTL reads the value of the member ttl; nil is none.
func parseTTL(raw []byte) (int, error) {
	if raw == nil {
		return 0, nil
	}
	ttl, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || ttl != math.Trunc(ttl) || ttl < -1 || ttl == 0 || ttl > maxTTL {
		return 0, refuse("ttl is %s: want whole seconds from 1 to %d, or -1 for ever", show(raw), maxTTL)
	}
	return int(ttl), nil
}

// render is the document as it is stored and read: the user's members as they came,
// then the system properties.
func (d *document) render(sys systemProps) []byte {
	const frame = `{,"_rid":"","_self":"","_etag":"","_attachments":"attachments/","_ts":-9223372036854775808}`
	size := len(frame) + len(sys.rid) + len(sys.self) + 2*len(sys.etag)
	for _, run := range d.user {
		size += run.to - run.from + len(",")
	}
	return d.appendTo(make([]byte, 0, size), sys)
}

// appendTo appends what render gives.
func (d *document) appendTo(dst []byte, sys systemProps) []byte {
	dst = append(dst, '{')
	for _, run := range d.user {
		dst = append(dst, run.of(d.body)...)
		dst = append(dst, ',')
	}
	dst = append(dst, `"_rid":`...)
	dst = appendString(dst, sys.rid)
	dst = append(dst, `,"_self":`...)
	dst = appendString(dst, sys.self)
	dst = append(dst, `,"_etag":`...)
	dst = appendString(dst, sys.etag)
	dst = append(dst, `,"_attachments":"attachments/","_ts":`...)
	dst = strconv.AppendInt(dst, sys.ts, 10)
	return append(dst, '}')
}

// refuse is a [changefeed.ErrBadRequest] with its reason.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", changefeed.ErrBadRequest, fmt.Sprintf(format, args...))
}

// span is a place in a body.
type span struct{ from, to int }

// of is the text of the place; nil where there is none.
func (s span) of(body []byte) []byte {
	if s.to == 0 {
		return nil
	}
	return body[s.from:s.to]
}

// runs are the members of an object that stay, as few places in its text.
type runs struct {
	spans []span
	open  bool
}

// add takes the next member.
func (r *runs) add(member span, stays bool) {
	switch {
	case stays && r.open:
		r.spans[len(r.spans)-1].to = member.to
	case stays:
		r.spans = append(r.spans, member)
	}
	r.open = stays
}

// member is one member of an object.
type member struct {
	span         // the whole of it
	name  []byte // without quotes and escapes
	value span
}

// walker tells where things are in a text that is known to be JSON.
type walker struct {
	text    []byte
	pos     int
	deepest int // most levels of objects and arrays that it has seen
}

// walkObject begins at a body that must be one JSON object within the limits.
func walkObject(body []byte) (walker, error) {
	if err := checkJSON("body", body); err != nil {
		return walker{}, err
	}
	w := walker{text: body}
	if w.space(); body[w.pos] != '{' {
		return walker{}, refuse("body is %s: want an object", show(body[w.pos:]))
	}
	return w, nil
}

// checkJSON refuses what is too large or no JSON.
func checkJSON(what string, text []byte) error {
	if len(text) > maxDocument {
		return fmt.Errorf("%w: %s has %d bytes: want at most %d", ErrTooLarge, what, len(text), maxDocument)
	}
	if !utf8.Valid(text) {
		return refuse("%s is not UTF-8: want JSON", what)
	}
	if rawjson.Valid(text) {
		return nil
	}
	at := int64(0)
	err := json.Unmarshal(text, new(json.RawMessage))
	if syntax, ok := err.(*json.SyntaxError); ok {
		at = syntax.Offset
	}
	return refuse("%s is not JSON, at byte %d: %v", what, at, err)
}

// members are those of the object at the position.
func (w *walker) members() iter.Seq[member] {
	return func(yield func(member) bool) {
		for w.next('}') {
			m := member{span: span{from: w.pos}}
			name := w.value().of(w.text)
			m.name = name[1 : len(name)-1]
			if bytes.IndexByte(name, '\\') >= 0 {
				m.name = []byte(unquote(name))
			}
			w.space()
			w.pos++ // the colon
			w.space()
			m.value = w.value()
			m.to = w.pos
			if !yield(m) {
				return
			}
		}
	}
}

// elements are those of the array at the position.
func (w *walker) elements() iter.Seq[span] {
	return func(yield func(span) bool) {
		for w.next(']') && yield(w.value()) {
		}
	}
}

// next steps over the bracket or comma before an item; with none left, over the last bracket.
func (w *walker) next(last byte) bool {
	w.space()
	if w.text[w.pos] != last {
		w.pos++
		w.space()
	}
	if w.text[w.pos] == last {
		w.pos++
		return false
	}
	return true
}

// space steps over white space.
func (w *walker) space() {
	for w.pos < len(w.text) && isSpace(w.text[w.pos]) {
		w.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// value steps over a value.
func (w *walker) value() span {
	from := w.pos
	switch w.text[from] {
	case '"':
		w.pos = stringEnd(w.text, from)
	case '{', '[':
		w.nested()
	default:
		for w.pos < len(w.text) && !isSpace(w.text[w.pos]) && strings.IndexByte(",]}", w.text[w.pos]) < 0 {
			w.pos++
		}
	}
	return span{from, w.pos}
}

// nested steps over an object or array.
func (w *walker) nested() {
	for depth := 0; ; w.pos++ {
		switch w.text[w.pos] {
		case '"':
			w.pos = stringEnd(w.text, w.pos) - 1
		case '{', '[':
			depth++
			w.deepest = max(w.deepest, depth+1) // one for the object around it
		case '}', ']':
			if depth--; depth == 0 {
				w.pos++
				return
			}
		}
	}
}

// stringEnd is the position behind the string that begins at from.
func stringEnd(text []byte, from int) int {
	for end := from + 1; ; {
		end += bytes.IndexByte(text[end:], '"') + 1
		escapes := 0
		for text[end-2-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end
		}
	}
}

// lookup follows the segments through objects, from a value in a body known to be JSON.
func lookup(body []byte, value span, segments []string) span {
	for _, name := range segments {
		if value.to == 0 || body[value.from] != '{' {
			return span{}
		}
		w := walker{text: body, pos: value.from}
		value = span{}
		for m := range w.members() {
			if string(m.name) == name {
				value = m.value
			}
		}
	}
	return value
}
