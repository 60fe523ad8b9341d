package cosmosrest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// batchResult is one of a batch, as clients read it.
type batchResult struct {
	StatusCode             int
	SubStatusCode          int
	RequestCharge          float64
	ETag                   string
	RetryAfterMilliseconds int
	Message                string
	ResourceBody           json.RawMessage
}

// send sends operations as a batch: atomic, unless headers say otherwise.
func (w *world) send(t *testing.T, ops string, more ...string) answer {
	t.Helper()
	h := under("p", "x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic", "True")
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return w.do(t, "POST", docs, h, ops)
}

// bulk sends operations that do not depend on each other.
func (w *world) bulk(t *testing.T, ops string, more ...string) answer {
	t.Helper()
	return w.send(t, ops, append([]string{
		"x-ms-cosmos-batch-atomic", "False", "x-ms-cosmos-batch-continue-on-error", "True",
		"x-ms-documentdb-partitionkey", "",
	}, more...)...)
}

// results are those of an answer, and their statuses.
func (a answer) results(t *testing.T, status int) (all []batchResult, statuses string) {
	t.Helper()
	a.want(t, status).into(t, &all)
	for i, r := range all {
		statuses += fmt.Sprintf("%d ", r.StatusCode)
		if r.RequestCharge <= 0 && r.StatusCode != http.StatusFailedDependency {
			t.Errorf("operation %d has the charge %v", i, r.RequestCharge)
		}
	}
	return all, strings.TrimSpace(statuses)
}

func TestBatch(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "old", `,"v":1`)
	etag := w.item(t, "gone", "").header.Get("etag")
	a := w.send(t, `[
		{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}},
		{"operationType":"Upsert","resourceBody":{"id":"b","pk":"p"}},
		{"operationType":"Upsert","resourceBody":{"id":"b","pk":"p","v":2}},
		{"operationType":"Upsert","ifMatch":"\"x\"","resourceBody":{"id":"c","pk":"p"}},
		{"operationType":"Replace","id":"a","resourceBody":{"id":"a","pk":"p","v":3}},
		{"operationType":"Patch","id":"old","resourceBody":{"condition":"from c where c.v = 1","operations":[{"op":"incr","path":"/v","value":1}]}},
		{"operationType":"Patch","id":"old","resourceBody":[{"op":"incr","path":"/v","value":1}]},
		{"operationType":"Read","id":"old"},
		{"operationType":"Delete","id":"gone","ifMatch":`+string(rawjson.AppendString(nil, etag))+`}]`)
	all, statuses := a.results(t, 200)
	if statuses != "201 201 200 201 200 200 200 200 204" {
		t.Fatalf("statuses are %s", statuses)
	}
	for i, r := range all[:8] {
		if r.ETag == "" || len(r.ResourceBody) == 0 {
			t.Errorf("operation %d has the ETag %q and the body %s", i, r.ETag, r.ResourceBody)
		}
	}
	if last := all[8]; last.ETag != "" || len(last.ResourceBody) > 0 {
		t.Errorf("the delete has the ETag %q and the body %s", last.ETag, last.ResourceBody)
	}
	if !strings.Contains(string(all[7].ResourceBody), `"v":3`) {
		t.Errorf("the read found %s, want what was patched before it", all[7].ResourceBody)
	}
	if got := a.header.Get("x-ms-session-token"); got != "0:-1#3" {
		t.Errorf("session token is %s, want one LSN for the batch", got)
	}
	if got := a.header.Get("x-ms-request-charge"); got != "47.00" { // 8 writes, 2 patches among them, and a read
		t.Errorf("charge is %s", got)
	}
}

func TestBatchMinimal(t *testing.T) {
	w, _ := newContainer(t, Options{})
	all,
		_ := w.send(t,
		`[{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}},{"operationType":"Read","id":"a"}]`,
		"prefer", "return=minimal").results(t, 200)
	if len(all[0].ResourceBody) > 0 || all[0].ETag == "" || len(all[1].ResourceBody) == 0 {
		t.Fatalf("results are %+v, want only the body that was read", all)
	}
}

func TestEachOperationOfABatchSaysWhetherItWantsItsItem(t *testing.T) {
	w, _ := newContainer(t, Options{})
	all, _ := w.send(t, `[
		{"operationType":"Create","minimalReturnPreference":true,"resourceBody":{"id":"a","pk":"p"}},
		{"operationType":"Create","minimalReturnPreference":false,"resourceBody":{"id":"b","pk":"p"}}]`).results(t, 200)
	if len(all[0].ResourceBody) > 0 || len(all[1].ResourceBody) == 0 {
		t.Errorf("results are %+v, want only the body of the second", all)
	}
}

func TestBatchFails(t *testing.T) {
	w, cont := newContainer(t, Options{})
	w.item(t, "a", `,"v":1`)
	for name, c := range map[string]struct {
		op     string
		status int
		sub    int
	}{
		"conflict": {`{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}}`, 409, 0},
		"missing":  {`{"operationType":"Replace","id":"x","resourceBody":{"id":"x","pk":"p"}}`, 404, 0},
		"read":     {`{"operationType":"Read","id":"x"}`, 404, 0},
		"upsert":   {`{"operationType":"Upsert","ifMatch":"\"x\"","resourceBody":{"id":"a","pk":"p"}}`, 412, 0},
		"replace": {
			`{"operationType":"Replace","id":"a","ifMatch":"\"x\"","resourceBody":{"id":"a","pk":"p"}}`, 412,
			0,
		},
		"etag":      {`{"operationType":"Delete","id":"a","ifMatch":"\"x\""}`, 412, 0},
		"condition": {`{"operationType":"Patch","id":"a","resourceBody":{"condition":"from c where c.v = 2","operations":[{"op":"remove","path":"/v"}]}}`, 412, 0},
		"key":       {`{"operationType":"Create","resourceBody":{"id":"n","pk":"q"}}`, 400, 1001},
		"id":        {`{"operationType":"Create","resourceBody":{"pk":"p"}}`, 400, 0},
		"other id":  {`{"operationType":"Replace","id":"a","resourceBody":{"id":"new","pk":"p"}}`, 409, 0},
		"path":      {`{"operationType":"Patch","id":"a","resourceBody":[{"op":"remove","path":"/x"}]}`, 400, 0},
	} {
		all, statuses := w.send(t, `[{"operationType":"Create","resourceBody":{"id":"new","pk":"p"}},`+c.op+`,
			{"operationType":"Delete","id":"a"}]`).results(t, 207)
		if want := fmt.Sprintf("424 %d 424", c.status); statuses != want || all[1].SubStatusCode != c.sub ||
			all[1].Message == "" {
			t.Errorf("%s: statuses %s, sub-status %d, message %q, want %s", name, statuses, all[1].SubStatusCode,
				all[1].Message, want)
		}
	}
	if cont.Head() != 1 {
		t.Errorf("the head is %d: something was applied", cont.Head())
	}
}

func TestBatchRefused(t *testing.T) {
	w, cont := newContainer(t, Options{})
	one := `{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}}`
	for ops, says := range map[string]string{
		`[]`: "no operations", ``: "not JSON", `[{}`: "not JSON", `{}`: "no operations", "\x82\x01": "not JSON",
		"\x81\x01": "no HybridRow", `[7]`: "operationType is missing",
		`[` + strings.Repeat(one+",", wire.MaxBatchOps) + one +
			`]`: "more operations than what is supported",
		`[` + one +
			`,{"operationType":"Grow","id":"a"}]`: `operation 1 of the batch: operationType is "Grow"`,
		`[` + one + `,{"operationType":"Delete"}]`: "operation 1 of the batch: id",
		`[` + one +
			`,{"operationType":"Create"}]`: "operation 1 of the batch: resourceBody",
		`[` + one +
			`,{"operationType":"Create","resourceBody":null}]`: "operation 1 of the batch: resourceBody",
		`[` + one +
			`,{"operationType":"Replace","id":"a"}]`: "operation 1 of the batch: resourceBody",
		`[` + one +
			`,{"operationType":"Patch","id":"a","resourceBody":{}}]`: "operation 1 of the batch: patch has 0",
		`[` + one +
			`,{"operationType":"Patch","id":"a","resourceBody":{"a":1}},{}]`: "operation 1 of the batch: patch has 0",
		`[` + one + `,` + one + `,{}]`: "operation 2 of the batch: operationType is missing",
	} {
		if got := strings.ReplaceAll(w.send(t, ops).refused(t, 400, "0", "BadRequest"), `\`, ""); !strings.Contains(got,
			says) {
			t.Errorf("batch %.80s: %s, want %q in it", ops, got, says)
		}
	}
	w.send(t, `[`+one+`]`, "x-ms-documentdb-partitionkey", "").refused(t, 400, "0", "BadRequest")
	w.send(t, `[`+one+`]`, "x-ms-documentdb-partitionkey", `["p","q"]`).refused(t, 400, "1001", "BadRequest")
	w.send(t, `[{"operationType":"Read","id":"a"}]`, "x-ms-session-token", "0:-1#9").refused(t, 404, "1002", "NotFound")
	half := `{"operationType":"Create","resourceBody":{"id":"%s","pk":"p","v":"` + strings.Repeat("x", wire.MaxItem/2) +
		`"}}`
	w.send(t, `[`+fmt.Sprintf(half, "a")+`,`+fmt.Sprintf(half, "b")+`]`).refused(t, 413, "0", "RequestEntityTooLarge")
	w.send(t, `[`+fmt.Sprintf(half, "a")+`,`+strings.Repeat(" ", wire.MaxItem)+`]`).refused(t, 413, "0",
		"RequestEntityTooLarge")
	if cont.Head() != 0 {
		t.Errorf("the head is %d: something was applied", cont.Head())
	}
}

func TestBulk(t *testing.T) {
	w, cont := newContainer(t, Options{})
	a := w.bulk(t, `[
		{"operationType":"Create","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a"}},
		{"operationType":"Create","partitionKey":"[\"b\"]","resourceBody":{"id":"1","pk":"b"}},
		{"operationType":"Create","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a"}},
		{"operationType":"Upsert","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a","v":1}},
		{"operationType":"Patch","partitionKey":"[\"a\"]","id":"1","resourceBody":{"operations":[{"op":"incr","path":"/v","value":4}]}},
		{"operationType":"Read","partitionKey":"[\"a\"]","id":"1"},
		{"operationType":"Read","partitionKey":"[\"c\"]","id":"1"},
		{"operationType":"Replace","partitionKey":"[{}]","id":"1","resourceBody":{"id":"1"}},
		{"operationType":"Delete","partitionKey":"[\"b\"]","id":"1"},
		{"operationType":"Create","partitionKey":"[\"b\"]","resourceBody":{"id":"1","pk":"d"}}]`, "x-ms-documentdb-partitionkeyrangeid", "0")
	all, statuses := a.results(t, 207)
	if statuses != "201 201 409 200 200 200 404 404 204 400" {
		t.Fatalf("statuses are %s: %s", statuses, a.body)
	}
	if !strings.Contains(string(all[5].ResourceBody), `"v":5`) || all[9].SubStatusCode != 1001 {
		t.Errorf("results are %s", a.body)
	}
	if got, want := a.header.Get("x-ms-session-token"), fmt.Sprintf("0:-1#%d", cont.Head()); got != want {
		t.Errorf("session token is %q, want %q", got, want)
	}
	_, statuses = w.bulk(t, `[{"operationType":"Delete","partitionKey":"[\"a\"]","id":"1"}]`).results(t, 200)
	if statuses != "204" {
		t.Errorf("statuses are %s", statuses)
	}
}

func TestBulkStops(t *testing.T) {
	w, cont := newContainer(t, Options{})
	create := `{"operationType":"Create","partitionKey":"[\"%s\"]","resourceBody":{"id":"1","pk":"%[1]s"}}`
	ops := `[` + fmt.Sprintf(create, "a") + `,` + fmt.Sprintf(create, "a") + `,` + fmt.Sprintf(create, "b") + `]`
	_, statuses := w.bulk(t, ops, "x-ms-cosmos-batch-continue-on-error", "False").results(t, 207)
	if statuses != "201 409 424" || cont.Count() != 1 {
		t.Fatalf("statuses are %s, with %d items", statuses, cont.Count())
	}
}

func TestABulkGoesOnAfterAnItemThatItsClientHas(t *testing.T) {
	w, _ := newContainer(t, Options{})
	etag := w.item(t, "a", "").header.Get("etag")
	_, statuses := w.bulk(t, `[
		{"operationType":"Read","partitionKey":"[\"p\"]","id":"a","ifNoneMatch":`+string(rawjson.AppendString(nil, etag))+`},
		{"operationType":"Create","partitionKey":"[\"p\"]","resourceBody":{"id":"b","pk":"p"}}]`,
		"x-ms-cosmos-batch-continue-on-error", "False").results(t, 207)
	if statuses != "304 201" {
		t.Errorf("statuses are %s, want 304 201", statuses)
	}
}

func TestBulkRanges(t *testing.T) {
	w, cont := newContainer(t, Options{})
	made, err := cont.Split(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	var ops []string
	at := map[string]string{} // partition to a key in it
	for i := range 20 {
		key := fmt.Sprint("k", i)
		place, err := cont.Locate(t.Context(), feed.Key(key))
		if err != nil {
			t.Fatal(err)
		}
		at[cont.PartitionAt(place).ID] = key
		ops = append(ops,
			fmt.Sprintf(`{"operationType":"Create","partitionKey":"[\"%s\"]","resourceBody":{"id":"1","pk":"%[1]s"}}`,
				key))
	}
	text := `[` + strings.Join(ops, ",") + `]`
	for _, id := range []string{"0", made[0].ID, "77", cont.RID() + ",0"} {
		w.bulk(t, text, "x-ms-documentdb-partitionkeyrangeid", id).refused(t, 410, "1002", "Gone")
	}
	if cont.Head() != 0 {
		t.Fatalf("the head is %d: something was applied", cont.Head())
	}
	for id, key := range at {
		one := fmt.Sprintf(`[{"operationType":"Read","partitionKey":"[\"%s\"]","id":"1"}]`, key)
		_, statuses := w.bulk(t, one, "x-ms-documentdb-partitionkeyrangeid", cont.RID()+","+id).results(t, 207)
		if statuses != "404" {
			t.Errorf("statuses are %s", statuses)
		}
	}
	a := w.bulk(t, text).want(t, 200)
	tokens := strings.Split(a.header.Get("x-ms-session-token"), ",")
	if len(tokens) != 2 {
		t.Errorf("session token is %q, want one of each partition", tokens)
	}
	for _, token := range tokens {
		w.bulk(t, `[{"operationType":"Read","partitionKey":"[\"k0\"]","id":"1"}]`, "x-ms-session-token", token).want(t,
			200)
	}
	_, statuses := w.bulk(t, `[{"operationType":"Read","partitionKey":"[\"k0\"]","id":"1"}]`,
		"x-ms-session-token", made[0].ID+":-1#99,"+made[1].ID+":-1#99").results(t, 207)
	if statuses != "404" {
		t.Errorf("statuses are %s", statuses)
	}
}

// An operation that cannot be understood does not stop the others, which belong to other callers.
func TestAnOperationOfABulkThatCannotBeUnderstoodIsItsOwn400(t *testing.T) {
	for op, says := range map[string]string{
		`{"operationType":"Read","id":"1"}`:                                "partitionKey is missing",
		`{"operationType":"Read","id":"1","partitionKey":""}`:              "partitionKey",
		`{"operationType":"Read","id":"1","partitionKey":"x"}`:             "partitionKey",
		`{"operationType":"Read","id":"1","partitionKey":"[\"a\",\"b\"]"}`: "2 components",
		`{"operationType":"Read","id":"1","partitionKey":["a"]}`:           `partitionKey is ["a"]`,
		`{"operationType":"Frobnicate","id":"1","partitionKey":"[\"p\"]"}`: `operationType is "Frobnicate"`,
		`{"operationType":7,"id":"1","partitionKey":"[\"p\"]"}`:            "operationType is 7",
		`{"id":"1","partitionKey":"[\"p\"]"}`:                              "operationType is missing",
		`{"operationType":"Frobnicate"}`:                                   `operationType is "Frobnicate"`,
		`7`:                                                                "operationType is missing",
		`{"operationType":"Delete","partitionKey":"[\"p\"]"}`:              "id is empty",
		`{"operationType":"Read","id":"1","partitionKey":"` + strings.Repeat("x", 20_000) +
			`"}`: "partition key has 20000 bytes",
	} {
		w, cont := newContainer(t, Options{})
		one := `{"operationType":"Create","partitionKey":"[\"p\"]","resourceBody":{"id":"1","pk":"p"}}`
		a := w.bulk(t, `[`+one+`,`+op+`,`+one+`]`, "x-ms-documentdb-partitionkeyrangeid", "0")
		all, statuses := a.results(t, 207)
		if statuses != "201 400 409" || cont.Count() != 1 {
			t.Fatalf("bulk of %s: %s, with %d items: want 201 400 409, and 1", op, statuses, cont.Count())
		}
		if !strings.Contains(all[1].Message, says) {
			t.Errorf("bulk of %s: %s, want %q in it", op, all[1].Message, says)
		}
		if token := a.header.Get("x-ms-session-token"); token != "0:-1#1" {
			t.Errorf("bulk of %s: session token is %q", op, token)
		}
		if _, statuses = w.bulk(t, `[`+op+`]`).results(t, 207); statuses != "400" {
			t.Errorf("bulk of nothing but %s: %s", op, statuses)
		}
		_, statuses = w.bulk(t, `[`+op+`,`+one+`]`, "x-ms-cosmos-batch-continue-on-error", "False").results(t, 207)
		if statuses != "400 424" {
			t.Errorf("bulk of %s that stops at an error: %s", op, statuses)
		}
	}
}

// Writes of one key stay in order while those of others run at the same time.
func TestBulkOrder(t *testing.T) {
	db, err := docstore.Open(t.TempDir(), docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	w := serveStore(t, db, Options{})
	cont := w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, nil)
	var ops []string
	for i := range wire.MaxBatchOps {
		ops = append(ops,
			fmt.Sprintf(`{"operationType":"Upsert","partitionKey":"[\"%d\"]","resourceBody":{"id":"1","pk":"%[1]d","v":%d}}`, i%10, i))
	}
	w.bulk(t, `[`+strings.Join(ops, ",")+`]`).want(t, 200)
	for i := range 10 {
		it, err := cont.Item(t.Context(), feed.Key(fmt.Sprint(i)), "1")
		if err != nil || !strings.Contains(string(it.Body), fmt.Sprintf(`"v":%d,`, 90+i)) {
			t.Errorf("item of key %d is %s, %v", i, it.Body, err)
		}
	}
}

func TestMessagesRepeatOnlySoMuchOfARequest(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", "")
	body := `{"operations":[{"op":"set","path":"/` + strings.Repeat("x/", 500_000) + `","value":1}]}`
	message := w.do(t, "PATCH", docs+"/a", map[string]string{"x-ms-documentdb-partitionkey": `["p"]`}, body).refused(t,
		http.StatusBadRequest, "0", "BadRequest")
	if !strings.Contains(message, "...") {
		t.Errorf("message is %q: want it to show that it was cut", message)
	}
}

// promise is a body of which nothing comes.
type promise struct{ room int } // the most that a reader had for it

func (p *promise) Read(b []byte) (int, error) {
	p.room = max(p.room, len(b))
	return 0, io.ErrUnexpectedEOF
}

// A header that promises a large body costs nothing.
func TestBodiesTakeMemoryWhenTheyCome(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for _, flags := range [][]string{{"x-ms-documentdb-is-upsert"}, {"x-ms-cosmos-is-batch-request"}} {
		body := new(promise)
		r := httptest.NewRequestWithContext(t.Context(), "POST", docs, body)
		r.ContentLength = wire.MaxItem
		r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
		r.Header.Set("Authorization", sign(t, wellKnownKey, r))
		for name, value := range with(onPK, flags...) {
			r.Header.Set(name, value)
		}
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		if rec.Code != http.StatusBadRequest || body.room == 0 || body.room > 64<<10 {
			t.Errorf("%s: status %d, and %d bytes were made ready: want 400, and 65536 at most", flags, rec.Code,
				body.room)
		}
	}
	w.item(t, "large", `,"v":"`+strings.Repeat("x", 1<<20)+`"`)
}

// A small request with many reads and patches of a large item cannot ask for a large answer.
func TestAnswersOfBatchesAreBounded(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "large", `,"v":"`+strings.Repeat("x", 1<<20)+`"`)
	repeat := func(op string) string { return "[" + strings.Repeat(op+",", 99) + op + "]" }
	const known = `{"operationType":"Read","id":"large","partitionKey":"[\"p\"]","ifNoneMatch":"*"}`
	const read, patch = `{"operationType":"Read","id":"large","partitionKey":"[\"p\"]"}`,
		`{"operationType":"Patch","id":"large","partitionKey":"[\"p\"]","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}}`
	for _, test := range []struct {
		name, body string
		flags      []string
		want       string // statuses and how many
	}{
		{"bulk of reads", repeat(read), []string{"x-ms-cosmos-is-batch-request"}, "3 of 200, 97 of 413"},
		{
			"bulk of reads, the last of what is known", "[" + strings.Repeat(read+",", 99) + known + "]",
			[]string{"x-ms-cosmos-is-batch-request"},
			"3 of 200, 1 of 304, 96 of 413",
		},
		{"bulk of patches", repeat(patch), []string{"x-ms-cosmos-is-batch-request"}, "100 of 200"},
		{
			"batch of reads", repeat(read),
			[]string{"x-ms-cosmos-is-batch-request", "x-ms-cosmos-batch-atomic"},
			"1 of 413, 99 of 424",
		},
		{
			"batch of patches", repeat(patch),
			[]string{"x-ms-cosmos-is-batch-request", "x-ms-cosmos-batch-atomic"},
			"1 of 413, 99 of 424",
		},
	} {
		a := w.do(t, "POST", docs, with(onPK, test.flags...), test.body)
		var results []batchResult
		a.into(t, &results)
		counts := map[int]int{}
		for _, r := range results {
			counts[r.StatusCode]++
		}
		var got []string
		for _, status := range slices.Sorted(maps.Keys(counts)) {
			got = append(got, fmt.Sprintf("%d of %d", counts[status], status))
		}
		if text := strings.Join(got, ", "); text != test.want || len(a.body) > 5<<20 {
			t.Errorf("%s: %s in %d bytes, want %s in 5 MB at most", test.name, text, len(a.body), test.want)
		}
	}
	if n := w.do(t, "GET", docs+"/large", onPK, "").object(t)["n"]; n != 100.0 {
		t.Errorf("n is %v behind 100 patches in a bulk: want 100", n)
	}
}

// The reads of several keys share the room of an answer, also if the reads of each key are carried out together.
func TestTheKeysOfABulkShareTheRoomOfItsAnswer(t *testing.T) {
	w, _ := newContainer(t, Options{})
	var reads []string
	for _, key := range []string{"p", "q", "r", "s"} {
		w.do(t, "POST", docs, under(key), `{"id":"large","pk":"`+key+`","v":"`+strings.Repeat("x", 1<<20)+`"}`).
			want(t, http.StatusCreated)
		read := `{"operationType":"Read","id":"large","partitionKey":"[\"` + key + `\"]"}`
		reads = append(reads, read, read)
	}
	a := w.bulk(t, "["+strings.Join(reads, ",")+"]")
	results, _ := a.results(t, http.StatusMultiStatus)
	slices.SortFunc(results, func(a, b batchResult) int { return a.StatusCode - b.StatusCode })
	for i, r := range results {
		want := http.StatusOK
		if i >= 3 { // the page has room for three
			want = http.StatusRequestEntityTooLarge
		}
		if r.StatusCode != want || len(a.body) > 5<<20 {
			t.Errorf("result %d in order has status %d in an answer of %d bytes, want %d in 5 MB at most", i, r.StatusCode,
				len(a.body), want)
		}
	}
}

// An answer that has no room among those that slow clients read is refused, but not once something was done: whoever
// gets a 429 does it again.
func TestAWriteThatWasDoneIsNotRefusedForItsAnswer(t *testing.T) {
	w, _ := newContainer(t, Options{})
	large := strings.Repeat("x", 70<<10)
	w.do(t, "POST", docs, under("p"), `{"id":"1","pk":"p","n":0,"text":"`+large+`"}`).want(t, http.StatusCreated)
	w.holdAnswers(t, meter.MaxSending-1000) // to others
	w.do(t, "GET", docs+"/1", under("p"), "").want(t, http.StatusTooManyRequests)
	w.do(t, "PATCH", docs+"/1", under("p"), `[{"op":"incr","path":"/n","value":1}]`).want(t, http.StatusOK)
	w.do(t, "POST", docs, under("p"), `{"id":"2","pk":"p","text":"`+large+`"}`).want(t, http.StatusCreated)
	batch := `[{"operationType":"Create","resourceBody":{"id":"3","pk":"p","text":"` + large + `"}}]`
	w.do(t, "POST", docs, under("p", "x-ms-cosmos-is-batch-request", "true", "x-ms-cosmos-batch-atomic", "true"),
		batch).want(t, http.StatusOK)
}

// The answer to a batch has no more room than a page.
func TestABatchThatReadsTooMuchIsRefused(t *testing.T) {
	w, _ := newContainer(t, Options{})
	var ops []string
	for i := range 10 {
		id := fmt.Sprint(i)
		w.item(t, id, `,"text":"`+strings.Repeat("x", 1<<20)+`"`)
		ops = append(ops, `{"operationType":"Read","id":"`+id+`"}`)
	}
	a := w.send(t, "["+strings.Join(ops, ",")+"]")
	_, statuses := a.results(t, http.StatusMultiStatus)
	if statuses != "424 424 424 413 424 424 424 424 424 424" || len(a.body) > 4096 {
		t.Errorf("statuses %s in %d bytes, want 413 of the fourth and 424 of the others", statuses, len(a.body))
	}
	if charge := a.header.Get("x-ms-request-charge"); charge == "0.00" || charge == "1.00" {
		t.Errorf("charge %s, want that of what was read", charge)
	}
	if _, statuses := w.send(t, "["+strings.Join(ops[:3], ",")+"]").results(t,
		http.StatusOK); statuses != "200 200 200" {
		t.Errorf("three of them: statuses %s", statuses)
	}
}

// A condition that is no text must not be ignored: the operation would be carried out without its condition.
func TestAMemberOfAWrongTypeIsRefusedAndNotIgnored(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", `,"v":1`)
	for _, name := range []string{"id", "ifMatch", "ifNoneMatch", "minimalReturnPreference"} {
		for _, value := range []string{`5`, `{}`, `["x"]`, `-1e3`, `{"ifMatch":"x"}`} {
			for _, op := range []string{
				`{"operationType":"Upsert","partitionKey":"[\"p\"]","resourceBody":{"id":"a","pk":"p","v":2},`,
				`{"operationType":"Replace","id":"a","partitionKey":"[\"p\"]","resourceBody":{"id":"a","pk":"p","v":2},`,
				`{"operationType":"Delete","id":"a","partitionKey":"[\"p\"]",`,
			} {
				op = fmt.Sprintf(`%s%q:%s}`, op, name, value)
				all, statuses := w.bulk(t, "["+op+"]").results(t, 207)
				if statuses != "400" || !strings.Contains(all[0].Message, name+" is "+value) {
					t.Errorf("bulk of %s: got %s, %s, want a 400 that names the member", op, statuses, all[0].Message)
				}
				w.send(t, "["+op+"]").want(t, 400)
			}
		}
	}
	if a := w.do(t, "GET", docs+"/a", under("p"), ""); !strings.Contains(string(a.body), `"v":1`) {
		t.Errorf("the item is %s, want that nothing has changed it", a.body)
	}
	// SDKs write null for a member that the program has not set.
	_, statuses := w.bulk(t, `[{"operationType":"Upsert","id":null,"ifMatch":null,"ifNoneMatch":null,
		"minimalReturnPreference":null,"partitionKey":"[\"p\"]","resourceBody":{"id":"b","pk":"p"}}]`).results(t, 200)
	if statuses != "201" {
		t.Errorf("an operation with null members got %s, want 201", statuses)
	}
}
