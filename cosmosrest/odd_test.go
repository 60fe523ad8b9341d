package cosmosrest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"pgregory.net/rapid"
)

// odd are documents that two readers of JSON may take for different ones. All of them are
// read here as encoding/json reads them, whose rules are those of JavaScript: of several
// members with one name the last counts, and half of a surrogate pair is U+FFFD.
var odd = []string{
	`{"id":"plain","pk":"p","v":1}`,
	`{"id":"twice","pk":"x","pk":"y","v":1,"v":2}`,
	`{"id":"first","id":"second","pk":"p","v":"a","v":{"b":1,"b":2}}`,
	`{"pk":1,"id":"types","pk":"1","v":[1],"v":null}`,
	`{"\u0069d":"escaped","p\u006b":"pk","\u0076":"v","v":"w"}`,
	`{"id":"last escaped","pk":"q","pk":"r","v":"v","\u0076":"w","\u0070k":"s"}`,
	`{"id":"nested","pk":"p","v":{"a":{"b":1,"b":[2,{"c":3,"c":4}]},"a":{"b":5}}}`,
	`{"id":"half \ud800 pair","pk":"\udc00","v":"\ud83d"}`,
	`{"id":"whole pair \ud83d\ude00","pk":"😀","v":"\ud83d\ude00"}`,
	`{"id":"minus","pk":-0,"v":-0}`,
	`{"id":"minus point","pk":-0.0,"v":-0.0}`,
	`{"id":"zero","pk":0,"v":0}`,
	`{"id":"written long","pk":1.00e2,"v":1.00e2}`,
	`{"id":"large","pk":12345678901234567890,"v":12345678901234567890}`,
	`{"id":"deep","pk":"p","ttl":5,"ttl":-1,"v":[[["x"]]]}`,
	`{"id":"system","pk":"p","_etag":"mine","_rid":1,"_rid":2,"_lsn":7,"v":3}`,
	`{"id":"\u0000","pk":"a\u0000b","v":"\u0000"}`,
	"{ \"id\" :\t\"spaced\" , \"pk\":\r\n\"p\" , \"v\" : [ 1 , 2 ] }",
}

// oddWorld is a server with a container whose documents have a unique key, and a client.
func oddWorld(t *testing.T) (*world, *docstore.Container, *cosmos.Container) {
	t.Helper()
	w := newWorld(t, Options{Lenient: true})
	c := w.create(t, "db",
		`{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash"},"defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/v"]}]}}`, nil)
	client, err := cosmos.Open(t.Context(), "http://account.example", cosmos.Key(wellKnownKey),
		cosmos.Options{Transport: &http.Client{Transport: direct{w, t}}})
	if err != nil {
		t.Fatal(err)
	}
	items, err := client.Container(t.Context(), "db", "c")
	if err != nil {
		t.Fatal(err)
	}
	return w, c, items
}

// direct serves the requests of a client without a network.
type direct struct {
	http.Handler
	t testing.TB
}

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	rec := httptest.NewRecorder()
	d.ServeHTTP(rec, r)
	a := rec.Result()
	a.Header = received(d.t, rec)
	return a, nil
}

// decoded is a document as encoding/json reads it, without the members of the system.
func decoded(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for _, name := range []string{"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"} {
		delete(doc, name)
	}
	return doc
}

// written is a value as JSON.
func written(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) == "-0" {
		return "0"
	}
	return string(text)
}

func TestAnOddDocumentIsTheSameToEveryReader(t *testing.T) {
	for _, body := range odd {
		want := decoded(t, []byte(body))
		t.Run(strings.ToValidUTF8(fmt.Sprint(want["id"]), "?"), func(t *testing.T) {
			w, c, items := oddWorld(t)
			pk := "[" + written(t, want["pk"]) + "]"
			key := map[string]string{"x-ms-documentdb-partitionkey": pk}
			made := w.do(t, "POST", docs, key, body).want(t, http.StatusCreated)

			// The store.
			it, err := c.Item(t.Context(), feed.PartitionKey(pk), want["id"].(string))
			if err != nil || string(it.Key) != pk || !bytes.Equal(it.Body, made.body) ||
				!reflect.DeepEqual(decoded(t, it.Body), want) {
				t.Fatalf("item is %+v, %v, want %v", it, err, want)
			}

			// Queries, by the members that count.
			for _, query := range []string{
				"SELECT * FROM c WHERE c.id = @id AND c.pk = @pk", "SELECT * FROM c WHERE c.pk = @pk",
				"SELECT * FROM c WHERE c.pk IN (@pk, 'x')",
				"SELECT * FROM c WHERE c.v = @v", "SELECT VALUE c FROM c WHERE c['v'] = @v AND c.id = @id",
			} {
				params := []string{
					"@id", written(t, want["id"]), "@pk", written(t, want["pk"]), "@v",
					written(t, want["v"]),
				}
				rows := w.ask(t, across(), query, params...).list(t, "Documents")
				if len(rows) != 1 || rows[0]["id"] != want["id"] {
					t.Errorf("%s: %d rows, want the document", query, len(rows))
				}
			}
			for query, wanted := range map[string]any{
				"SELECT VALUE c.v FROM c":  want["v"],
				"SELECT VALUE c.pk FROM c": want["pk"], "SELECT VALUE c.v.b FROM c": at(want["v"], "b"),
			} {
				var got struct{ Documents []any }
				if w.ask(t, across(), query).into(t, &got); wanted == nil != (len(got.Documents) == 0 ||
					got.Documents[0] == nil) ||
					len(got.Documents) > 0 && !reflect.DeepEqual(got.Documents[0], wanted) {
					t.Errorf("%s: %v, want %v", query, got.Documents, wanted)
				}
			}

			// The feed, in the store and over HTTP.
			for name, source := range map[string]feed.Source{"store": c, "client": items} {
				page, err := source.Read(t.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
					feed.ReadOptions{})
				if err != nil || len(page.Changes) != 1 {
					t.Fatalf("%s: %+v, %v, want one change", name, page, err)
				}
				if ch := page.Changes[0]; ch.ID != want["id"] || string(ch.PartitionKey) != pk || ch.ETag != it.ETag ||
					ch.LSN != it.LSN || !bytes.Equal(ch.Body, it.Body) {
					t.Errorf("%s: change is %+v, want that of %+v", name, ch, it)
				}
			}

			// Another document with the same unique value, and one that has only a value that does not count.
			again := fmt.Sprintf(`{"id":"again","pk":%s,"v":7,"v":%s}`, written(t, want["pk"]), written(t, want["v"]))
			w.do(t, "POST", docs, key, again).want(t, http.StatusConflict)
			w.do(t, "POST", docs, key, fmt.Sprintf(`{"id":"other","pk":%s,"v":%s,"v":"other"}`, written(t, want["pk"]),
				written(t, want["v"]))).want(t, http.StatusCreated)

			oddPatches(t, c, it, want)
		})
	}
}

func oddPatches(t *testing.T, c *docstore.Container, it docstore.Item, want map[string]any) {
	t.Helper()
	for _, step := range []struct {
		op feed.PatchOp
		do func()
	}{
		{feed.PatchOp{Op: "set", Path: "/v", Value: json.RawMessage(`{"n":-0}`)}, func() {
			want["v"] = map[string]any{"n": 0.0}
		}},
		{feed.PatchOp{Op: "incr", Path: "/v/n", Value: json.RawMessage(`1.5`)}, func() {
			want["v"] = map[string]any{"n": 1.5}
		}},
		{feed.PatchOp{Op: "move", From: "/v", Path: "/w"}, func() { want["w"] = want["v"]; delete(want, "v") }},
		{feed.PatchOp{Op: "remove", Path: "/w"}, func() { delete(want, "w") }},
	} {
		patched, err := c.Patch(t.Context(), it.Key, it.ID, []feed.PatchOp{step.op}, "")
		if step.do(); err != nil || !reflect.DeepEqual(zeros(decoded(t, patched.Body)), zeros(want)) {
			t.Fatalf("%s %s: %s, %v, want %v", step.op.Op, step.op.Path, patched.Body, err, want)
		}
	}
}

// zeros is a document in which no zero has a sign.
func zeros(doc map[string]any) string {
	text, err := json.Marshal(doc)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(text), ":-0", ":0")
}

// A number keeps the text that it was written with, wherever its document is read.
func TestADocumentComesBackAsItWasWritten(t *testing.T) {
	const members = `"a":0.0,"b":1e2,"c":-0,"d":1.50,"e":[12345678901234567890,1E+2, 0.10],"f":1e400,"g":"\u00e9\/"`
	w, c, items := oddWorld(t)
	key := map[string]string{"x-ms-documentdb-partitionkey": `["p"]`}
	wants := func(how string, text []byte) {
		t.Helper()
		if !bytes.Contains(text, []byte(members)) {
			t.Errorf("%s: %s, want %s in it", how, text, members)
		}
	}
	wants("create", w.do(t, "POST", docs, key, `{"id":"x","pk":"p",`+members+`}`).want(t, http.StatusCreated).body)
	wants("read", w.do(t, "GET", docs+"/x", key, "").want(t, http.StatusOK).body)
	wants("query", w.ask(t, across(), "SELECT * FROM c").want(t, http.StatusOK).body)
	wants("query of the document as a value", w.ask(t, across(), "SELECT VALUE {'it': c} FROM c").want(t,
		http.StatusOK).body)
	patched, err := c.Patch(t.Context(), feed.Key("p"), "x",
		[]feed.PatchOp{{Op: "add", Path: "/v", Value: json.RawMessage("3.0")}}, "")
	if wants("patch", patched.Body); err != nil || !bytes.Contains(patched.Body, []byte(`"v":3.0`)) {
		t.Errorf("patch: %s, %v", patched.Body, err)
	}
	for name, source := range map[string]feed.Source{"feed of the store": c, "feed of the client": items} {
		page, err := source.Read(t.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
			feed.ReadOptions{})
		if err != nil || len(page.Changes) != 1 {
			t.Fatalf("%s: %+v, %v, want one change", name, page, err)
		}
		wants(name, page.Changes[0].Body)
	}
}

// A number that no float64 holds stays as it was written, is larger than all others to a
// query, and can be no key.
func TestANumberOutOfRangeIsKeptAndIsNoKey(t *testing.T) {
	w, c := newContainer(t, Options{Lenient: true})
	key := map[string]string{"x-ms-documentdb-partitionkey": `["p"]`}
	made := w.do(t, "POST", docs, key, `{"id":"a","pk":"p","v":1e400}`).want(t, http.StatusCreated)
	if !bytes.HasPrefix(made.body, []byte(`{"id":"a","pk":"p","v":1e400,"_rid"`)) {
		t.Errorf("stored as %s", made.body)
	}
	if got := w.ask(t, across(), "SELECT * FROM c WHERE c.v > 1e308"); !bytes.Contains(got.want(t, http.StatusOK).body,
		[]byte(`"v":1e400`)) {
		t.Errorf("above 1e308: %s", got.body)
	}
	if _, err := c.Patch(t.Context(), feed.Key("p"), "a",
		[]feed.PatchOp{{Op: "incr", Path: "/v", Value: json.RawMessage("1")}}, ""); err == nil ||
		!strings.Contains(err.Error(), "1e400") {
		t.Errorf("increment: %v, want an error that names 1e400", err)
	}
	message := w.do(t, "POST", docs, map[string]string{"x-ms-documentdb-partitionkey": `[1e400]`},
		`{"id":"b","pk":1e400}`).refused(t, http.StatusBadRequest, "0", "BadRequest")
	if !strings.Contains(message, "1e400") {
		t.Errorf("refused with %q, want a message that names 1e400", message)
	}
}

// Documents put together at random, with few names, mean the same to the store and to
// queries as to encoding/json.
func TestRandomDocumentsMeanTheSameToEveryReader(t *testing.T) {
	_, c := newContainer(t, Options{})
	query,
		err := sql.Parse("SELECT VALUE {'pk': c.pk, 'a': c.a, 'deep': c.a.a.a, 'b': c['b'], 'all': " +
		"ObjectToArray(c.a)} FROM c")
	if err != nil {
		t.Fatal(err)
	}
	bound, err := query.Bind(nil)
	if err != nil {
		t.Fatal(err)
	}
	name := rapid.SampledFrom([]string{`"a"`, `"b"`, `"pk"`, `"\u0061"`, `"p\u006b"`, `"\u0062"`})
	scalar := rapid.SampledFrom([]string{`1`, `-0`, `1e2`, `0.50`, `"x"`, `"\u0078"`, `"\ud800"`, `true`, `null`, `""`})
	var object func(depth int) *rapid.Generator[string]
	object = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			var members []string
			for range rapid.IntRange(0, 5).Draw(t, "members") {
				value := scalar
				if depth > 0 && rapid.Bool().Draw(t, "nested") {
					value = object(depth - 1)
				}
				blank := rapid.SampledFrom([]string{"", " ", "\n"}).Draw(t, "blank")
				members = append(members, name.Draw(t, "name")+blank+":"+blank+value.Draw(t, "value"))
			}
			return "{" + strings.Join(members, ",") + "}"
		})
	}
	rapid.Check(t, func(rt *rapid.T) {
		body := []byte(`{"id":"1",` + object(3).Draw(rt, "body")[1:])
		body = bytes.Replace(body, []byte(",}"), []byte("}"), 1)
		var want map[string]any
		if err := json.Unmarshal(body, &want); err != nil {
			rt.Fatalf("%s: %v", body, err)
		}
		pk, has := want["pk"]
		key := feed.Key(feed.Undefined)
		if _, nested := pk.(map[string]any); has && !nested {
			key = feed.Key(pk)
		}
		if got, err := c.KeyOf(body); err != nil || got != key {
			rt.Fatalf("%s: the store has key %s, %v, want %s", body, got, err, key)
		}
		var row map[string]any
		if err := bound.Rows(body, func(text []byte) error { return json.Unmarshal(text, &row) }); err != nil {
			rt.Fatalf("%s: %v", body, err)
		}
		for member, value := range map[string]any{
			"pk": pk, "a": want["a"], "b": want["b"],
			"deep": at(want, "a", "a", "a"),
		} {
			if !reflect.DeepEqual(row[member], value) {
				rt.Fatalf("%s: %s is %v to a query, want %v", body, member, row[member], value)
			}
		}
		pairs, _ := row["all"].([]any)
		if members, _ := want["a"].(map[string]any); len(pairs) != len(members) {
			rt.Fatalf("%s: a has the members %v to a query, want %v", body, pairs, members)
		}
	})
}

// at follows names through objects.
func at(v any, names ...string) any {
	for _, name := range names {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}
