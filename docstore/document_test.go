package docstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

var sampleProps = service.System{
	Container: "dbs/AAAAAA==/colls/AAAAAAAAAAA=/",
	RID:       "AAAAAAAAAAAAAAAAAAAAAA==",
	ETag:      `"00000000-0000-0000-0000-0000000004d2"`,
	Time:      1700000000,
}

// stored is the document as a write stores it.
func (d *document) stored(sys service.System) []byte {
	return append(sys.Append(d.render(sys.Size(), false)), '}')
}

const sampleTail = `"_rid":"AAAAAAAAAAAAAAAAAAAAAA==",` +
	`"_self":"dbs/AAAAAA==/colls/AAAAAAAAAAA=/docs/AAAAAAAAAAAAAAAAAAAAAA==/",` +
	`"_etag":"\"00000000-0000-0000-0000-0000000004d2\"","_attachments":"attachments/","_ts":1700000000}`

func TestParseDocumentReadsIDKeyAndTTL(t *testing.T) {
	tenant, city := pkey.Path{"tenant"}, pkey.Path{"address", "city"}
	for _, c := range []struct {
		body  string
		paths []pkey.Path
		id    string
		key   feed.PartitionKey
		ttl   int
	}{
		{`{"id":"1","tenant":"contoso"}`, []pkey.Path{tenant}, "1", feed.Key("contoso"), 0},
		{" {\n\t\"id\" : \"1\" ,\r\n \"tenant\" : 5 } \n", []pkey.Path{tenant}, "1", feed.Key(5), 0},
		{`{"id":"1"}`, []pkey.Path{tenant}, "1", feed.Key(feed.Undefined), 0},
		{`{"id":"1","tenant":null,"ttl":-1}`, []pkey.Path{tenant}, "1", feed.Key(nil), -1},
		{`{"id":"1","tenant":true,"ttl":60}`, []pkey.Path{tenant}, "1", feed.Key(true), 60},
		{`{"id":"1","ttl":6e1}`, []pkey.Path{{"id"}}, "1", feed.Key("1"), 60},
		{`{"id":"1","ttl":2147483647}`, []pkey.Path{{"id"}}, "1", feed.Key("1"), 2147483647},
		{`{"id":"1","address":{"city":"Köln"}}`, []pkey.Path{city}, "1", feed.Key("Köln"), 0},
		{`{"id":"1","address":{"x":{"city":1}}}`, []pkey.Path{city}, "1", feed.Key(feed.Undefined), 0},
		{`{"id":"1","address":["city"]}`, []pkey.Path{city}, "1", feed.Key(feed.Undefined), 0},
		{
			`{"tenant":"a","id":"1","address":{"city":"b"}}`,
			[]pkey.Path{tenant, city, {"no"}},
			"1",
			feed.Key("a", "b", feed.Undefined),
			0,
		},
		// numbers and strings have one text each
		{`{"id":"1","tenant":1.50e1}`, []pkey.Path{tenant}, "1", feed.Key(15.0), 0},
		{`{"id":"1","tenant":-0.0}`, []pkey.Path{tenant}, "1", `[0]`, 0},
		{`{"id":"1","tenant":12345678901234567890}`, []pkey.Path{tenant}, "1", feed.Key(12345678901234567890.0), 0},
		{`{"id":"1","tenant":1e-7}`, []pkey.Path{tenant}, "1", feed.Key(1e-7), 0},
		{`{"id":"1","tenant":"\u003cb\u003e \"\\\/"}`, []pkey.Path{tenant}, "1", feed.Key(`<b> "\/`), 0},
		{`{"id":"1","tenant":"\b\f\u0001\u2028é"}`, []pkey.Path{tenant}, "1", feed.Key("\b\f\x01\u2028é"), 0},
		{`{"id":"\u00e9\ud83d\ude00"}`, []pkey.Path{{"id"}}, "é😀", feed.Key("é😀"), 0},
		// the last of several members of one name counts, however it is written
		{`{"id":"1","i\u0064":"2","tenant":{},"tenant":7}`, []pkey.Path{tenant}, "2", feed.Key(7), 0},
		{
			`{"id":"1","address":{"city":1},"address":{"zip":2}}`,
			[]pkey.Path{city},
			"1",
			feed.Key(feed.Undefined),
			0,
		},
	} {
		d, err := parseDocument([]byte(c.body), c.paths)
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
		} else if d.id != c.id || d.key != c.key || d.ttl != c.ttl {
			t.Errorf("%s: id %q, key %s, ttl %d, want %q, %s, %d", c.body, d.id, d.key, d.ttl, c.id, c.key, c.ttl)
		}
	}
}

func TestParseDocumentSaysWhatIsWrong(t *testing.T) {
	paths := []pkey.Path{{"address", "city"}}
	const wantID, wantTTL = "want a string of 1 to 1023 bytes",
		"want whole seconds from 1 to 2147483647, or -1 for ever"
	for body, want := range map[string]string{
		``:               "body is not JSON, at byte 0: unexpected end of JSON input",
		`{"id":"1"`:      "body is not JSON, at byte 9: unexpected end of JSON input",
		`{"id":"1",}`:    "body is not JSON, at byte 11: invalid character '}' looking for beginning of object key string",
		`{"id":"1"} x`:   "body is not JSON, at byte 12: invalid character 'x' after top-level value",
		"{\"id\":\"\xff": "body is not UTF-8: want JSON",
		` [1]`:           "body is the array [1]: want an object",
		`"id"`:           `body is the string "id": want an object`,
		`null`:           "body is null: want an object",
		`{}`:             "document has no id: " + wantID,
		`{"ID":"1"}`:     "document has no id: " + wantID,
		`{"id":5}`:       "id is the number 5: " + wantID,
		`{"id":null}`:    "id is null: " + wantID,
		`{"id":{"a":1}}`: `id is the object {"a":1}: ` + wantID,
		`{"id":""}`:      `id has a wrong length: id is the string "", of 0 bytes: want 1 to 1023 bytes`,

		`{"id":"1","ttl":0}`:          "ttl is the number 0: " + wantTTL,
		`{"id":"1","ttl":-2}`:         "ttl is the number -2: " + wantTTL,
		`{"id":"1","ttl":1.5}`:        "ttl is the number 1.5: " + wantTTL,
		`{"id":"1","ttl":2147483648}`: "ttl is the number 2147483648: " + wantTTL,
		`{"id":"1","ttl":1e999}`:      "ttl is the number 1e999: " + wantTTL,
		`{"id":"1","ttl":null}`:       "ttl is null: " + wantTTL,
		`{"id":"1","ttl":"60"}`:       `ttl is the string "60": ` + wantTTL,

		`{"id":"1","address":{"city":1e999}}`: "the number 1e999 is out of range: want one that a float64 holds",
	} {
		_, err := parseDocument([]byte(body), paths)
		if !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("%s: %v, want a bad request", body, err)
		} else if !strings.HasSuffix(err.Error(), "bad request: "+want) {
			t.Errorf("%s:\n got %v\nwant %s", body, err, want)
		}
	}
}

func TestParseDocumentTakesTheLimitsAndNoMore(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n-1) + strings.Repeat("]", n-1) }
	for _, c := range []struct {
		name, body string
		want       error
	}{
		{"longest id", `{"id":"` + strings.Repeat("i", maxID) + `"}`, nil},
		{"id too long", `{"id":"` + strings.Repeat("i", maxID+1) + `"}`, feed.ErrBadRequest},
		{"largest body", `{"id":"1","a":"` + strings.Repeat("a", maxDocument-17) + `"}`, nil},
		{"body too large", `{"id":"1","a":"` + strings.Repeat("a", maxDocument-16) + `"}`, ErrTooLarge},
		{"deepest body", `{"id":"1","a":` + nested(maxNesting) + `}`, nil},
		{"body too deep", `{"id":"1","a":` + nested(maxNesting+1) + `}`, feed.ErrBadRequest},
		{"body far too deep", `{"id":"1","a":` + nested(maxDocument/2-20) + `}`, feed.ErrBadRequest},
	} {
		_, err := parseDocument([]byte(c.body), nil)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err != nil && (len(err.Error()) > 250 || !errors.Is(err, feed.ErrBadRequest)) {
			t.Errorf("%s: not a short bad request: %v", c.name, err)
		}
	}
}

func TestParseDocumentIsLinearInEscapes(t *testing.T) {
	body := `{"id":"1","a":"` + strings.Repeat(`\"`, maxDocument/4) + strings.Repeat(`\\`, maxDocument/8) + `"}`
	if _, err := parseDocument([]byte(body), nil); err != nil {
		t.Error(err)
	}
}

func TestRenderKeepsTheUsersTextAndReplacesTheSystems(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"1"}`: `{"id":"1",`,
		` { "id" : "1" , "n" : [ 1.0, 12345678901234567890 ] } `: `{"id" : "1" , "n" : [ 1.0, 12345678901234567890 ],`,
		`{"_ts":1,"id":"1"}`:                          `{"id":"1",`,
		`{"id":"1","_rid":"x","_lsn":9}`:              `{"id":"1",`,
		`{"z":1, "_etag":{"a":[]}, "id":"1", "b": 2}`: `{"z":1,"id":"1", "b": 2,`,
		`{"_self":1,"_attachments":2,"id":"1","\u005fts":3,"_ts":4,"a":{"_ts":5},"_me":6}`: `{"id":"1","a":{"_ts":5},"_me":6,`,
		`{"id":"1","a":1,"a":2}`:         `{"id":"1","a":1,"a":2,`,
		`{"id":"1","\u0061":"\u00e9\/"}`: `{"id":"1","\u0061":"\u00e9\/",`,
	} {
		d, err := parseDocument([]byte(body), nil)
		if err != nil {
			t.Errorf("%s: %v", body, err)
		} else if got := string(d.stored(sampleProps)); got != want+sampleTail {
			t.Errorf("%s:\n got %s\nwant %s", body, got, want+sampleTail)
		}
	}
}

// A store that changed a body of somebody else's, or copied each of a server's, would do
// either in silence.
func TestOnlyAnOwnedBodyIsStoredInPlace(t *testing.T) {
	db, err := Open("", Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/id"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.LogicalPartition(feed.Key("1"))
	if err != nil {
		t.Fatal(err)
	}
	const text = `{"id":"1","_rid":"of another","n":1}`
	stored := func(owned bool, room int) (body, got []byte) {
		body = append(make([]byte, 0, len(text)+room), text...)
		done, err := p.Commit(t.Context(), []Write{{Write: feed.Write{Op: feed.WriteUpsert, Body: body}, Owned: owned}})
		if err != nil {
			t.Fatal(err)
		}
		if got = done.Results[0].Body; !bytes.HasPrefix(got, []byte(`{"id":"1","n":1,"_rid":`)) {
			t.Errorf("stored %s", got)
		}
		return body, got
	}
	if body, got := stored(true, service.SystemRoom); &body[0] != &got[0] {
		t.Error("an owned body with room was copied")
	}
	for _, owned := range []bool{true, false} {
		room := 0
		if !owned {
			room = service.SystemRoom
		}
		if body, _ := stored(owned, room); string(body) != text {
			t.Errorf("owned %v with room for %d bytes: the body is %s afterwards, want it untouched", owned, room, body)
		}
	}
}

func TestRenderAllocatesOnce(t *testing.T) {
	d, err := parseDocument(sampleBody(), []pkey.Path{{"tenant"}})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { d.stored(sampleProps) }); n != 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}

func TestTheKeyOfADocumentIsThatOfItsValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(
			rapid.Float64().Filter(finite).AsAny(), rapid.Int64().AsAny(), rapid.String().AsAny(), rapid.Bool().AsAny(),
			rapid.Just[any](nil),
		).Draw(t, "value")
		body, err := json.Marshal(map[string]any{"id": "1", "a": map[string]any{"b": value}})
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := value.(int64); ok {
			value = float64(n)
		}
		d, err := parseDocument(body, []pkey.Path{{"a", "b"}})
		if want := feed.Key(value); err != nil || d.key != want {
			t.Fatalf("%s: key %s, %v, want %s", body, d.key, err, want)
		}
	})
}

func finite(f float64) bool { return f-f == 0 }

func TestRenderedDocumentsReadTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkRendered(t, []byte(`{"id":"1",`+strings.TrimLeft(drawObject(t, 3), " {")))
	})
}

func FuzzDocument(f *testing.F) {
	for _, body := range []string{
		`{"id":"1","tenant":"a"}`, `{"_ts":1,"id":"1"}`, `{"id":"\u00e9","a":{"b":1.50},"a":{"b":-0}}`,
		` { "id" : "1" , "_etag" : "\"x\"" , "tenant" : [ ] } `, `{"id":"1","a":"\\\"","ttl":-1}`, `[]`, `{"":`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkRendered(t, body) })
}

// checkRendered proves that a body is refused as bad, or reads the same after render.
func checkRendered(t rapid.TB, body []byte) {
	t.Helper()
	paths := []pkey.Path{{"tenant"}, {"a", "b"}}
	d, err := parseDocument(body, paths)
	if err != nil {
		if !errors.Is(err, feed.ErrBadRequest) {
			t.Fatalf("%q: %v, want a bad request", body, err)
		}
		return
	}
	text := d.stored(sampleProps)
	again, err := parseDocument(text, paths)
	if err != nil || again.id != d.id || again.key != d.key || again.ttl != d.ttl {
		t.Fatalf("%q: renders as %s, which reads as %q, %s, %d, %v, not as %q, %s, %d",
			body, text, again.id, again.key, again.ttl, err, d.id, d.key, d.ttl)
	}
	if twice := again.stored(sampleProps); !bytes.Equal(twice, text) {
		t.Fatalf("%q: renders as %s, then as %s", body, text, twice)
	}
	owned := append(make([]byte, 0, len(body)+sampleProps.Size()+len(",")), body...)
	d, _ = parseDocument(owned, paths)
	if inPlace := append(sampleProps.Append(d.render(sampleProps.Size(), true)), '}'); !bytes.Equal(inPlace, text) {
		t.Fatalf("%q: renders in place as %s, not as %s", body, inPlace, text)
	}
	want, got := decode(body).(map[string]any), decode(text).(map[string]any)
	for _, members := range []map[string]any{want, got} {
		for _, name := range []string{"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"} {
			delete(members, name)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: renders as %s, of other members", body, text)
	}
}

// decode reads JSON and keeps the text of its numbers; nil for what is no JSON.
func decode(text []byte) (v any) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}

// drawObject draws the text of an object, with names that repeat and random white space.
func drawObject(t *rapid.T, depth int) string {
	names := []string{`"a"`, `"b"`, `"c"`, `"\u0061"`, `"_ts"`, `"tenant"`, `"~/"`}
	var items []string
	for range rapid.IntRange(1, 4).Draw(t, "members") {
		name := rapid.SampledFrom(names).Draw(t, "name")
		items = append(items, name+drawSpace(t)+":"+drawValue(t, depth-1))
	}
	return "{" + strings.Join(items, ",") + "}"
}

func drawValue(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	if depth <= 0 {
		kind = min(kind, 2)
	}
	text := ""
	switch kind {
	case 0:
		text = fmt.Sprint(rapid.IntRange(-3, 3).Draw(t, "number"))
	case 1, 2:
		text = rapid.SampledFrom([]string{`"x"`, `"\"]}\\"`, `""`, `null`, `true`, `1.0`, `[]`, `{}`, `[ ]`}).Draw(t,
			"scalar")
	case 3:
		text = drawObject(t, depth)
	case 4:
		var items []string
		for range rapid.IntRange(1, 3).Draw(t, "elements") {
			items = append(items, drawValue(t, depth-1))
		}
		text = "[" + strings.Join(items, ",") + "]"
	}
	return drawSpace(t) + text + drawSpace(t)
}

func drawSpace(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "", " ", "\n\t "}).Draw(t, "space")
}

// sampleBody is an order of 1 KB.
func sampleBody() []byte {
	b := []byte(`{"id":"order-000123","tenant":"contoso","total":129.95,"status":"shipped",` +
		`"address":{"street":"1 Long Street","city":"London","geo":[51.53,-0.12]},"note":"Übergabe an der Tür","lines":[`)
	for i := 0; len(b) < 1000; i++ {
		b = fmt.Appendf(b, `{"sku":"A-%04d","qty":%d,"price":%d.5,"gift":false},`, i, i+1, i*3)
	}
	return append(bytes.TrimSuffix(b, []byte(",")), "]}"...)
}

func BenchmarkParse(b *testing.B) {
	body, paths := sampleBody(), []pkey.Path{{"tenant"}}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseDocument(body, paths); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseAndRender(b *testing.B) {
	body, paths := sampleBody(), []pkey.Path{{"tenant"}}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		d, err := parseDocument(body, paths)
		if err != nil {
			b.Fatal(err)
		}
		d.stored(sampleProps)
	}
}

func TestABodyThatIsNotJSONOrHasNoIDIsKnownByItsError(t *testing.T) {
	for body, want := range map[string]error{`{`: ErrNotJSON, "{\"id\":\"\xff\"}": ErrNotJSON, `{}`: ErrNoID} {
		_, err := parseDocument([]byte(body), nil)
		if !errors.Is(err, want) || !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
}
