package docstore

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The limits of a document. Each is the service's limit.
const (
	maxDocument = service.MaxItem // bytes of the body
	maxNesting  = 128             // levels of objects and arrays in each other
	maxID       = 1023            // bytes of the id
	maxTTL      = math.MaxInt32   // seconds
)

// ErrTooLarge is the [feed.ErrBadRequest] of a document larger than 2 MB.
var ErrTooLarge = fmt.Errorf("%w: document is too large", feed.ErrBadRequest)

// ErrIDLength is the [feed.ErrBadRequest] of a document whose id is empty or too long.
var ErrIDLength = fmt.Errorf("%w: id has a wrong length", feed.ErrBadRequest)

// document is a body after one pass over its text. A document contains the members that the store needs, and the runs
// of text that belong to the user. The text is never decoded and encoded again, because a document must come back as
// written: numbers with their digits, strings with their escapes, members in order.
//
// If an object repeats a member, the last counts, as for [encoding/json] and for JavaScript; all stay in the text.
// Queries, patches, leases and the client follow the same rule. If the store and a query read a key differently, the
// document would be unreachable. docs/server.md gives the reasons for this rule.
type document struct {
	id   string
	key  feed.PartitionKey
	ttl  int // seconds; 0 is the container's default, -1 is never
	body []byte
	user rawjson.Runs // the user's members, without system properties

	// Of a document that was patched.
	added  rawjson.Runs // the user's members behind the system properties
	bare   bool         // it lacks _self and _attachments
	behind bool         // the pass over the document is behind the system properties
}

// parseDocument reads a body in a single pass, for a container with these partition key paths. The document shares
// the bytes of body, which must not change afterwards.
func parseDocument(body []byte, paths []pkey.Path) (document, error) {
	return readDocument(body, rawjson.Strict(body), paths, false)
}

// readDocument is parseDocument with a scanner that stands at the beginning of the body. The scanner need not be
// strict if the body is known to be JSON. patched means that the body is a stored document to which a patch has been
// applied. The members that patches have added stay behind the system properties of such a document.
func readDocument(body []byte, scanner rawjson.Scanner, paths []pkey.Path, patched bool) (document, error) {
	if len(body) > maxDocument+maxSystem { // otherwise the body would be read only to learn its size
		return document{}, checkSize("body", len(body))
	}
	if c := scanner.Peek(); c != '{' {
		begin := scanner.Pos()
		if scanner.Value(); !scanner.End() {
			return document{}, notJSON("body", body)
		}
		return document{}, refuse("body is %s: want an object", pkey.Show(body[begin:]))
	}
	doc := document{body: body, bare: patched}
	var id, ttl rawjson.Span
	// The pass over the document looks only for the first name of each path. The rest of a path is looked up in that
	// value alone.
	var values [epk.MaxLevels]rawjson.Span
	for from, key := range scanner.Object() {
		name, value := key.Name(), scanner.Value()
		member := rawjson.Span{From: from, To: scanner.Pos()}
		if isUser := !service.IsSystem(name); patched {
			doc.placeMember(name, member, isUser)
		} else {
			doc.user.Add(member, isUser)
		}
		switch string(name) {
		case "id":
			id = value
		case "ttl":
			ttl = value
		}
		for i, path := range paths {
			if string(name) == path[0] {
				values[i] = value
			}
		}
	}
	// The syntax is checked first, because the spans of members mean nothing if the text is not JSON.
	switch {
	case !scanner.End():
		return document{}, notJSON("body", body)
	case doc.size() > maxDocument:
		return document{}, checkSize("body", doc.size())
	case scanner.Levels() > maxNesting:
		return document{}, refuse("document has %d levels of objects and arrays: want at most %d", scanner.Levels(),
			maxNesting)
	}
	var err error
	if doc.id, err = parseID(id.Of(body)); err != nil {
		return document{}, err
	}
	if doc.ttl, err = parseTTL(ttl.Of(body)); err != nil {
		return document{}, err
	}
	var parts [epk.MaxLevels][]byte
	for i, path := range paths {
		parts[i] = rawjson.LookupAt(body, values[i], path[1:]...).Of(body)
	}
	doc.key, err = pkey.Of(paths, parts[:])
	return doc, err
}

// placeMember adds the next member of a document that was patched.
func (d *document) placeMember(name []byte, member rawjson.Span, isUser bool) {
	d.user.Add(member, isUser && !d.behind)
	d.added.Add(member, isUser && d.behind)
	switch string(name) {
	case "_self":
		d.bare = false
	case "_etag": // the last one that every stored document has before the place of the added members
		d.behind = true
	}
}

// size returns the bytes of the document without system properties, which the store may have added itself.
func (d *document) size() int { return len("{}") + d.user.Size() + d.added.Size() }

// parseID reads the value of the member id; nil means absent.
func parseID(raw []byte) (string, error) {
	if raw == nil {
		return "", fmt.Errorf("%w: want a string of 1 to %d bytes", ErrNoID, maxID)
	}
	if raw[0] != '"' {
		return "", refuse("id is %s: want a string of 1 to %d bytes", pkey.Show(raw), maxID)
	}
	id := rawjson.Text(raw)
	if id == "" || len(id) > maxID {
		return "", fmt.Errorf("%w: id is %s, of %d bytes: want 1 to %d bytes", ErrIDLength, pkey.Show(raw), len(id),
			maxID)
	}
	return id, nil
}

// parseTTL reads the value of the member ttl; nil means absent. 1e1 is accepted, because in JSON this is the same
// number as 10.
func parseTTL(raw []byte) (int, error) {
	if raw == nil {
		return 0, nil
	}
	ttl, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || ttl != math.Trunc(ttl) || ttl < -1 || ttl == 0 || ttl > maxTTL {
		return 0, refuse("ttl is %s: want whole seconds from 1 to %d, or -1 for ever", pkey.Show(raw), maxTTL)
	}
	return int(ttl), nil
}

// render returns the stored form of the document up to its system properties, with room for these, because only the
// committer knows all of them. If inPlace is set, render overwrites the body if the body's buffer is large enough;
// this is safe because the kept text only moves towards the beginning of the buffer.
func (d *document) render(room int, inPlace bool) []byte {
	size := len("{,}") + d.user.Size() + room
	b := d.body[:0]
	if !inPlace || cap(b) < size {
		b = make([]byte, 0, size)
	}
	return append(d.user.Append(append(b, '{'), d.body), ',')
}

// refuse returns a [feed.ErrBadRequest] with a reason.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", feed.ErrBadRequest, fmt.Sprintf(format, args...))
}

// checkSize refuses a text larger than the largest document.
func checkSize(name string, bytes int) error {
	if bytes > maxDocument {
		return fmt.Errorf("%w: %s has %d bytes: want at most %d", ErrTooLarge, name, bytes, maxDocument)
	}
	return nil
}

// checkJSON refuses a text too large, not UTF-8 or not JSON. The store keeps the text unchanged, so a fault that is
// accepted here would come back from every read, for ever.
func checkJSON(name string, text []byte) error {
	if err := checkSize(name, len(text)); err != nil {
		return err
	}
	if _, ok := rawjson.Check(text); !ok {
		return notJSON(name, text)
	}
	return nil
}

// notJSON returns an error that describes the fault in a text. Only a refused text pays for the decoder, which knows
// the offset of the fault.
func notJSON(name string, text []byte) error {
	if !utf8.Valid(text) {
		return notJSONError{refuse("%s is not UTF-8: want JSON", name)}
	}
	at := int64(0)
	err := json.Unmarshal(text, new(json.RawMessage))
	if syntax, ok := err.(*json.SyntaxError); ok {
		at = syntax.Offset
	}
	return notJSONError{refuse("%s is not JSON, at byte %d: %v", name, at, err)}
}

// notJSONError is [ErrNotJSON] with a message that names the text.
type notJSONError struct{ error }

func (e notJSONError) Is(target error) bool { return target == ErrNotJSON }

func (e notJSONError) Unwrap() error { return e.error }
