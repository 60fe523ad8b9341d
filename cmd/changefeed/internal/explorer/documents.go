package explorer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The limits of a page of rows.
const (
	defaultRows = 100
	maxRows     = 500
	maxCut      = 20_000 // bytes of a row
)

// A row is a row of a query. A whole document has ID, Key and ETag.
type row struct {
	Text  string `json:"text"` // JSON, or the beginning of JSON
	Cut   bool   `json:"cut"`
	Bytes int    `json:"bytes"`
	ID    string `json:"id,omitempty"`
	Key   string `json:"key,omitempty"` // JSON
	ETag  string `json:"etag,omitempty"`
	At    string `json:"at,omitempty"` // seconds since 1970 of the last write
}

// A page is a page of rows.
type page struct {
	Rows    []row    `json:"rows"`
	Next    string   `json:"next"` // empty after the last page
	Charge  *float64 `json:"charge"`
	Seconds float64  `json:"seconds"`
	Plan    *string  `json:"plan"` // of the first page, on request
}

// query answers with a page of a query. The query ends with the request.
func (e *Explorer) query(w http.ResponseWriter, r *http.Request) error {
	q, cut, err := queryOf(r)
	if err != nil {
		return err
	}
	t, err := e.open(r)
	if err != nil {
		return err
	}
	begun := time.Now()
	found, err := t.Page(r.Context(), q, r.FormValue("after"))
	if err != nil {
		return err
	}
	p := page{Rows: []row{}, Next: found.Next, Charge: found.Charge, Seconds: time.Since(begun).Seconds()}
	for _, text := range found.Rows {
		p.Rows = append(p.Rows, rowOf(t, text, cut))
	}
	if r.FormValue("plan") == "1" {
		if plan, err := t.Explain(r.Context(), q); err == nil { // an account may have no plan
			p.Plan = &plan
		}
	}
	answer(w, http.StatusOK, p)
	return nil
}

// queryOf reads the query of a request. The parameters are name=JSON, or name=text.
func queryOf(r *http.Request) (q items.Query, cut int, err error) {
	q.Text = strings.TrimSpace(r.FormValue("sql"))
	if q.Text == "" {
		return q, 0, usage.Error{Err: errors.New("sql is empty: want a query, such as SELECT * FROM c")}
	}
	for _, text := range r.Form["param"] {
		p, err := items.ParseParameter(text)
		if err != nil {
			return q, 0, err
		}
		q.Parameters = append(q.Parameters, p)
	}
	if q.Key, err = keyOf(r); err != nil {
		return q, 0, err
	}
	if q.Max, err = number(r, "max", defaultRows, maxRows); err != nil {
		return q, 0, err
	}
	cut, err = number(r, "cut", maxCut, maxCut)
	return q, cut, err
}

// number reads a positive number of a request.
func number(r *http.Request, name string, otherwise, most int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, usage.Error{Err: fmt.Errorf("%s is %s: want 1 to %d", name, text, most)}
	}
	return n, nil
}

// keyOf reads the partition key of a request; empty if there is none.
func keyOf(r *http.Request) (feed.PartitionKey, error) {
	text := r.FormValue("key")
	if text == "" {
		return "", nil
	}
	var key arg.Key
	if err := key.Set(text); err != nil {
		return "", usage.Error{Err: fmt.Errorf("key is %s: %w", text, err)}
	}
	return key.Value, nil
}

// rowOf is the shown form of a row.
func rowOf(t *items.Target, text json.RawMessage, cut int) row {
	shown := items.WithoutSystem(text)
	r := row{Bytes: len(text)}
	r.Text, r.Cut = cutText(shown, cut)
	etag := rawjson.Text(rawjson.Lookup(text, "_etag"))
	if etag == "" || rawjson.Lookup(text, "_rid") == nil {
		return r
	}
	if d, err := t.Place(text); err == nil {
		r.ID, r.Key, r.ETag, r.At = d.ID, string(d.Key), etag, string(rawjson.Lookup(text, "_ts"))
	}
	return r
}

// cutText is a text, cut after a number of bytes.
func cutText(text []byte, most int) (string, bool) {
	if len(text) <= most {
		return string(text), false
	}
	return strings.ToValidUTF8(string(text[:most]), ""), true
}

// A document is the edited form of a document.
type document struct {
	Text   string   `json:"document"` // JSON without system properties
	ID     string   `json:"id"`
	Key    string   `json:"key"`
	ETag   string   `json:"etag"`
	At     string   `json:"at"`
	Charge *float64 `json:"charge"` // request units of a write; null if unknown, and for a read
}

// documentOf is the edited form of a stored document.
func documentOf(d items.Document, stored json.RawMessage) document {
	return document{
		Text: string(items.WithoutSystem(stored)), ID: d.ID, Key: string(d.Key),
		ETag: rawjson.Text(rawjson.Lookup(stored, "_etag")), At: string(rawjson.Lookup(stored, "_ts")),
	}
}

// locate opens the container of a request, and finds the document that the request names.
func (e *Explorer) locate(r *http.Request) (t *items.Target, d items.Document, err error) {
	if d.ID = r.FormValue("id"); d.ID == "" {
		return nil, d, usage.Error{Err: errors.New("id is empty: want the id of a document")}
	}
	key, err := keyOf(r)
	if err != nil {
		return nil, d, err
	}
	if t, err = e.open(r); err != nil {
		return nil, d, err
	}
	d.Key, err = t.FullKey(key, d.ID)
	return t, d, err
}

// getItem answers with a document.
func (e *Explorer) getItem(w http.ResponseWriter, r *http.Request) error {
	t, d, err := e.locate(r)
	if err != nil {
		return err
	}
	stored, err := t.Get(r.Context(), d)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, documentOf(d, stored))
	return nil
}

// maxDocument is how long a document may be, in bytes. Accounts take 2 MB.
const maxDocument = 4 << 20

// maxLines is the largest length of a document with white space, which is not stored: the page breaks a document into
// lines.
const maxLines = 4 * maxDocument

// readDocument reads the single document of a request, without white space.
func readDocument(w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	all, err := items.Read(http.MaxBytesReader(w, r.Body, maxLines))
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		return nil, err
	case err != nil:
		return nil, usage.Error{Err: err}
	case len(all) > 1:
		return nil, usage.Error{Err: fmt.Errorf("the body has %d documents: want one", len(all))}
	}
	var dense bytes.Buffer
	if err := json.Compact(&dense, all[0]); err != nil {
		return nil, usage.Error{Err: err}
	}
	if dense.Len() > maxDocument {
		return nil, &http.MaxBytesError{Limit: maxDocument}
	}
	return dense.Bytes(), nil
}

// createItem creates a document.
func (e *Explorer) createItem(w http.ResponseWriter, r *http.Request) error {
	body, err := readDocument(w, r)
	if err != nil {
		return err
	}
	t, err := e.open(r)
	if err != nil {
		return err
	}
	d, err := t.Place(body)
	if err != nil {
		return usage.Error{Err: err}
	}
	return e.write(w, r, t, d, body, items.Write{Create: true})
}

// replaceItem replaces the version of a document that somebody has read.
func (e *Explorer) replaceItem(w http.ResponseWriter, r *http.Request) error {
	etag := r.Header.Get("If-Match")
	if etag == "" {
		return usage.Error{Err: errors.New("If-Match is missing: want the etag of the version that you have read")}
	}
	body, err := readDocument(w, r)
	if err != nil {
		return err
	}
	t, d, err := e.locate(r)
	if err != nil {
		return err
	}
	switch is, err := t.Place(body); {
	case err != nil:
		return usage.Error{Err: err}
	case is != d:
		return usage.Error{Err: fmt.Errorf("the body is %v: want %v, or a new document", is, d)}
	}
	return e.write(w, r, t, d, body, items.Write{IfMatch: etag})
}

// write writes a document, and answers with the stored document.
func (e *Explorer) write(w http.ResponseWriter, r *http.Request, t *items.Target, d items.Document,
	body json.RawMessage, how items.Write,
) error {
	written, err := t.Put(r.Context(), body, how)
	if err != nil {
		return withCurrent(r, t, d, err)
	}
	stored := document{
		Text: string(items.WithoutSystem(body)), ID: d.ID, Key: string(d.Key), ETag: written.ETag,
		Charge: written.Charge,
	}
	status := http.StatusOK
	if how.Create {
		status = http.StatusCreated
	}
	answer(w, status, stored)
	return nil
}

// deleteItem deletes the version of a document that somebody has read.
func (e *Explorer) deleteItem(w http.ResponseWriter, r *http.Request) error {
	etag := r.Header.Get("If-Match")
	if etag == "" {
		return usage.Error{Err: errors.New("If-Match is missing: want the etag of the version that you have read")}
	}
	t, d, err := e.locate(r)
	if err != nil {
		return err
	}
	charge, err := t.Delete(r.Context(), d, etag)
	if err != nil {
		return withCurrent(r, t, d, err)
	}
	answer(w, http.StatusOK, document{ID: d.ID, Key: string(d.Key), Charge: charge})
	return nil
}

// changedError is why a document was not written: somebody else has written the document meanwhile.
type changedError struct {
	error
	current, etag string
}

// Unwrap returns the refusal.
func (e *changedError) Unwrap() error { return e.error }

// withCurrent adds the present version of a document to a refusal because of another version. If the document is gone
// meanwhile, the refusal is all.
func withCurrent(r *http.Request, t *items.Target, d items.Document, err error) error {
	if status := statusOf(err); status != http.StatusPreconditionFailed && status != http.StatusConflict {
		return err
	}
	stored, missing := t.Get(r.Context(), d)
	if missing != nil {
		return cmp.Or(err, missing)
	}
	is := documentOf(d, stored)
	return &changedError{err, is.Text, is.ETag}
}
