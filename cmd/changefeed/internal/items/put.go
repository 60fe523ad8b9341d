package items

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The limits of an input. For more there is changefeed import, which writes many documents at the same time, and goes
// on after an interruption.
const (
	maxDocuments = 100
	maxInput     = 16 << 20 // bytes
)

// Read reads JSON documents: objects in a sequence, or an array of objects. The error says where the text is wrong.
func Read(r io.Reader) ([]json.RawMessage, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read input: %w", err)
	case len(text) > maxInput:
		return nil, fmt.Errorf("the input has more than %d MB: want changefeed import", maxInput>>20)
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var all []json.RawMessage
	rest := bytes.TrimLeft(text, blanks)
	inArray := bytes.HasPrefix(rest, []byte("["))
	if inArray {
		rest = rest[1:]
	}
	for first := true; ; first = false {
		var end bool
		if rest, end, err = toNext(rest, inArray, first); end || err != nil {
			break
		}
		d := json.NewDecoder(bytes.NewReader(rest))
		var document json.RawMessage
		if err = d.Decode(&document); err != nil {
			break
		}
		if document[0] != '{' {
			err = errors.New("the document is no object: want one such as {\"id\":\"1\"}")
			break
		}
		all = append(all, document)
		rest = rest[d.InputOffset():]
	}
	switch {
	case err != nil:
		return nil, locate(text, len(text)-len(rest), err)
	case len(all) == 0:
		return nil, errors.New("the input is empty: want a JSON document")
	case len(all) > maxDocuments:
		return nil, fmt.Errorf("the input has %d documents: want at most %d, or changefeed import", len(all), maxDocuments)
	}
	return all, nil
}

// blanks are the white space of JSON.
const blanks = " \t\r\n"

// toNext returns the text from the next document, or whether the input ends before.
func toNext(text []byte, inArray, first bool) (rest []byte, end bool, err error) {
	rest = bytes.TrimLeft(text, blanks)
	switch {
	case !inArray:
		return rest, len(rest) == 0, nil
	case len(rest) == 0:
		return rest, false, errors.New("the array does not end: want ]")
	case rest[0] == ']':
		if after := bytes.TrimLeft(rest[1:], blanks); len(after) > 0 {
			return after, false, errors.New("there is more after the end of the array: want one array, or documents " +
				"without an array")
		}
		return nil, true, nil
	case first:
		return rest, false, nil
	case rest[0] != ',':
		return rest, false, fmt.Errorf("invalid character %q after a document: want , or ]", rest[0])
	}
	return bytes.TrimLeft(rest[1:], blanks), false, nil
}

// locate adds the place in the input to an error at, or after, an offset.
func locate(text []byte, offset int, err error) error {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	switch {
	case ok:
		offset += int(max(syntax.Offset-1, 0)) // Offset counts the wrong character too
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		offset, err = len(text), errors.New("the document does not end: is the input cut short?")
	}
	before := text[:min(offset, len(text))]
	line := bytes.Count(before, []byte("\n")) + 1
	return fmt.Errorf("line %d, byte %d: %w", line, len(before)-bytes.LastIndexByte(before, '\n'), err)
}

// An Item is a document that was written.
type Item struct {
	ID     string          `json:"id" about:"id of the document"`
	Key    json.RawMessage `json:"key" about:"partition key of the document"`
	ETag   string          `json:"etag" about:"version of the document, for --if-match"`
	Charge *float64        `json:"charge" about:"request units of the write; null if unknown"`
}

// ReportedAs implements [report.Value].
func (Item) ReportedAs() string { return "item" }

// ItemHeading is the heading of a table of items. The last cell of each row is for notes.
var ItemHeading = []string{"ID", "KEY", "ETAG", "CHARGE"}

// Row returns the item as cells of a table with the heading [ItemHeading].
func (i Item) Row() []string {
	charge := "unknown"
	if i.Charge != nil {
		charge = strconv.FormatFloat(*i.Charge, 'f', -1, 64) + " RU"
	}
	return []string{terminal.OneLine(i.ID), terminal.OneLine(string(i.Key)), i.ETag, charge}
}

// A Write says how a document is written.
type Write struct {
	Create  bool   // fail if the document exists
	IfMatch string // fail unless the document exists, with this etag
}

// Place returns the place of a document in the container.
func (t *Target) Place(body []byte) (d Document, err error) {
	if d.ID = rawjson.Text(rawjson.Lookup(body, "id")); d.ID == "" {
		got := rawjson.Lookup(body, "id")
		if got == nil {
			return d, errors.New(`the document has no id: want a text, such as {"id":"1"}`)
		}
		return d, fmt.Errorf("id is %s: want a text that is not empty", pkey.Show(got))
	}
	values := make([][]byte, len(t.paths))
	for i, path := range t.paths {
		values[i] = rawjson.Lookup(body, path...)
	}
	if d.Key, err = pkey.Of(t.paths, values); err != nil {
		return d, fmt.Errorf("document %q: %w", d.ID, err)
	}
	return d, nil
}

// Put writes a document: Put creates or replaces it.
func (t *Target) Put(ctx context.Context, body []byte, w Write) (Item, error) {
	d, err := t.Place(body)
	if err != nil {
		return Item{}, err
	}
	name, value := place.KeyHeader(d.Key)
	q := place.Request{
		Method: http.MethodPost, Resource: t.resource("docs"), Header: map[string]string{name: value}, Body: body,
		Want: documentMembers,
	}
	switch {
	case w.IfMatch != "":
		q.Method, q.Resource, q.Header["If-Match"] = http.MethodPut, t.resource("docs", d.ID), w.IfMatch
	case !w.Create:
		q.Header["X-Ms-Documentdb-Is-Upsert"] = "true"
	}
	reply, err := t.account.Send(ctx, q)
	if err != nil {
		return Item{}, t.explain(d, w.IfMatch, err)
	}
	return Item{ID: d.ID, Key: json.RawMessage(d.Key), ETag: reply.Header.Get("Etag"), Charge: reply.Charge()}, nil
}
