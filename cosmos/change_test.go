package cosmos

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// container is one with these partition key paths.
func container(paths ...string) *Container {
	c := &Container{}
	var err error
	if c.paths, err = pkey.ParsePaths(paths); err != nil {
		panic(err)
	}
	return c
}

func TestAnItemIsCutOutOfItsPage(t *testing.T) {
	for _, c := range []struct{ name, doc, id, body, key string }{
		{
			"the LSN last, as the service has it", `{"id":"a","pk":"k","_ts":7,"_lsn":5}`, "a",
			`{"id":"a","pk":"k","_ts":7}`, `["k"]`,
		},
		{
			"spaces", "{ \"id\" : \"a\" ,\n \"pk\" : 5 , \"_ts\":7 , \"_lsn\" : 5 }", "a",
			"{ \"id\" : \"a\" ,\n \"pk\" : 5 , \"_ts\":7 }", `[5]`,
		},
		{"in the middle", `{"id":"a","_ts":7,"_lsn":5,"pk":true}`, "a", `{"id":"a","_ts":7,"pk":true}`, `[true]`},
		{"first", `{"_lsn":5 , "id":"a","_ts":7}`, "a", `{ "id":"a","_ts":7}`, `[{}]`},
		{"alone", `{"_lsn":5}`, "", `{}`, `[{}]`},
		{"absent", `{"id":"a","pk":null}`, "a", `{"id":"a","pk":null}`, `[null]`},
		{
			"escapes", `{"id":"a\"b\\","p\u006b":"\u0026\u00e9","x":"}]\"","_lsn":5}`, `a"b\`,
			`{"id":"a\"b\\","p\u006b":"\u0026\u00e9","x":"}]\""}`, `["&é"]`,
		},
		{"a number in another form", `{"id":"a","pk":5.0e0}`, "a", `{"id":"a","pk":5.0e0}`, `[5]`},
		{"a key that is none", `{"id":"a","pk":{"x":1}}`, "a", `{"id":"a","pk":{"x":1}}`, `[{}]`},
	} {
		page := []byte(`{"_rid":"r","Documents":[` + c.doc + `, ` + c.doc + `],"_count":2}`)
		changes, err := container("/pk").readChanges(page, feed.LatestVersion)
		if err != nil || len(changes) != 2 {
			t.Errorf("%s: %d changes, %v", c.name, len(changes), err)
			continue
		}
		for _, ch := range changes {
			if ch.ID != c.id || string(ch.Body) != c.body || string(ch.PartitionKey) != c.key {
				t.Errorf("%s: id %q, key %s, body %s, want %q, %s, %s", c.name, ch.ID, ch.PartitionKey, ch.Body, c.id,
					c.key, c.body)
			}
		}
	}
}

// The keys of a page are kept from document to document, so each must differ from those
// before it in a way of its own.
func TestEachDocumentHasItsOwnKey(t *testing.T) {
	c := container("/a", "/b")
	page := []byte(`{"Documents":[{"a":"x","b":1},{"a":"x","b":1},{"a":"x"},{"b":1},{},{"a":{},"b":1},{"a":"x","b":1}]}`)
	changes, err := c.readChanges(page, feed.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	none := feed.Undefined
	want := []feed.PartitionKey{
		feed.Key("x", 1), feed.Key("x", 1), feed.Key("x", none), feed.Key(none, 1), feed.Key(none, none),
		feed.Key(none, 1), feed.Key("x", 1),
	}
	for i, ch := range changes {
		if ch.PartitionKey != want[i] {
			t.Errorf("document %d has key %s, want %s", i, ch.PartitionKey, want[i])
		}
	}
}

func TestKeysBelowAPathAndOfSeveralLevels(t *testing.T) {
	c := container("/tenant", `/address/"the city"`)
	page := []byte(`{"Documents":[{"id":"1","tenant":"t","address":{"x":[{}],"the city":"Ghent"}},{"id":"2","address":7}]}`)
	changes, err := c.readChanges(page, feed.LatestVersion)
	if err != nil || len(changes) != 2 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	if changes[0].PartitionKey != feed.Key("t", "Ghent") ||
		changes[1].PartitionKey != feed.Key(feed.Undefined, feed.Undefined) {
		t.Errorf("keys %s and %s", changes[0].PartitionKey, changes[1].PartitionKey)
	}
}

func TestKeysOfSeveralLevelsBelowOneMember(t *testing.T) {
	page := []byte(`{"Documents":[{"id":"1","at":{"city":"Ghent","country":"be"}}]}`)
	changes, err := container("/at/country", "/at/city").readChanges(page, feed.LatestVersion)
	if err != nil || len(changes) != 1 || changes[0].PartitionKey != feed.Key("be", "Ghent") {
		t.Errorf("%+v, %v, want both levels of the key", changes, err)
	}
}

func TestVersionsWithTheirMetadata(t *testing.T) {
	const page = `{"Documents":[
		{"current":{"id":"a","pk":"k","n":1,"_etag":"\"e1\"","_ts":100,"_lsn":7},"metadata":{"lsn":7,"crts":100,"operationType":"create","previousImageLSN":0}},
		{"metadata":{"lsn":8,"crts":101,"operationType":"Replace","previousImageLSN":7},"previous":{"id":"a","pk":"k","n":1},"current":{"id":"a","pk":"k","n":2,"_etag":"\"e2\""}},
		{"current":{},"metadata":{"lsn":9,"crts":102,"operationType":"delete","previousImageLSN":8,"timeToLiveExpired":true,"id":"a","partitionKey":{"pk":"k"}},"previous":{}},
		{"current":{"id":"b","pk":5,"_etag":"\"e3\""},"metadata":{"lsn":10,"crts":103,"operationType":"delete"},"previous":{"id":"b","pk":5}}
	]}`
	got, err := container("/pk").readChanges([]byte(page), feed.AllVersionsAndDeletes)
	if err != nil {
		t.Fatal(err)
	}
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	want := []feed.Change{
		{
			Op: feed.OpCreate, ID: "a", PartitionKey: `["k"]`, LSN: 7, Time: at(100), ETag: `"e1"`,
			Body: json.RawMessage(`{"id":"a","pk":"k","n":1,"_etag":"\"e1\"","_ts":100}`),
		},
		{
			Op: feed.OpReplace, ID: "a", PartitionKey: `["k"]`, LSN: 8, PreviousLSN: 7, Time: at(101), ETag: `"e2"`,
			Body:     json.RawMessage(`{"id":"a","pk":"k","n":2,"_etag":"\"e2\""}`),
			Previous: json.RawMessage(`{"id":"a","pk":"k","n":1}`),
		},
		{Op: feed.OpDelete, ID: "a", PartitionKey: `["k"]`, LSN: 9, PreviousLSN: 8, Time: at(102), Expired: true},
		{
			Op: feed.OpDelete, ID: "b", PartitionKey: `[5]`, LSN: 10, Time: at(103),
			Previous: json.RawMessage(`{"id":"b","pk":5}`),
		},
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func same(a, b feed.Change) bool {
	bodies := bytes.Equal(a.Body, b.Body) && bytes.Equal(a.Previous, b.Previous) && (a.Body == nil) == (b.Body == nil)
	a.Body, a.Previous, b.Body, b.Previous = nil, nil, nil, nil
	return bodies && a.Op == b.Op && a.ID == b.ID && a.PartitionKey == b.PartitionKey && a.LSN == b.LSN &&
		a.Time.Equal(b.Time) && a.ETag == b.ETag && a.PreviousLSN == b.PreviousLSN && a.Expired == b.Expired
}

func TestDeletedKeysOfSeveralLevels(t *testing.T) {
	c := container("/tenant", "/address/city")
	for _, text := range []string{
		`{"tenant":"t","address/city":"Ghent"}`, `{"/tenant":"t","/address/city":"Ghent"}`,
		`{"tenant":"t","address":{"city":"Ghent"}}`, `{"city":"Ghent","tenant":"t"}`,
	} {
		if got := c.deletedKey([]byte(text)); got != feed.Key("t", "Ghent") {
			t.Errorf("key of %s is %s", text, got)
		}
	}
}

// The name of one path may be the end of another.
func TestTheKeyOfADeleteIsThatOfWholePaths(t *testing.T) {
	for _, text := range []string{
		`{"address/city":"Ghent","city":"Oslo"}`,
		`{"address":{"city":"Ghent"},"city":"Oslo"}`,
	} {
		if got := container("/address/city", "/city").deletedKey([]byte(text)); got != feed.Key("Ghent", "Oslo") {
			t.Errorf("key of %s is %s", text, got)
		}
	}
}

func TestAPageThatIsNone(t *testing.T) {
	for _, page := range []string{
		"", "null", "[]", "{", `{"Documents":`, `{"Documents":{}}`, `{"Documents":[{]}`, `{"Documents":[{}`,
		`{"Documents":[7]}`,
		`{"Documents":[{"id":"a"]}`, `{"Documents":[{"id":"a}]}`, `{"Documents":[{"id" "a"}]}`,
		`{"Documents":[{"id":}]}`,
	} {
		for _, mode := range []feed.Mode{feed.LatestVersion, feed.AllVersionsAndDeletes} {
			if changes, err := container("/pk").readChanges([]byte(page), mode); err == nil {
				t.Errorf("%v page %s: %d changes, want an error", mode, page, len(changes))
			}
		}
	}
	if _, err := container("/pk").readChanges([]byte(`{"Documents":[{"current":{"id":"a"}}]}`),
		feed.AllVersionsAndDeletes); err == nil {
		t.Error("a version without metadata is no error")
	}
}

// FuzzPage puts any text into a page: it is an error, or a document that is JSON without
// its LSN.
func FuzzPage(f *testing.F) {
	for _, text := range []string{
		`{"id":"a","n":[1,{"x":"]}"}],"":null}`, `{"a":1,"a":2}`, `{ }`, `{"\u0061\"":"\\"}`,
		`{"a":-1.5e+7 , "b":true}`, `[`, `{"a":{}}`, `{"_lsn":1,"_lsn":2}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		page := append(append([]byte(`{"Documents":[`), text...), "]}"...)
		c := container("/pk", "/a/b")
		_, _ = c.readChanges(slices.Clone(page), feed.AllVersionsAndDeletes) // only must not panic
		changes, err := c.readChanges(slices.Clone(page), feed.LatestVersion)
		var want map[string]json.RawMessage
		if !utf8.Valid(text) || json.Unmarshal(text, &want) != nil || want == nil {
			return
		}
		if err != nil || len(changes) != 1 {
			t.Fatalf("%s: %d changes, %v", text, len(changes), err)
		}
		if !json.Valid(changes[0].Body) {
			t.Errorf("body of %s is %s", text, changes[0].Body)
		}
	})
}
