package cosmosrest

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Every reply in the tests of this package, transcripts included, is checked against the table of reply headers.

// replyOf returns the place of a reply in the table.
func replyOf(r *http.Request, status int) wire.ReplySet {
	in := wire.NewRequest(nil, r)
	target, err := wire.ParsePath(r.URL.EscapedPath())
	if err != nil {
		return wire.Reply(wire.OwnReply, r.Method, false, status)
	}
	switch {
	case target.Kind == "docs" && r.Method == http.MethodPost && in.Flag(wire.HeaderQueryPlan):
		target.Kind = wire.PlanReply
	case target.Kind == "docs" && in.Flag(wire.HeaderPending):
		target.Kind = wire.OwnReply
	}
	return wire.Reply(target.Kind, r.Method, target.Feed && (r.Method == http.MethodGet || in.IsQuery()), status)
}

// checkReplyHeaders checks that a reply has the headers that the table wants, and no others.
func checkReplyHeaders(t testing.TB, r *http.Request, status int, got http.Header) {
	t.Helper()
	if status == http.StatusInternalServerError || status == wire.StatusClientGone {
		return
	}
	own := replyOf(r, status)
	known := map[string]bool{}
	for _, row := range wire.ReplyHeaders() {
		known[row.Name] = true
		has := got[http.CanonicalHeaderKey(row.Name)] != nil
		if has && !(row.Always | row.Maybe).Has(own) {
			t.Errorf("%s %s: the reply %d has %s: %s, against the table of reply headers", r.Method, r.URL, status, row.Name,
				got.Get(row.Name))
		}
		// a 304 has no content
		if !has && row.Always.Has(own) && (row.Name != "content-type" || status != http.StatusNotModified) {
			t.Errorf("%s %s: the reply %d lacks %s, against the table of reply headers", r.Method, r.URL, status, row.Name)
		}
	}
	for name := range got {
		if name = strings.ToLower(name); !known[name] {
			t.Errorf("%s %s: %s is not in the table of reply headers", r.Method, r.URL, name)
		}
	}
}

func TestTheTableOfReplyHeadersIsSorted(t *testing.T) {
	if !slices.IsSortedFunc(wire.ReplyHeaders(), func(a, b wire.ReplyHeader) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		t.Error("the table of reply headers is not sorted by name")
	}
}

// TestTheTableHasNoNeedlessReason fails if a row explains a difference to the recordings that no recording shows.
func TestTheTableHasNoNeedlessReason(t *testing.T) {
	differs := map[string]bool{}
	for _, e := range readExchanges(t, "testdata/recorded/exchanges.ndjson") {
		if !e.hasHeaders() || e.isRefused() {
			continue
		}
		for _, d := range tableDifferences(t, e) {
			differs[d.name] = true
		}
	}
	for _, row := range wire.ReplyHeaders() {
		if row.Why != "" && !differs[row.Name] && !ofHTTP[row.Name] && !sinceFeeds[row.Name] {
			t.Errorf("%s: the recordings agree with the table, so the row needs no reason: %s", row.Name, row.Why)
		}
		if row.Why == "" && differs[row.Name] {
			t.Errorf("%s: the recordings differ from the table, and the row has no reason", row.Name)
		}
	}
}

// ofHTTP are headers that depend on the connection, or on errors that were not recorded.
var ofHTTP = map[string]bool{"allow": true, "connection": true, "content-length": true, "date": true}

// sinceFeeds are headers that this server sends where recordings before 2023 lack them, and a table of sets cannot say
// so.
var sinceFeeds = map[string]bool{
	"x-ms-cosmos-query-execution-info": true, "x-ms-cosmos-is-partition-key-delete-pending": true,
}

// hasHeaders reports whether all headers of a reply were recorded, and the protocol is not older than session tokens
// with versions: the server sends the headers of today in replies to older versions, too.
func (e *exchange) hasHeaders() bool {
	return len(e.ResponseHeaders) > fewHeaders && e.RequestHeaders["x-ms-version"] >= "2018-06-18"
}

// fewHeaders is the number of headers up to which a recording is a selection.
const fewHeaders = 8

// tableDifference is a header that a recorded reply has against the table, or lacks against it.
type tableDifference struct{ name, text string }

// tableDifferences compares the recorded reply of an exchange with the table.
func tableDifferences(t *testing.T, e *exchange) (d []tableDifference) {
	t.Helper()
	r, err := http.NewRequest(e.Method, "http://host"+strings.ReplaceAll(e.Path, "{", ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range e.RequestHeaders {
		r.Header.Set(name, value)
	}
	own := replyOf(r, e.Status)
	known := map[string]bool{}
	for _, row := range wire.ReplyHeaders() {
		known[row.Name] = true
		_, has := e.ResponseHeaders[row.Name]
		if has && !(row.Always | row.Maybe).Has(own) {
			d = append(d, tableDifference{row.Name, "the service sends " + row.Name})
		}
		if !has && row.Always.Has(own) {
			d = append(d, tableDifference{row.Name, "the service does not send " + row.Name})
		}
	}
	for name := range e.ResponseHeaders {
		if !known[name] {
			d = append(d, tableDifference{name, name + " is not in the table of reply headers"})
		}
	}
	return d
}
