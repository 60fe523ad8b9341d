package cosmosrest

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/binaryjson"
	"github.com/millrace/changefeed/cosmosrest/internal/netbatch"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// binaryOf is the body of a text in binary JSON.
func binaryOf(text string) string { return string(binaryjson.Append(nil, []byte(text))) }

// wanting is headers with the wish for an answer in a format.
func wanting(formats string, headers map[string]string) map[string]string {
	all := map[string]string{"x-ms-cosmos-supported-serialization-formats": formats}
	maps.Copy(all, headers)
	return all
}

// inBinary is the text of an answer in binary JSON.
func (a answer) inBinary(t *testing.T) string {
	t.Helper()
	text, err := binaryjson.AppendText(nil, a.body, 1<<24)
	if err != nil {
		t.Fatalf("status %d: %q: %v", a.status, a.body, err)
	}
	return string(text)
}

// What the Rust driver sends for each operation on an item: the store keeps text, and both kinds of clients read the
// same item.
func TestBinaryItem(t *testing.T) {
	w, _ := newContainer(t, Options{})
	rust := wanting("CosmosBinary", under("p"))
	const first = `{"id":"a","pk":"p","n":100,"f":1.5,"t":[true,null,"é\n"],"o":{}}`
	created := w.do(t, "POST", docs, rust, binaryOf(first)).want(t, http.StatusCreated)
	if got := created.inBinary(t); !strings.HasPrefix(got, strings.TrimSuffix(first, "}")+`,"_rid":"`) {
		t.Errorf("created %s", got)
	}
	read := w.do(t, "GET", docs+"/a", rust, "").want(t, 200)
	asText := w.do(t, "GET", docs+"/a", under("p"), "").want(t, 200)
	if read.inBinary(t) != string(asText.body) || read.inBinary(t) != created.inBinary(t) {
		t.Errorf("read %s in binary, %s as text", read.inBinary(t), asText.body)
	}
	if length := read.header.Get("content-length"); length != fmt.Sprint(len(read.body)) {
		t.Errorf("a body of %d bytes has the length %s", len(read.body), length)
	}
	replaced := w.do(t, "PUT", docs+"/a", rust, binaryOf(`{"id":"a","pk":"p","n":18446744073709551615}`)).want(t, 200)
	if got := replaced.inBinary(t); !strings.Contains(got, `"n":18446744073709551615,`) {
		t.Errorf("replaced %s", got)
	}
	upsert := wanting("CosmosBinary", under("p", "x-ms-documentdb-is-upsert", "True"))
	if got := w.do(t, "POST", docs, upsert, binaryOf(`{"id":"b","pk":"p"}`)).want(t, 201).inBinary(t); !strings.
		HasPrefix(got, `{"id":"b","pk":"p",`) {
		t.Errorf("upserted %s", got)
	}
	patched := w.do(t, "PATCH", docs+"/a", rust, binaryOf(`[{"op":"set","path":"/n","value":7}]`)).want(t, 200)
	if got := patched.inBinary(t); !strings.Contains(got, `"n":7,`) {
		t.Errorf("patched %s", got)
	}
	if a := w.do(t, "PUT", docs+"/b", upsert, binaryOf(`{"id":"c","pk":"p"}`)).want(t, 200); !strings.
		Contains(a.inBinary(t), `"id":"c"`) { // renamed
		t.Errorf("renamed %s", a.inBinary(t))
	}
	if a := w.do(t, "DELETE", docs+"/c", rust, "").want(t, 204); len(a.body) > 0 {
		t.Errorf("a delete answers % X", a.body)
	}
	// A binary body without a wish gets text, as text with a wish gets binary.
	a := w.do(t, "POST", docs, under("p"), binaryOf(`{"id":"d","pk":"p"}`)).want(t, 201)
	if !strings.HasPrefix(string(a.body), `{"id":"d","pk":"p",`) {
		t.Errorf("%q", a.body)
	}
	w.do(t, "POST", docs, rust, `{"id":"e","pk":"p"}`).want(t, 201).inBinary(t)
	w.do(t, "POST", docs, rust, binaryOf(`{"id":"a","pk":"p"}`)).refused(t, 409, "0", "Conflict") // errors are text
	w.do(t, "GET", docs+"/a", wanting("CosmosBinary", under("p", "if-none-match", patched.header.Get("etag"))), "").
		want(t, 304)
}

// A damaged body is refused with its byte, and nothing is written.
func TestDamagedBinaryBody(t *testing.T) {
	w, cont := newContainer(t, Options{})
	w.item(t, "a", "")
	whole := binaryOf(`{"id":"b","pk":"p","n":"` + strings.Repeat("x", 100) + `"}`)
	upsert := under("p", "x-ms-documentdb-is-upsert", "True")
	batch := under("p", "x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic", "True")
	for body, want := range map[string]string{
		whole[:40]:     "at byte 1: the container has the length ",
		whole + "\xd0": fmt.Sprintf("at byte %d: want the end of the body", len(whole)),
		strings.Replace(whole, "xxx", "x\xffx", 1): "a string of 100 bytes is not UTF-8",
		"\x80\xcf": "at byte 1: marker CF has no value in JSON",
	} {
		for _, a := range []answer{
			w.do(t, "POST", docs, under("p"), body), w.do(t, "POST", docs, upsert, body),
			w.do(t, "PUT", docs+"/a", under("p"), body), w.do(t, "PATCH", docs+"/a", under("p"), body),
			w.do(t, "POST", docs, batch, body),
			w.do(t, "POST", docs, atomicRows, string(netbatch.Request(row(rowCreate, "", body)))),
		} {
			a.refused(t, 400, "0", "BadRequest")
			if text := string(a.body); !strings.Contains(text, want) || !strings.Contains(text, "not binary JSON") {
				t.Errorf("% X: %s: want %q", body[:2], text, want)
			}
		}
	}
	w.do(t, "POST", docs, under("p"), "\x80\x01").refused(t, 400, "0", "BadRequest") // a number
	if cont.Count() != 1 {
		t.Errorf("%d items: want the first alone", cont.Count())
	}
	bomb := "\x80\xe4\x00\x00\x00\x00\xc1\x00\x10" + strings.Repeat("x", 0x1000) + strings.Repeat("\xc3\x06", 0x1000)
	size := len(bomb) - 6
	bomb = bomb[:2] + string([]byte{byte(size), byte(size >> 8)}) + bomb[4:]
	w.do(t, "POST", docs, under("p"), bomb).refused(t, 413, "0", "RequestEntityTooLarge")
}

// Which answers are binary, by the wish of the client. The rules for wrong wishes, and that feeds ignore a list of
// formats, are those of the .NET SDK's tests of headers.
func TestWishedFormats(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", `,"n":1`)
	query := `{"query":"SELECT * FROM c"}`
	asks := map[string]func(h map[string]string) answer{
		"read": func(h map[string]string) answer {
			maps.Copy(h, under("p"))
			return w.do(t, "GET", docs+"/a", h, "")
		},
		"query": func(h map[string]string) answer {
			maps.Copy(h, map[string]string{
				"content-type": wire.QueryType, "x-ms-documentdb-query-enablecrosspartition": "True",
			})
			return w.do(t, "POST", docs, h, query)
		},
		"feed": func(h map[string]string) answer { return w.do(t, "GET", docs, h, "") },
		"changes": func(h map[string]string) answer {
			h["a-im"] = "Incremental Feed"
			return w.do(t, "GET", docs, h, "")
		},
		"plan": func(h map[string]string) answer {
			maps.Copy(h, map[string]string{"content-type": wire.QueryType, "x-ms-cosmos-is-query-plan-request": "True"})
			return w.do(t, "POST", docs, h, query)
		},
		"ranges": func(h map[string]string) answer { return w.do(t, "GET", "/dbs/db/colls/c/pkranges", h, "") },
	}
	const feeds, points = "feed changes", "read query"
	for _, c := range []struct{ header, value, binary string }{
		{wire.HeaderFormats, "CosmosBinary", points + feeds},
		{wire.HeaderFormats, "COSMOSbinary", points},
		{wire.HeaderFormats, "JsonText,CosmosBinary", points},
		{wire.HeaderFormats, "JsonText, CosmosBinary, HybridRow", points},
		{wire.HeaderFormats, "JsonText", ""},
		{wire.HeaderFormat, "CosmosBinary", points + feeds},
		{wire.HeaderFormat, "cosmosbinary", points + feeds},
		{wire.HeaderFormat, "JsonText", ""},
	} {
		for name, ask := range asks {
			a := ask(map[string]string{c.header: c.value}).want(t, 200)
			if got, want := binaryjson.Is(a.body), strings.Contains(c.binary, name); got != want {
				t.Errorf("%s: %s: %s: binary %v, want %v", c.header, c.value, name, got, want)
			}
		}
	}
	// The format of a request counts, although its client accepts both.
	for name, ask := range asks {
		h := map[string]string{wire.HeaderFormats: "CosmosBinary", wire.HeaderFormat: "JsonText"}
		if a := ask(h).want(t, 200); binaryjson.Is(a.body) {
			t.Errorf("%s: the answer to a request for text is binary", name)
		}
	}
	for _, name := range []string{"read", "query", "feed", "changes"} {
		for _, wrong := range []struct{ header, value string }{
			{wire.HeaderFormat, "Xml"},
			{wire.HeaderFormats, "JsonText CosmosBinary"},
			{wire.HeaderFormats, "CosmosBinary, "},
			{wire.HeaderFormats, "CosmosBinary,Xml"},
		} {
			m := asks[name](map[string]string{wrong.header: wrong.value}).refused(t, 400, "0", "BadRequest")
			if !strings.Contains(m, "want JsonText, CosmosBinary or HybridRow") {
				t.Errorf("%s: %s: %s", wrong.header, wrong.value, m)
			}
		}
	}
	w.do(t, "DELETE", docs+"/a", map[string]string{
		wire.HeaderFormat: "Xml", "x-ms-documentdb-partitionkey": `["p"]`,
	}, "").refused(t, 400, "0", "BadRequest")
	asks["read"](map[string]string{}).want(t, 200) // it is still there
}

// Pages of queries and feeds are one value each, the same as in text.
func TestBinaryPages(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for i := range 300 {
		w.item(t, fmt.Sprint(i), fmt.Sprintf(`,"n":%d,"v":{"w":[%q,%d.25]}`, i*1000, strings.Repeat("y", i), i))
	}
	ask := func(method string, h map[string]string, query string) {
		t.Helper()
		text := w.do(t, method, docs, h, query).want(t, 200)
		binary := w.do(t, method, docs, wanting("CosmosBinary", h), query).want(t, 200)
		if got := binary.inBinary(t); got != string(text.body) {
			t.Errorf("%v %s: %d bytes of text from binary, %d otherwise", h, query, len(got), len(text.body))
		}
		for _, name := range []string{"x-ms-item-count", "x-ms-continuation", "etag", "content-type"} {
			if a, b := text.header.Get(name), binary.header.Get(name); a != b {
				t.Errorf("%s: %q, with binary %q", name, a, b)
			}
		}
	}
	sql := under("p", "content-type", wire.QueryType)
	ask("POST", sql, `{"query":"SELECT * FROM c"}`)
	ask("POST", sql, `{"query":"SELECT c.n, c.v.w FROM c ORDER BY c.n DESC"}`)
	ask("POST", sql, `{"query":"SELECT VALUE COUNT(1) FROM c"}`)
	ask("POST", sql, `{"query":"SELECT * FROM c WHERE false"}`)
	ask("GET", map[string]string{"x-ms-max-item-count": "10"}, "")
	ask("GET", map[string]string{"a-im": "Incremental Feed"}, "")
	ask("GET", map[string]string{
		"a-im": "Incremental Feed", "x-ms-cosmos-changefeed-wire-format-version": "2021-09-15",
	}, "")
	// A query may be binary too.
	a := w.do(t, "POST", docs, sql, binaryOf(`{"query":"SELECT VALUE c.id FROM c WHERE c.n = 1000"}`)).want(t, 200)
	if !bytes.Contains(a.body, []byte(`["1"]`)) {
		t.Errorf("%s", a.body)
	}
}

// Batches: JSON as one value, and rows of which the bodies are binary.
func TestBinaryBatch(t *testing.T) {
	w, _ := newContainer(t, Options{})
	h := wanting("CosmosBinary", atomicRows)
	ops := `[{"operationType":"Create","resourceBody":{"id":"a","pk":"p","n":1}},{"operationType":"Read","id":"a"},` +
		`{"operationType":"Patch","id":"a","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}}]`
	a := w.do(t, "POST", docs, h, binaryOf(ops)).want(t, 200)
	if got := a.inBinary(t); strings.Count(got, `"statusCode":20`) != 3 || !strings.Contains(got, `"n":2,`) {
		t.Errorf("%s", got)
	}
	_, all, statuses := w.rows(t, h, netbatch.Request(
		row(rowUpsert, "", binaryOf(`{"id":"a","pk":"p","n":5}`)), row(rowRead, "a", ""),
		row(rowReplace, "a", `{"id":"a","pk":"p","n":6}`),
		row(rowPatch, "a", binaryOf(`{"operations":[{"op":"incr","path":"/n","value":1}]}`)),
	))
	if statuses != "200 200 200 200" {
		t.Fatalf("statuses %s", statuses)
	}
	for i, want := range []string{`"n":5,`, `"n":5,`, `"n":6,`, `"n":7,`} {
		if got := (answer{body: all[i].Body}).inBinary(t); !strings.Contains(got, want) {
			t.Errorf("result %d: %s", i, got)
		}
	}
	_, all, statuses = w.rows(t, h, netbatch.Request(row(rowCreate, "", binaryOf(`{"id":"a","pk":"p"}`))))
	if statuses != "409" || binaryjson.Is(all[0].Body) {
		t.Errorf("statuses %s, body %q", statuses, all[0].Body)
	}
	_, all, statuses = w.rows(t, bulkRows, netbatch.Request(
		row(rowUpsert, "", "\x80\xcf"), row(rowUpsert, "", binaryOf(`{"id":"b","pk":"p"}`)),
	))
	if statuses != "400 201" || binaryjson.Is(all[1].Body) {
		t.Errorf("statuses %s, body %q", statuses, all[1].Body)
	}
}
