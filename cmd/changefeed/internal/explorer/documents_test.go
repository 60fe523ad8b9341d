package explorer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/feed"
)

// hostile are documents that would be markup, break a line of JSON, or lose digits.
var hostile = []string{
	`{"id":"<img src=x onerror=alert(1)>","city":"</script>","n":1}`,
	`{"id":"n","city":"c","n":12345678901234567890.12345678901234567890}`,
	`{"id":"u","city":"\u202e\u0000\ud800","text":"😀 \u2028"}`,
	`{"id":"dup","city":"c","a":1,"a":2}`,
	`{ "id" : "space",  "city" : "c" }`,
}

// A document is what is stored, with all its digits and its own words, in a list and alone.
func TestDocumentsStayWhatTheyAre(t *testing.T) {
	w := newWorld(t)
	for _, text := range hostile {
		var created document
		w.ask(http.StatusCreated, http.MethodPost, "item", of(), text, "", &created)
		var got document
		w.get("item", of("id", created.ID, "key", created.Key), &got)
		if want := strings.Join(strings.Fields(text), ""); strings.Join(strings.Fields(got.Text), "") != want {
			t.Errorf("got  %s\nwant %s", got.Text, text)
		}
		if got.ETag != created.ETag || got.ETag == "" || got.ID != created.ID {
			t.Errorf("%+v after %+v", got, created)
		}
	}
	if got := w.rows(of("sql", "SELECT * FROM c")); len(got) != len(hostile) {
		t.Errorf("%d rows: %q", len(got), got)
	}
}

// A list is read page by page, and each document comes once. Only whole documents can be opened.
func TestAListComesInPages(t *testing.T) {
	w := newWorld(t)
	w.put(many(250)...)
	var p page
	q := of("sql", "SELECT * FROM c", "plan", "1")
	w.get("query", q, &p)
	if len(p.Rows) != defaultRows || p.Next == "" || p.Charge == nil || *p.Charge <= 0 || p.Seconds <= 0 ||
		p.Plan == nil || *p.Plan == "" || p.Rows[0].ID == "" || p.Rows[0].Key == "" || p.Rows[0].ETag == "" ||
		p.Rows[0].At == "" {
		t.Errorf("%d rows, next %q, charge %v, seconds %v, plan %v", len(p.Rows), p.Next, p.Charge, p.Seconds,
			p.Plan)
	}
	seen := map[string]bool{}
	for _, text := range w.rows(of("sql", "SELECT * FROM c", "max", "60")) {
		seen[text] = true
	}
	if len(seen) != 250 {
		t.Errorf("%d documents, want 250", len(seen))
	}
	if got := w.rows(of("sql", "SELECT * FROM c", "key", "c1")); len(got) != 50 {
		t.Errorf("%d documents of a partition key, want 50", len(got))
	}
	p = page{}
	w.get("query", of("sql", "SELECT c.id, c.n FROM c WHERE c.n < @n", "param", "@n=3"), &p)
	if len(p.Rows) != 3 || p.Rows[0].ID != "" || p.Rows[0].ETag != "" {
		t.Errorf("%+v", p.Rows)
	}
	if got := w.rows(of("sql", "SELECT VALUE COUNT(1) FROM c")); len(got) != 1 || got[0] != "250" {
		t.Errorf("a count over all partitions: %q", got)
	}
}

// Rows are cut where a list shows them, and the document alone is whole.
func TestLongRowsAreCutInLists(t *testing.T) {
	w := newWorld(t)
	long := `{"id":"l","city":"c","text":"` + strings.Repeat("é", 30_000) + `"}`
	w.put(long)
	for cut, most := range map[string]int{"": maxCut, "400": 400, "401": 401} {
		q := of("sql", "SELECT * FROM c")
		if cut != "" {
			q.Set("cut", cut)
		}
		var p page
		w.get("query", q, &p)
		if r := p.Rows[0]; !r.Cut || len(r.Text) > most || len(r.Text) < most-1 || !strings.HasPrefix(long,
			r.Text) ||
			r.Bytes < len(long) {
			t.Errorf("cut %q: %d of %d bytes", cut, len(r.Text), r.Bytes)
		}
	}
	var got document
	w.get("item", of("id", "l", "key", "c"), &got)
	if got.Text != long {
		t.Errorf("alone it has %d bytes", len(got.Text))
	}
}

// Only a row that is a whole document can be opened: who saved a part of one would lose the rest.
func TestAPartOfADocumentIsNoDocument(t *testing.T) {
	w := newWorld(t)
	w.put(`{"id":"1","city":"c","n":1}`)
	for query, isWhole := range map[string]bool{
		"SELECT * FROM c":                               true,
		"SELECT c.id, c.city, c._etag FROM c":           false,
		"SELECT c.id, c.city, c._rid, c._ts FROM c":     false,
		"SELECT c.id, c.city, c.n FROM c WHERE c.n = 1": false,
	} {
		var p page
		w.get("query", of("sql", query), &p)
		if r := p.Rows[0]; (r.ID != "") != isWhole || (r.ETag != "") != isWhole {
			t.Errorf("%s: %+v, want a whole document %t", query, r, isWhole)
		}
	}
}

// Who writes or deletes a version that is old now gets the present one, and nothing is lost.
func TestAConflictShowsBothVersions(t *testing.T) {
	w := newWorld(t)
	var first, second, third document
	w.ask(http.StatusCreated, http.MethodPost, "item", of(), `{"id":"1","city":"c","n":1}`, "", &first)
	q := of("id", "1", "key", "c")
	w.ask(http.StatusOK, http.MethodPut, "item", q, `{"id":"1","city":"c","n":2}`, first.ETag, &second)
	if second.Charge == nil || *second.Charge <= 0 {
		t.Errorf("the charge is %v", second.Charge)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		f := w.refuses(http.StatusPreconditionFailed, "", method, "item", q, `{"id":"1","city":"c","n":3}`,
			first.ETag)
		if f.Current != `{"id":"1","city":"c","n":2}` || f.ETag != second.ETag {
			t.Errorf("%s: %+v", method, f)
		}
	}
	f := w.refuses(http.StatusConflict, "exists already", http.MethodPost, "item", of(), `{"id":"1","city":"c"}`,
		"")
	if f.Current != `{"id":"1","city":"c","n":2}` {
		t.Errorf("%+v", f)
	}
	w.refuses(http.StatusBadRequest, `the body is document "2"`, http.MethodPut, "item", q,
		`{"id":"2","city":"c"}`, second.ETag)
	w.refuses(http.StatusBadRequest, `of key ["d"]`, http.MethodPut, "item", q, `{"id":"1","city":"d"}`,
		second.ETag)
	w.ask(http.StatusOK, http.MethodDelete, "item", q, "", second.ETag, &third)
	w.refuses(http.StatusNotFound, "", http.MethodGet, "item", q, "", "")
	f = w.refuses(http.StatusNotFound, "", http.MethodPut, "item", q, `{"id":"1","city":"c"}`, second.ETag)
	if f.Current != "" {
		t.Errorf("%+v", f)
	}
}

// A document that is too long is refused, and is not kept in memory.
func TestALongDocumentIsRefused(t *testing.T) {
	w := newWorld(t)
	body := `{"id":"1","city":"` + strings.Repeat("x", maxDocument) + `"}`
	w.refuses(http.StatusRequestEntityTooLarge, "too large", http.MethodPost, "item", of(), body, "")
}

// stuck is an account whose answers to queries never come.
type stuck struct {
	asked, left chan struct{}
	next        http.Handler
}

func (s stuck) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/docs") {
		_, _ = io.Copy(io.Discard, r.Body) // only then a server notices that the client goes
		close(s.asked)
		<-r.Context().Done()
		close(s.left)
		return
	}
	s.next.ServeHTTP(w, r)
}

// A query ends with its request: nobody waits for it any more.
func TestAQueryEndsWithItsRequest(t *testing.T) {
	w := newWorld(t)
	account := serverOf(t, w.db)
	s := stuck{make(chan struct{}), make(chan struct{}), account}
	served := httptest.NewServer(s)
	defer served.Close()
	settings := place.Settings{}
	at, err := settings.Parse("source", served.URL+"/shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	w.e.places = nil
	w.e.Show(Place{Name: "account", Opener: place.NewOpener(settings), Whole: at})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/query?"+of("sql", "SELECT 1").Encode(), nil)
		w.e.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-s.asked
	cancel()
	for what, done := range map[string]chan struct{}{"the request": ended, "the query": s.left} {
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s goes on", what)
		}
	}
}

// A read changes nothing, whatever its method's name says of it.
func TestReadsAreGET(t *testing.T) {
	w := newWorld(t)
	w.put(many(1)...)
	before := w.orders.Head()
	for _, what := range []string{
		"containers", "container", "query", "item", "copy", "feed", "import", "split",
		"merge",
	} {
		q := of("sql", "SELECT * FROM c", "id", "0", "key", "c0", "view", "query", "from", "now", "mode",
			"nonsense")
		response := w.send(t.Context(), http.MethodGet, what, q, "", "")
		_ = response.Body.Close()
	}
	if after := w.orders.Head(); after != before {
		t.Errorf("reads have moved the container from %d to %d", before, after)
	}
}

// The documents of an import are written, and each that is not is named with its line.
func TestAnImportNamesWhatItRefuses(t *testing.T) {
	w := newWorld(t)
	lines := "\xef\xbb\xbf\n" + `{"id":"1","city":"c","n":1}` + "\n\nnope\n" + `{"city":"c"}` + "\r\n[1]\n" +
		`{"id":"1","city":"c","n":2}` + "\n" + `{"id":2,"city":"c"}` + "\n" + `{"id":"3"} {"id":"4"}` + "\n" +
		`{"id":"5","city":"` + strings.Repeat("x", maxDocument) + `"}` + "\n" + `{"id":"6","city":"c"}`
	var got imported
	w.ask(http.StatusOK, http.MethodPost, "import", of(), lines, "", &got)
	named := map[int]bool{}
	for _, r := range got.First {
		named[r.Line] = r.Error != ""
	}
	for _, line := range []int{4, 5, 6, 8, 9, 10} {
		if !named[line] {
			t.Errorf("line %d is not named: %+v", line, got.First)
		}
	}
	if got.Written != 3 || got.Refused != 6 || got.Error != nil || got.Charge <= 0 {
		t.Errorf("%+v", got)
	}
	if rows := w.rows(of("sql", "SELECT c.n FROM c WHERE c.id = '1'")); len(rows) != 1 || rows[0] != `{"n":2}` {
		t.Errorf("of two versions in one file the last counts: %q", rows)
	}
}

// Of many versions of a document in one file the last counts.
func TestTheLastVersionOfAnImportCounts(t *testing.T) {
	w := newWorld(t)
	const versions = 500
	var lines strings.Builder
	for n := range versions {
		fmt.Fprintf(&lines, `{"id":"1","city":"c","n":%d}`+"\n", n)
	}
	var got imported
	w.ask(http.StatusOK, http.MethodPost, "import", of(), lines.String(), "", &got)
	if rows := w.rows(of("sql", "SELECT VALUE c.n FROM c")); len(rows) != 1 || rows[0] != strconv.Itoa(versions-1) {
		t.Errorf("%q after %+v", rows, got)
	}
}

// An array of documents is an import too. Where it is no JSON, it ends.
func TestAnImportOfAnArray(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		body             string
		written, refused int
		problem          string
	}{
		{` [ {"id":"1","city":"c"}, {"id":"2","city":"c"} ] `, 2, 0, ""},
		{`[{"id":"3","city":"c"},7,{"id":"4","city":"c"}]`, 2, 1, ""},
		{`[{"id":"5","city":"c"},{"id":nope}]`, 1, 0, "document 2: invalid character"},
		{`[{"id":"6","city":"c"}`, 1, 0, "want ]"},
		{
			`[{"id":"7","city":"c"},{"id":"8","city":"` + strings.Repeat("x", 2*maxDocument) + `"}]`, 1, 0,
			"more than 4 MB",
		},
		{`[]`, 0, 0, ""},
		{``, 0, 0, ""},
	} {
		var got imported
		w.ask(http.StatusOK, http.MethodPost, "import", of(), tt.body, "", &got)
		problem := ""
		if got.Error != nil {
			problem = *got.Error
		}
		if got.Written != tt.written || got.Refused != tt.refused || !strings.Contains(problem, tt.problem) ||
			tt.problem == "" && problem != "" {
			t.Errorf("%.40s: %+v, %s", tt.body, got, problem)
		}
	}
	w.refuses(http.StatusBadRequest, "invalid character", http.MethodPost, "import", of(), "[nope", "")
}

// The bound of a document is none of the array: many documents that are short enough may be longer together.
func TestAnArrayMayBeLongerThanADocument(t *testing.T) {
	w := newWorld(t)
	const n = 6
	var documents []string
	for i := range n {
		text := strings.Repeat("x", maxDocument/4)
		documents = append(documents, fmt.Sprintf(`{"id":"%d","city":"c","text":"%s"}`, i, text))
	}
	var got imported
	w.ask(http.StatusOK, http.MethodPost, "import", of(), "["+strings.Join(documents, ",")+"]", "", &got)
	if got.Written != n || got.Error != nil {
		t.Errorf("%d of %d documents are written, %d refused: %+v", got.Written, n, got.Refused, got.First)
	}
}

// Of an import in which nothing is right, only some documents are named.
func TestAnImportNamesNotAll(t *testing.T) {
	w := newWorld(t)
	var got imported
	w.ask(http.StatusOK, http.MethodPost, "import", of(), strings.Repeat("x\n", 3*mostRefused), "", &got)
	if got.Refused != 3*mostRefused || len(got.First) != mostRefused {
		t.Errorf("%d of %d are named", len(got.First), got.Refused)
	}
}

// What documents say is text in JSON: it neither ends a line nor an event.
func TestAnswersAreOneLine(t *testing.T) {
	w := newWorld(t)
	text := "line\u2028<>\n\"\\"
	if got := string(jsonOf(failure{Error: text})); strings.Count(got, "\n") != 1 || !json.Valid([]byte(got)) {
		t.Errorf("%q", got)
	}
	w.put(`{"id":"1","city":"a\nb"}`)
	c := changeOf(&feed.Change{
		ID: "1\n", PartitionKey: feed.Key("a\nb"), LSN: 1 << 60, Body: json.RawMessage("{\n}"), Op: feed.OpCreate,
	})
	if c.LSN != strconv.FormatInt(1<<60, 10) || strings.Count(string(jsonOf(c)), "\n") != 1 {
		t.Errorf("%s", jsonOf(c))
	}
}

var errCut = errors.New("the connection broke")

// torn is a body that breaks off.
type torn struct{ text *strings.Reader }

func (b torn) Read(p []byte) (int, error) {
	if b.text.Len() == 0 {
		return 0, errCut
	}
	return b.text.Read(p)
}

// An import whose connection breaks says what was written.
func TestATornImportSaysWhatWasWritten(t *testing.T) {
	w := newWorld(t)
	body := torn{strings.NewReader(`{"id":"1","city":"c"}` + "\n" + `{"id":"2","ci`)}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/import?"+of().Encode(), body)
	got := httptest.NewRecorder()
	w.e.ServeHTTP(got, r)
	if !strings.Contains(got.Body.String(), `"written":1`) || !strings.Contains(got.Body.String(), errCut.Error()) {
		t.Errorf("%d: %s", got.Code, got.Body)
	}
}
