package cosmosrest

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/feed"
)

const docs = "/dbs/db/colls/c/docs"

// under is the header of a partition key with one component, and others in pairs.
func under(key string, more ...string) map[string]string {
	h := map[string]string{"x-ms-documentdb-partitionkey": `["` + key + `"]`}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

// item makes an item in the logical partition p.
func (w *world) item(t *testing.T, id, more string) answer {
	t.Helper()
	return w.do(t, "POST", docs, under("p"), fmt.Sprintf(`{"id":%q,"pk":"p"%s}`, id, more)).want(t, http.StatusCreated)
}

func TestItem(t *testing.T) {
	w, cont := newContainer(t, Options{})
	a := w.item(t, "a", `,"v":1`)
	first := a.header.Get("etag")
	if !strings.HasPrefix(string(a.body), `{"id":"a","pk":"p","v":1,"_rid":"`) || first == "" {
		t.Fatalf("created %s with ETag %s", a.body, first)
	}
	w.do(t, "POST", docs, under("p"), `{"id":"a","pk":"p"}`).refused(t, 409, "0", "Conflict")
	w.do(t, "POST", docs, under("p", "if-none-match", "*"), `{"id":"a","pk":"p"}`).refused(t, 409, "0", "Conflict")
	read := w.do(t, "GET", docs+"/a", under("p"), "").want(t, 200)
	if string(read.body) != string(a.body) || read.header.Get("etag") != first {
		t.Fatalf("read %s with ETag %s, want %s with %s", read.body, read.header.Get("etag"), a.body, first)
	}
	b := w.do(t, "PUT", docs+"/a", under("p"), `{"id":"a","pk":"p","v":2}`).want(t, 200)
	if b.header.Get("etag") == first || !strings.Contains(string(b.body), `"v":2`) {
		t.Fatalf("replaced to %s with ETag %s, which was %s before", b.body, b.header.Get("etag"), first)
	}
	w.do(t, "DELETE", docs+"/a", under("p"), "").want(t, 204)
	w.do(t, "DELETE", docs+"/a", under("p"), "").refused(t, 404, "0", "NotFound")
	w.do(t, "GET", docs+"/a", under("p"), "").refused(t, 404, "0", "NotFound")
	w.do(t, "PUT", docs+"/a", under("p"), `{"id":"a","pk":"p"}`).refused(t, 404, "0", "NotFound")
	if cont.Count() != 0 {
		t.Fatalf("%d items are left", cont.Count())
	}
}

func TestAMethodThatAnItemLacksIsAnsweredWithThoseItHas(t *testing.T) {
	w, _ := newContainer(t, Options{})
	a := w.do(t, "POST", docs+"/a", under("p"), "{}")
	a.refused(t, http.StatusMethodNotAllowed, "0", "MethodNotAllowed")
	if got := a.header.Get("Allow"); got != "GET, PUT, PATCH, DELETE" {
		t.Errorf("Allow is %q", got)
	}
}

// A length of 0 would be that of the item, which has not changed.
func TestAnAnswerThatHasNoBodyTellsNoLength(t *testing.T) {
	w, _ := newContainer(t, Options{})
	etag := w.item(t, "a", "").header.Get("etag")
	for status, a := range map[int]answer{
		http.StatusNotModified: w.do(t, "GET", docs+"/a", under("p", "if-none-match", etag), ""),
		http.StatusNoContent:   w.do(t, "DELETE", docs+"/a", under("p"), ""),
	} {
		if length := a.want(t, status).header.Get("content-length"); length != "" {
			t.Errorf("status %d comes with the length %s", status, length)
		}
	}
}

func TestItemHeaders(t *testing.T) {
	w, cont := newContainer(t, Options{})
	a := w.item(t, "a", "")
	w.item(t, "b", "")
	for name, want := range map[string]string{
		"x-ms-session-token": "0:-1#1", "lsn": "1", "x-ms-content-path": cont.RID(),
		"x-ms-alt-content-path": "dbs/db/colls/c",
		"content-type":          "application/json", "x-ms-request-charge": "5.50",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if got := w.do(t, "GET", docs+"/a", under("p"), "").want(t, 200).header.Get("x-ms-session-token"); got != "0:-1#2" {
		t.Errorf("session token of a read is %q, want that of the partition", got)
	}
	lost := w.do(t, "GET", docs+"/x", under("p"), "").want(t, 404)
	if lost.header.Get("x-ms-session-token") != "0:-1#2" || lost.header.Get("x-ms-request-charge") != "1.00" {
		t.Errorf("a read of nothing has the headers %v", lost.header)
	}
}

func TestUpsert(t *testing.T) {
	w, _ := newContainer(t, Options{})
	body := `{"id":"a","pk":"p"}`
	upsert := func(more ...string) answer {
		return w.do(t, "POST", docs, under("p", append(more, "x-ms-documentdb-is-upsert", "True")...), body)
	}
	first := upsert("if-match", `"none"`).want(t, 201).header.Get("etag") // as the service has it
	second := upsert("if-match", first).want(t, 200).header.Get("etag")
	upsert("if-match", first).refused(t, 412, "0", "PreconditionFailed")
	upsert("if-none-match", "*").refused(t, 412, "0", "PreconditionFailed")
	upsert("if-none-match", second).refused(t, 412, "0", "PreconditionFailed")
	upsert("if-none-match", first).want(t, 200)
	upsert("if-match", "*").want(t, 200)
	upsert().want(t, 200)
	w.do(t, "DELETE", docs+"/a", under("p"), "").want(t, 204)
	upsert("if-none-match", "*").want(t, 201)
}

func TestItemConditions(t *testing.T) {
	w, _ := newContainer(t, Options{})
	etag := w.item(t, "a", `,"v":"`+strings.Repeat("x", 2000)+`"`).header.Get("etag")
	bare, body := strings.Trim(etag, `"`), `{"id":"a","pk":"p"}`
	for _, c := range []struct {
		method, name, value string
		status              int
	}{
		{"GET", "if-none-match", etag, 304},
		{"GET", "if-none-match", bare, 304},
		{"GET", "if-none-match", "*", 304},
		{"GET", "if-none-match", `"x"`, 200},
		{"GET", "if-match", etag, 200},
		{"GET", "if-match", `"x"`, 412},
		{"PUT", "if-match", `"x"`, 412},
		{"PATCH", "if-match", `"x"`, 412},
		{"DELETE", "if-match", `"x"`, 412},
		{"DELETE", "if-match", bare, 204},
	} {
		text := map[string]string{"PUT": body, "PATCH": `[{"op":"set","path":"/v","value":1}]`}[c.method]
		a := w.do(t, c.method, docs+"/a", under("p", c.name, c.value), text)
		if c.status == 412 {
			a.refused(t, 412, "0", "PreconditionFailed")
		}
		if a.want(t, c.status); c.status == 304 && (a.header.Get("etag") != etag || len(a.body) > 0) {
			t.Errorf("304 has the ETag %s and the body %q", a.header.Get("etag"), a.body)
		}
		if want := map[int]string{200: "3.00", 304: "1.00"}[c.status]; c.method == "GET" && want != "" &&
			a.header.Get("x-ms-request-charge") != want {
			t.Errorf("status %d costs %s, want %s", c.status, a.header.Get("x-ms-request-charge"), want)
		}
	}
	etag = w.item(t, "a", "").header.Get("etag")
	w.do(t, "PUT", docs+"/a", under("p", "if-match", etag), body).want(t, 200)
	w.do(t, "PUT", docs+"/a", under("p", "if-match", "*"), body).want(t, 200)
}

func TestMinimal(t *testing.T) {
	w, _ := newContainer(t, Options{})
	h := func(more ...string) map[string]string { return under("p", append(more, "prefer", "return=minimal")...) }
	body := `{"id":"a","pk":"p"}`
	for _, a := range []answer{
		w.do(t, "POST", docs, h(), body).want(t, 201),
		w.do(t, "POST", docs, h("x-ms-documentdb-is-upsert", "true"), body).want(t, 200),
		w.do(t, "PUT", docs+"/a", h(), body).want(t, 200),
		w.do(t, "PATCH", docs+"/a", h(), `[{"op":"set","path":"/v","value":1}]`).want(t, 200),
	} {
		if len(a.body) != 0 || a.header.Get("etag") == "" || a.header.Get("content-length") != "0" {
			t.Errorf("%s answered %q with %v, want an ETag and no body", a.request, a.body, a.header)
		}
	}
	if a := w.do(t, "GET", docs+"/a", h(), "").want(t, 200); len(a.body) == 0 {
		t.Error("a read has no body")
	}
	w.do(t, "DELETE", docs+"/a", h(), "").want(t, 204)
}

func TestItemRefused(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", "")
	big := `{"id":"b","pk":"p","v":"` + strings.Repeat("x", wire.MaxItem) + `"}`
	for _, c := range []struct {
		method, path, key, body string
		status                  int
		sub, code, says         string
	}{
		{"POST", docs, `["q"]`, `{"id":"b","pk":"p"}`, 400, "1001", "BadRequest", `["q"]`},
		{"POST", docs, ``, `{"id":"b","pk":"p"}`, 400, "1001", "BadRequest", "x-ms-documentdb-partitionkey"},
		{"POST", docs, `["p","q"]`, `{"id":"b","pk":"p"}`, 400, "1001", "BadRequest", "2 components"},
		{"POST", docs, `[]`, `{"id":"b","pk":"p"}`, 400, "1001", "BadRequest", "0 components"},
		{"POST", docs, `p`, `{"id":"b","pk":"p"}`, 400, "0", "BadRequest", "partition key is"},
		{"POST", docs, `["p"]`, `{"pk":"p"}`, 400, "0", "BadRequest", "no id"},
		{"POST", docs, `["p"]`, `{"id":7,"pk":"p"}`, 400, "0", "BadRequest", "number 7"},
		{"POST", docs, `["p"]`, ``, 400, "0", "BadRequest", "not JSON"},
		{"POST", docs, `["p"]`, `[]`, 400, "0", "BadRequest", "want an item"},
		{"POST", docs, `["p"]`, `{"id":"b","pk":"p","ttl":0}`, 400, "0", "BadRequest", "number 0"},
		{"POST", docs, `["p"]`, big, 413, "0", "RequestEntityTooLarge", "too large"},
		{"PUT", docs + "/a", `["p"]`, big, 413, "0", "RequestEntityTooLarge", "too large"},
		{"PUT", docs + "/a", `["p"]`, `{"id":"a","pk":"q"}`, 400, "1001", "BadRequest", `["q"]`},
		{
			"PUT", docs + "/a", ``, `{"id":"a","pk":"p"}`, 400, "1001", "BadRequest",
			"PartitionKey value must be supplied",
		},
		{"GET", docs + "/a", ``, ``, 400, "1001", "BadRequest", "PartitionKey value must be supplied"},
		{"GET", docs + "/a", `["p"`, ``, 400, "0", "BadRequest", "partition key"},
		{"DELETE", docs + "/a", ``, ``, 400, "1001", "BadRequest", "PartitionKey value must be supplied"},
		{"GET", "/dbs/db/colls/x/docs/a", `["p"]`, ``, 404, "0", "NotFound", "Resource Not Found"},
	} {
		says := w.do(t, c.method, c.path, map[string]string{"x-ms-documentdb-partitionkey": c.key}, c.body).refused(t,
			c.status, c.sub, c.code)
		if !strings.Contains(strings.ReplaceAll(says, `\`, ""), c.says) {
			t.Errorf("%s %s with key %s and body %.40s: %s, want %q in it", c.method, c.path, c.key, c.body, says,
				c.says)
		}
	}
}

func TestUniqueKeyConflict(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db",
		`{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/mail"]}]}}`, nil)
	w.item(t, "a", `,"mail":"x"`)
	w.do(t, "POST", docs, under("p"), `{"id":"b","pk":"p","mail":"x"}`).refused(t, 409, "0", "Conflict")
}

func TestKeyFromBody(t *testing.T) {
	w, cont := newContainer(t, Options{Lenient: true})
	w.do(t, "POST", docs, nil, `{"id":"a","pk":"p"}`).want(t, 201)
	w.do(t, "POST", docs, nil, `{"id":"a"`).refused(t, 400, "0", "BadRequest")
	w.do(t, "PUT", docs+"/a", nil, `{"id":"a","pk":"p","v":2}`).want(t, 200)
	if it, err := cont.Item(t.Context(), feed.Key("p"), "a"); err != nil ||
		!strings.Contains(string(it.Body), `"v":2`) {
		t.Fatalf("item is %s, %v", it.Body, err)
	}
}

func TestTriggers(t *testing.T) {
	w, cont := newContainer(t, Options{})
	for _, name := range []string{"x-ms-documentdb-pre-trigger-include", "x-ms-documentdb-post-trigger-include"} {
		w.do(t, "POST", docs, under("p", name, "t1"), `{"id":"a","pk":"p"}`).refused(t, 400, "0", "BadRequest")
	}
	if cont.Count() != 0 {
		t.Errorf("%d items were created", cont.Count())
	}
	w, _ = newContainer(t, Options{Lenient: true})
	w.do(t, "POST", docs, under("p", "x-ms-documentdb-pre-trigger-include", "t1"), `{"id":"a","pk":"p"}`).want(t, 201)
}

// A container with an offer of 400 request units a second has a second's worth of them.
func TestItemsThrottled(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`,
		map[string]string{"x-ms-offer-throughput": "400"})
	big := strings.Repeat("x", 200<<10)
	w.do(t, "POST", docs, under("p"), `{"id":"a","pk":"p","v":"`+big+`"}`).want(t, 201) // 1,100 request units
	one := `{"operationType":"Create","resourceBody":{"id":"b","pk":"p"}}`
	for _, a := range []answer{
		w.do(t, "GET", docs+"/a", under("p"), ""),
		w.do(t, "POST", docs, under("p"), `{"id":"b","pk":"p"}`),
		w.do(t, "PUT", docs+"/a", under("p"), `{"id":"a","pk":"p"}`),
		w.do(t, "PATCH", docs+"/a", under("p"), `[{"op":"set","path":"/v","value":1}]`),
		w.do(t, "DELETE", docs+"/a", under("p"), ""),
		w.send(t, "["+one+"]"),
		w.bulk(t, `[{"operationType":"Read","id":"a","partitionKey":"[\"p\"]"}]`),
	} {
		a.refused(t, 429, "3200", "TooManyRequests")
		if a.header.Get("x-ms-retry-after-ms") == "" {
			t.Errorf("%s: no header x-ms-retry-after-ms", a.request)
		}
	}
}

func TestHierarchicalKey(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2}}`, nil)
	full := map[string]string{"x-ms-documentdb-partitionkey": `["x", 5]`}
	w.do(t, "POST", docs, full, `{"id":"i","a":"x","b":5}`).want(t, 201)
	w.do(t, "GET", docs+"/i", full, "").want(t, 200)
	for _, key := range []string{`["x"]`, `["x",5,6]`} {
		h := map[string]string{"x-ms-documentdb-partitionkey": key}
		w.do(t, "GET", docs+"/i", h, "").refused(t, 400, "1001", "BadRequest")
		w.do(t, "DELETE", docs+"/i", h, "").refused(t, 400, "1001", "BadRequest")
		w.do(t, "POST", docs, h, `{"id":"j","a":"x","b":5}`).refused(t, 400, "1001", "BadRequest")
	}
}

// The ids of the emulator's own suite, and others.
var strangeIDs = map[string]int{ // status of a read
	"Test": 200, "This is a test": 200, " Test": 200, "Disallowed?Chars": 200, "WithUnicode鱀": 200,
	"WithAllowedSpecial,=.:~+-@()^${}[]!_Chars": 200, "BQE1D3Pd+G4N4bz-U9TKa=": 200, `"quoted"`: 200,
	"Test ": 401, "Test  ": 401, "Percent%20": 401, "Percent%E9": 401, "a/b": 401, `a\b`: 401, "a#b": 401,
	"a\rb": 400, "a\tb": 400, "a\nb": 400,
}

func TestStrangeIDs(t *testing.T) {
	for name, o := range map[string]Options{"gateway": {}, "dedicated": {Dedicated: true}, "lenient": {Lenient: true}} {
		w, _ := newContainer(t, o)
		for id, status := range strangeIDs {
			if name != "gateway" {
				status = 200
			}
			path, body := docs+"/"+url.PathEscape(id), fmt.Sprintf(`{"id":%q,"pk":"p"}`, id)
			w.do(t, "POST", docs, under("p"), body).want(t, 201)
			w.do(t, "GET", path, under("p"), "").want(t, status)
			w.do(t, "PUT", path, under("p"), body).want(t, status)
			w.do(t, "DELETE", path, under("p"), "").want(t, map[int]int{200: 204, 400: 400, 401: 401}[status])
		}
	}
}

func TestItemByResourceID(t *testing.T) {
	w, cont := newContainer(t, Options{})
	body := w.item(t, "a", `,"_x":{"_rid":"no"}`).object(t)
	w.item(t, "b", "")
	path := "/" + strings.TrimSuffix(body["_self"].(string), "/")
	h := maps.Clone(under("p"))
	read := w.do(t, "GET", path, h, "").want(t, 200).object(t)
	if read["id"] != "a" {
		t.Fatalf("%s is %v, want item a", path, read)
	}
	w.do(t, "PUT", path, h, `{"id":"a","pk":"p","v":2}`).want(t, 200)
	w.do(t, "GET", path[:len(path)-4]+"AAA=", h, "").refused(t, 404, "0", "NotFound")
	w.do(t, "GET", path, under("q"), "").refused(t, 404, "0", "NotFound")
	w.do(t, "DELETE", path, h, "").want(t, 204)
	if cont.Count() != 1 {
		t.Fatalf("%d items are left, want b", cont.Count())
	}
}

func TestSessions(t *testing.T) {
	w, cont := newContainer(t, Options{})
	w.item(t, "a", "")
	w.item(t, "b", "") // LSN 2
	made, err := cont.Split(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	own, other := made[0].ID, made[1].ID
	if place, err := cont.Locate(t.Context(), feed.Key("p")); err != nil {
		t.Fatal(err)
	} else if cont.PartitionAt(place).ID != own {
		own, other = other, own
	}
	for token, status := range map[string]int{
		own + ":-1#2": 200, own + ":-1#3": 404, own + ":2": 200, own + ":3": 404, own + ":-1#2#1=9#2=9": 200,
		"0:-1#2": 200, "0:-1#3": 404, other + ":-1#99": 200, "77:-1#99": 200,
		"0:-1#2," + own + ":-1#2": 200, "0:-1#1, " + own + ":-1#3": 404,
		"x": 400, own + ":": 400, own + ":-1#": 400, own + ":-1#x": 400, ":-1#1": 400, own + ":x#1": 400, ",": 400,
	} {
		a := w.do(t, "GET", docs+"/a", under("p", "x-ms-session-token", token), "")
		switch status {
		case 404:
			a.refused(t, 404, "1002", "NotFound")
		case 400:
			a.refused(t, 400, "0", "BadRequest")
		}
		if a.status != status {
			t.Errorf("with session token %s: status %d, want %d", token, a.status, status)
		}
	}
	w.do(t, "PUT", docs+"/a", under("p", "x-ms-session-token", own+":-1#99"), `{"id":"a","pk":"p"}`).want(t, 200)
}

func TestConsistency(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", "")
	for _, level := range []string{"Session", "ConsistentPrefix", "Eventual", "session"} {
		w.do(t, "GET", docs+"/a", under("p", "x-ms-consistency-level", level), "").want(t, 200)
	}
	for _, level := range []string{"Strong", "boundedstaleness"} {
		w.do(t, "GET", docs+"/a", under("p", "x-ms-consistency-level", level), "").refused(t, 400, "0", "BadRequest")
		// a client learns the level here
		w.do(t, "GET", "/", map[string]string{"x-ms-consistency-level": level}, "").want(t, 200)
		for _, o := range []Options{{Lenient: true}, {Consistency: "Strong"}} {
			w, _ := newContainer(t, o)
			w.item(t, "a", "")
			w.do(t, "GET", docs+"/a", under("p", "x-ms-consistency-level", level), "").want(t, 200)
		}
	}
	w.do(t, "GET", docs+"/a", under("p", "x-ms-consistency-level", "Weak"), "").refused(t, 400, "0", "BadRequest")
}

func TestPatch(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", `,"v":1,"tags":["x"],"old":true,"from":7`)
	patch := func(body string) answer { return w.do(t, "PATCH", docs+"/a", under("p"), body) }
	a := patch(`[{"op":"add","path":"/tags/-","value":"y"},{"op":"set","path":"/s","value":{"t":1}},{"op":"replace","path":"/v","value":2},
		{"op":"remove","path":"/old"},{"op":"incr","path":"/v","value":3},{"op":"move","from":"/from","path":"/to"},{"op":"set","path":"/none"}]`).want(t, 200)
	if !strings.HasPrefix(string(a.body),
		`{"id":"a","pk":"p","v":5,"tags":["x","y"],"_rid":`) ||
		!strings.Contains(string(a.body), `"_attachments":"attachments/","s":{"t":1},"to":7,"none":null,"_ts":`) {
		t.Fatalf("patched to %s", a.body)
	}
	if a.header.Get("x-ms-request-charge") != "6.50" {
		t.Errorf("charge is %s", a.header.Get("x-ms-request-charge"))
	}
	patch(`{"condition":"from c where c.v = 5","operations":[{"op":"incr","path":"/v","value":1}]}`).want(t, 200)
	patch(`{"condition":"from c where c.v = 5","operations":[{"op":"incr","path":"/v","value":1}]}`).refused(t, 412,
		"0", "PreconditionFailed")
	one := `{"op":"incr","path":"/v","value":1}`
	for body, says := range map[string]string{
		`{"condition":"from c where","operations":[` + one + `]}`:          "condition",
		`{"condition":"from c where c.v = @p","operations":[` + one + `]}`: "@p",
		`{"operations":[]}`: "0 operations",
		`[` + strings.Repeat(one+",", wire.MaxPatchOps) + one + `]`: "11 operations",
		``:                                       "no patch",
		`7`:                                      "no patch",
		`{"a":`:                                  "no patch",
		`{"id":"a"}`:                             "0 operations",
		`[{"op":"grow","path":"/v"}]`:            "grow",
		`[{"op":"set","path":"v","value":1}]`:    "JSON pointer",
		`[{"op":"set","path":"/pk","value":1}]`:  "partition key",
		`[{"op":"set","path":"/id","value":1}]`:  "id cannot",
		`[{"op":"incr","path":"/v"}]`:            "want a number",
		`[{"op":"remove","path":"/nothing"}]`:    "nothing is at",
		`[{"op":"replace","path":"/nothing"}]`:   "nothing is at",
		`[{"op":"set","path":"/_ts","value":1}]`: "_ts cannot",
	} {
		if got := patch(body).refused(t, 400, "0", "BadRequest"); !strings.Contains(got, says) {
			t.Errorf("patch %s: %s, want %q in it", body, got, says)
		}
	}
	w.do(t, "PATCH", docs+"/b", under("p"), `[`+one+`]`).refused(t, 404, "0", "NotFound")
}

// Seven of the .NET SDK's tests rename an item.
func TestAReplaceWithAnotherIDRenamesTheItem(t *testing.T) {
	w, cont := newContainer(t, Options{})
	w.item(t, "a", `,"v":1`)
	w.item(t, "taken", "")
	etag := w.do(t, "GET", docs+"/a", under("p"), "").want(t, 200).header.Get("etag")
	w.do(t, "PUT", docs+"/a", under("p"), `{"id":"taken","pk":"p"}`).refused(t, 409, "0", "Conflict")
	w.do(t, "PUT", docs+"/a", under("p", "If-Match", `"other"`), `{"id":"b","pk":"p"}`).refused(t, 412, "0",
		"PreconditionFailed")
	w.do(t, "PUT", docs+"/none", under("p"), `{"id":"b","pk":"p"}`).refused(t, 404, "0", "NotFound")
	if cont.Head() != 2 {
		t.Fatalf("something was written: the newest LSN is %d", cont.Head())
	}
	renamed := w.do(t, "PUT", docs+"/a", under("p", "If-Match", etag), `{"id":"b","pk":"p","v":2}`).want(t, 200)
	if o := renamed.object(t); o["id"] != "b" || o["v"] != 2.0 || renamed.header.Get("etag") != o["_etag"] ||
		renamed.header.Get("lsn") != "3" {
		t.Errorf("renamed: %s", renamed.body)
	}
	w.do(t, "GET", docs+"/a", under("p"), "").refused(t, 404, "0", "NotFound")
	w.do(t, "GET", docs+"/b", under("p"), "").want(t, 200)
	if n := cont.Count(); n != 2 {
		t.Errorf("there are %d items, want 2", n)
	}
}

// Programs search for the sentence.
func TestAnIDOfAWrongLengthIsRefusedInTheServicesWords(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for _, id := range []string{"", strings.Repeat("i", 1024)} {
		message := w.do(t, "POST", docs, under("p"), `{"id":"`+id+`","pk":"p"}`).refused(t, 400, "0", "BadRequest")
		if !strings.Contains(message, "Ensure to provide a unique non-empty string less than '1024' characters.") {
			t.Errorf("an id of %d bytes: %s", len(id), message)
		}
	}
	w.do(t, "POST", docs, under("p"), `{"id":"`+strings.Repeat("i", 1023)+`","pk":"p"}`).want(t, 201)
}
