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

// document is a body that has been read once: the members that the store needs, and the
// runs of text that belong to the user. The text is never decoded and encoded again,
// because a document must come back as written: numbers with their digits,
// strings with their escapes, members in order.
//
// Where an object repeats a member, the last counts, as for [encoding/json] and for
// JavaScript; all stay in the text. Queries, patches, leases and the client keep the
// same rule, because a key that the store reads in one way and a query in another would
// make the document unreachable. docs/server.md says why this rule and no other.
type document struct {
	id   string
	key  changefeed.PartitionKey
	ttl  int // seconds; 0 is the container's default, -1 is for ever
	body []byte
	user []span // runs of members, without system properties
}

// systemProps are the members that the store adds to each document.
type systemProps struct {
	rid  string
	self string
	etag string // with its quotes, as a header carries it
	ts   int64  // Unix seconds
}

// isSystem reports whether the store owns a member. A user's value for such a member is
// dropped and not refused, as in the service, because clients send back documents as
// read.
func isSystem[T string | []byte](name T) bool {
	switch string(name) {
	case "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn":
		return true
	}
	return false
}

// parseDocument reads a body in one pass, for a container with these partition key
// paths. The document refers to body, which must not change afterwards.
func parseDocument(body []byte, paths []keyPath) (document, error) {
	w, err := walkObject(body)
	if err != nil {
		return document{}, err
	}
	d := document{body: body}
	var id, ttl span
	var user runs
	// Only the first segment of each path is looked for in the pass over the document;
	// deeper segments are looked up in that value alone.
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

// partitionKey writes the key as [changefeed.Key] does, from the values of the first
// segments of the paths. A missing value is the component {}, which is not null: the
// service places both in logical partitions of their own.
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

// parseID reads the value of the member id; nil is an absent member.
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

// parseTTL reads the value of the member ttl; nil is an absent member. 1e1 is accepted,
// because to JSON that is the same number as 10.
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

// render returns the document as stored: the user's members as written, then the system
// properties. _ts comes last, so that the commit time can be written over in the
// document's turn without moving anything.
func (d *document) render(sys systemProps) []byte {
	const frame = `{,"_rid":"","_self":"","_etag":"","_attachments":"attachments/","_ts":-9223372036854775808}`
	size := len(frame) + len(sys.rid) + len(sys.self) + 2*len(sys.etag)
	for _, run := range d.user {
		size += run.to - run.from + len(",")
	}
	return d.appendTo(make([]byte, 0, size), sys)
}

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

// refuse returns a [changefeed.ErrBadRequest] with a reason.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", changefeed.ErrBadRequest, fmt.Sprintf(format, args...))
}

// span is a place in a body; the zero span is an absent value, since no value begins a
// body and ends at 0.
type span struct{ from, to int }

// of returns the text of the place, nil for the zero span.
func (s span) of(body []byte) []byte {
	if s.to == 0 {
		return nil
	}
	return body[s.from:s.to]
}

// runs gathers the members of an object that stay. Neighbours are joined, so a document
// with its system properties at the end, as the store wrote them, is copied in one
// piece.
type runs struct {
	spans []span
	open  bool
}

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

// walker steps through a text that checkJSON has accepted, without checks of bounds: an
// unchecked text may cause a panic.
type walker struct {
	text    []byte
	pos     int
	deepest int // levels of objects and arrays seen so far, at most
}

// walkObject checks a body and begins at its object.
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

// checkJSON refuses a text that is too large, not UTF-8 or not JSON. The store keeps
// the text as it is, so an error admitted here would come back from every read, for
// ever.
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
	// Only a refused text pays for the decoder, which knows the offset of the error.
	at := int64(0)
	err := json.Unmarshal(text, new(json.RawMessage))
	if syntax, ok := err.(*json.SyntaxError); ok {
		at = syntax.Offset
	}
	return refuse("%s is not JSON, at byte %d: %v", what, at, err)
}

// members yields the members of the object at the position.
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

// elements yields the elements of the array at the position.
func (w *walker) elements() iter.Seq[span] {
	return func(yield func(span) bool) {
		for w.next(']') && yield(w.value()) {
		}
	}
}

// next steps over the bracket or comma before an item; without another item, over the
// last bracket.
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

func (w *walker) space() {
	for w.pos < len(w.text) && isSpace(w.text[w.pos]) {
		w.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// value steps over a value and returns its place.
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

// nested steps over an object or array, without recursion: depth costs no stack.
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

// stringEnd returns the position after the string that begins at from. A quote ends the
// string unless an odd number of backslashes precedes it.
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

// lookup follows segments through objects, from a value in a checked body. An array on
// the way makes the value absent, as in the service: paths lead through objects only.
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
