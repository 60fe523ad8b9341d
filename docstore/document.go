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

// The limits of one document; each is the service's.
const (
	maxDocument = service.MaxItem // bytes of the body
	maxNesting  = 128             // objects and arrays in each other
	maxID       = 1023            // bytes of the id
	maxTTL      = math.MaxInt32   // seconds
)

// ErrTooLarge is the [feed.ErrBadRequest] of a document above 2 MB.
var ErrTooLarge = fmt.Errorf("%w: document is too large", feed.ErrBadRequest)

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
	key  feed.PartitionKey
	ttl  int // seconds; 0 is the container's default, -1 is for ever
	body []byte
	user rawjson.Runs // its members, without system properties
}

// parseDocument reads a body in one pass, for a container with these partition key
// paths. The document refers to body, which must not change afterwards.
func parseDocument(body []byte, paths []pkey.Path) (document, error) {
	return readDocument(body, rawjson.Strict(body), paths)
}

// readDocument is parseDocument by a scanner at the beginning of the body, which need not
// be strict when the body is known to be JSON.
func readDocument(body []byte, scanner rawjson.Scanner, paths []pkey.Path) (document, error) {
	if len(body) > maxDocument+maxSystem { // or it would have to be read to know its size
		return document{}, checkSize("body", len(body))
	}
	if c := scanner.Peek(); c != '{' {
		begin := scanner.Pos()
		if scanner.Value(); !scanner.End() {
			return document{}, notJSON("body", body)
		}
		return document{}, refuse("body is %s: want an object", pkey.Show(body[begin:]))
	}
	doc := document{body: body}
	var id, ttl rawjson.Span
	// Only the first name of each path is looked for in the pass over the document;
	// others are looked up in that value alone.
	var values [epk.MaxLevels]rawjson.Span
	for from, key := range scanner.Object() {
		name, value := key.Name(), scanner.Value()
		doc.user.Add(rawjson.Span{From: from, To: scanner.Pos()}, !service.IsSystem(name))
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
	// The syntax is judged first, because the spans of members mean nothing in a text
	// that is not JSON.
	switch {
	case !scanner.End():
		return document{}, notJSON("body", body)
	case len("{}")+doc.user.Size() > maxDocument: // the store adds the system properties, also to what it has accepted
		return document{}, checkSize("body", len("{}")+doc.user.Size())
	case scanner.Levels() > maxNesting:
		return document{}, refuse("document has %d levels of objects and arrays: want at most %d", scanner.Levels(), maxNesting)
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

// parseID reads the value of the member id; nil is an absent member.
func parseID(raw []byte) (string, error) {
	if raw == nil {
		return "", fmt.Errorf("%w: want a string of 1 to %d bytes", ErrNoID, maxID)
	}
	if raw[0] != '"' {
		return "", refuse("id is %s: want a string of 1 to %d bytes", pkey.Show(raw), maxID)
	}
	id := rawjson.Text(raw)
	if id == "" || len(id) > maxID {
		return "", refuse("id is %s, of %d bytes: want 1 to %d bytes", pkey.Show(raw), len(id), maxID)
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
		return 0, refuse("ttl is %s: want whole seconds from 1 to %d, or -1 for ever", pkey.Show(raw), maxTTL)
	}
	return int(ttl), nil
}

// render returns the document as it is stored up to its system properties, with room for
// those: some are known only in the committer. In place, it overwrites the body where that
// has the room: what stays of a body only ever moves towards its beginning.
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

// checkSize refuses a text that is larger than a document can be.
func checkSize(name string, bytes int) error {
	if bytes > maxDocument {
		return fmt.Errorf("%w: %s has %d bytes: want at most %d", ErrTooLarge, name, bytes, maxDocument)
	}
	return nil
}

// checkJSON refuses a text that is too large, not UTF-8 or not JSON. The store keeps
// the text as it is, so an error admitted here would come back from every read, for
// ever.
func checkJSON(name string, text []byte) error {
	if err := checkSize(name, len(text)); err != nil {
		return err
	}
	if _, ok := rawjson.Check(text); !ok {
		return notJSON(name, text)
	}
	return nil
}

// notJSON says what is wrong with a text. Only a refused text pays for the decoder, which
// knows the offset of the error.
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
