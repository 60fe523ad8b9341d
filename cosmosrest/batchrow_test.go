package cosmosrest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/binaryjson"
	"github.com/millrace/changefeed/cosmosrest/internal/netbatch"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

const recordedRows = "internal/hybridrow/testdata/hybridrow.json"

// Headers with which the .NET SDK sends an atomic batch, and a bulk.
var (
	atomicRows = under("p", "x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic", "True",
		"x-ms-cosmos-batch-ordered", "True")
	bulkRows = map[string]string{
		"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "False",
		"x-ms-cosmos-batch-continue-on-error": "True",
		"x-ms-documentdb-partitionkeyrangeid": "0",
	}
)

// Operations by their numbers.
const (
	rowCreate  int32 = 0
	rowPatch   int32 = 1
	rowRead    int32 = 2
	rowDelete  int32 = 4
	rowReplace int32 = 5
	rowUpsert  int32 = 20
)

// row is an operation on an item of key p; in a bulk, too.
func row(kind int32, id, body string) netbatch.Operation {
	op := netbatch.Operation{Type: kind, ResourceType: new(int32(2)), PartitionKey: new(`["p"]`)}
	if id != "" {
		op.ID = &id
	}
	if body != "" {
		op.Body = []byte(body)
	}
	return op
}

// rows sends a body in HybridRow. If it was carried out, it returns the results and their
// statuses.
func (w *world) rows(t *testing.T, headers map[string]string, body []byte) (a answer, all []netbatch.Result,
	statuses string,
) {
	t.Helper()
	a = w.do(t, "POST", docs, headers, string(body))
	if a.status >= http.StatusBadRequest {
		return a, nil, ""
	}
	all, err := netbatch.Results(a.body)
	if err != nil || a.header.Get("Content-Type") != "application/octet-stream" {
		t.Fatalf("the answer of type %q is no HybridRow: %v", a.header.Get("Content-Type"), err)
	}
	sum := 0.0
	for _, r := range all {
		statuses += fmt.Sprintf(" %d", r.Status)
		if sum += *r.Charge; *r.Charge <= 0 && r.Status != http.StatusFailedDependency {
			t.Errorf("an operation of status %d has the charge %v", r.Status, *r.Charge)
		}
	}
	if got := a.charge(t); math.Abs(got-sum) > 0.01 {
		t.Errorf("the answer has the charge %v, its operations %v", got, sum)
	}
	return a, all, strings.TrimSpace(statuses)
}

// Each request that was recorded from the SDK gets an answer that the SDK can read.
func TestRecordedRequestsOfDotNet(t *testing.T) {
	containers := map[string]string{
		"key-hierarchical": `"/tenant","/user"`, "bulk-hierarchical": `"/tenant","/user"`,
		"bulk-hierarchical-id": `"/tenant","/id"`,
	}
	want := map[string]string{ // status of the answer, and those of the results
		"create":                     "200 201",
		"all-kinds":                  "207 424 424 424 412 424 424",
		"patch-operations":           "207 404",
		"etags":                      "207 404 424 424 424",
		"no-content":                 "200 201 201 200 200 200 204 201 201",
		"no-content-by-client":       "200 201 200 204 201",
		"unicode-ids":                "207 404 424 424 424 424 424",
		"long-id":                    "207 404 424 424",
		"hundred":                    "200" + strings.Repeat(" 201", 100),
		"varuint-lengths":            "200 201 201 201 201 201",
		"properties":                 "400", // timeToLiveInSeconds
		"typed":                      "200 201",
		"session-token":              "404", // ahead of this server
		"consistency":                "207 404",
		"key-number":                 "207 404",
		"key-bool":                   "207 404",
		"key-null":                   "207 404",
		"key-none":                   "207 404",
		"key-unicode":                "207 404",
		"key-hierarchical":           "207 404",
		"key-none-of-old-container":  "400",
		"bulk-strings":               "200 201 201 201 201",
		"bulk-keys":                  "207" + strings.Repeat(" 404", 10),
		"bulk-example":               "207 404",
		"bulk-hierarchical":          "200 201 201 201 201",
		"bulk-hierarchical-id":       "207 404 404",
		"bulk-none-of-old-container": "207 400",
		"bulk-all-kinds":             "207 201 201 200 412 404 412",
		"bulk-range-0":               "200 201 201 201",
		"bulk-range-1":               "410", // there is one range
		"bulk-binary-encoding":       "200 201",
	}
	for _, c := range netbatch.Cases(t, recordedRows, "request") {
		if c.Meaning.Source != "recorded" {
			continue
		}
		paths := containers[c.Name]
		kind := "MultiHash"
		if paths == "" {
			paths, kind = `"/pk"`, "Hash"
		}
		w := newWorld(t, Options{})
		w.create(t, "db", `{"id":"c","partitionKey":{"paths":[`+paths+`],"kind":"`+kind+`","version":2}}`, nil)
		a, results, statuses := w.rows(t, c.Meaning.Headers, c.Body)
		if got := strings.TrimSpace(fmt.Sprint(a.status, " ", statuses)); got != want[c.Name] {
			t.Errorf("%s: %s, want %s: %.300q", c.Name, got, want[c.Name], a.body)
		}
		for i, r := range results {
			if minimal := c.Meaning.Operations[i].MinimalReturnPreference != nil; r.Status < 300 && r.Status != 204 &&
				(r.Body == nil) != minimal {
				t.Errorf("%s: operation %d has the body %.100q: want none for minimalReturnPreference, and else one",
					c.Name, i, r.Body)
			}
		}
		delete(want, c.Name)
	}
	for name := range want {
		t.Errorf("%s was not recorded", name)
	}
}

// What the SDK asks for is answered as it is to a client that writes JSON.
func TestRowsAndJSONAreAnsweredAlike(t *testing.T) {
	compared := 0
	for _, c := range netbatch.Cases(t, recordedRows, "request") {
		text, ok := asJSON(&c)
		if !ok {
			continue
		}
		var answers [2]string
		for i, body := range []string{string(c.Body), text} {
			w, cont := newContainer(t, Options{})
			w.item(t, "a1", `,"n":1`)
			w.item(t, "a2", "")
			a := w.do(t, "POST", docs, c.Meaning.Headers, body)
			answers[i] = fmt.Sprint(a.status, " for ", a.charge(t), " RU, ", cont.Count(), " items:")
			if a.status >= http.StatusBadRequest {
				continue
			}
			rows, _ := netbatch.Results(a.body)
			if i == 0 {
				for _, r := range rows {
					answers[i] += fmt.Sprintf(" %d for %v with an ETag %t, a body %t;", r.Status, *r.Charge,
						r.ETag != nil, r.Status < 400 && r.Body != nil)
				}
				continue
			}
			var results []batchResult
			a.into(t, &results)
			for _, r := range results {
				answers[i] += fmt.Sprintf(" %d for %v with an ETag %t, a body %t;", r.StatusCode, r.RequestCharge,
					r.ETag != "", r.ResourceBody != nil)
			}
		}
		if compared++; answers[0] != answers[1] {
			t.Errorf("%s: the answer is %s\nin JSON it is %s", c.Name, answers[0], answers[1])
		}
	}
	if compared < 30 {
		t.Errorf("%d requests were compared", compared)
	}
}

// asJSON is a request in JSON, if it can be one.
func asJSON(c *netbatch.Case) (string, bool) {
	ops := []map[string]any{}
	for _, o := range c.Meaning.Operations {
		if o.BodyHex != nil || o.BodyLength > 0 || o.BinaryIDHex != nil || o.TimeToLiveInSeconds != nil ||
			o.Body != nil && !json.Valid([]byte(*o.Body)) {
			return "", false
		}
		op := map[string]any{"operationType": o.Operation}
		if o.Body != nil {
			op["resourceBody"] = json.RawMessage(*o.Body)
		}
		for name, value := range map[string]*string{
			"id": o.ID, "partitionKey": o.PartitionKey, "ifMatch": o.IfMatch,
			"ifNoneMatch": o.IfNoneMatch,
		} {
			if value != nil {
				op[name] = *value
			}
		}
		if o.MinimalReturnPreference != nil {
			op["minimalReturnPreference"] = *o.MinimalReturnPreference
		}
		ops = append(ops, op)
	}
	return string(wire.Encode(ops)), true
}

func TestDamagedRowsAreRefused(t *testing.T) {
	w, cont := newContainer(t, Options{})
	for _, c := range netbatch.Cases(t, recordedRows, "bad-request") {
		if c.Name == "json" { // it is that
			continue
		}
		for _, headers := range []map[string]string{atomicRows, bulkRows} {
			a, _, _ := w.rows(t, headers, c.Body)
			want := "body of the batch is no"
			if binaryjson.Is(c.Body) { // the first byte decides which format a body has
				want = "body is not binary JSON"
			}
			if said := a.refused(t, http.StatusBadRequest, "0", "BadRequest"); !strings.Contains(said, want) {
				t.Errorf("%s (%s): %s", c.Name, c.Meaning.Error, said)
			}
		}
	}
	whole := netbatch.Request(row(rowCreate, "", `{"id":"a","pk":"p"}`), row(rowCreate, "", `{"id":"b","pk":"p"}`))
	a, _, _ := w.rows(t, atomicRows, whole[:len(whole)-1]) // its first operation is whole
	a.refused(t, http.StatusBadRequest, "0", "BadRequest")
	if cont.Head() != 0 {
		t.Errorf("the head is %d: something was written", cont.Head())
	}
}

func TestRowsThatAreRefused(t *testing.T) {
	w, cont := newContainer(t, Options{})
	good := row(rowCreate, "", `{"id":"a","pk":"p"}`)
	with := func(change func(*netbatch.Operation)) netbatch.Operation {
		op := good
		change(&op)
		return op
	}
	for says, ops := range map[string][]netbatch.Operation{
		"no operations":                          nil,
		"more operations than what is supported": slices.Repeat([]netbatch.Operation{good}, 101),
		"operation 1 of the batch: id":           {good, row(rowRead, "", "")},
		"resourceBody is missing":                {row(rowUpsert, "", "")},
		"resourceBody is text":                   {row(rowUpsert, "", "text")},
		"resourceBody is \ufffd":                 {row(rowUpsert, "", "\xff")},
		"body is not binary JSON: at byte 2: ":   {row(rowUpsert, "", "\x80\xea")},
		"timeToLiveInSeconds":                    {with(func(o *netbatch.Operation) { o.TimeToLive = new(int32(5)) })},
		"binaryId":                               {with(func(o *netbatch.Operation) { o.BinaryID = []byte{1} })},
		"patch has 11 operations": {row(rowPatch, "a",
			`{"operations":[`+strings.Repeat(`{"op":"incr","path":"/n","value":1},`, 10)+
				`{"op":"incr","path":"/n","value":1}]}`)},
	} {
		a, _, _ := w.rows(t, atomicRows, netbatch.Request(ops...))
		if said := a.refused(t, http.StatusBadRequest, "0", "BadRequest"); !strings.Contains(said, says) {
			t.Errorf("%s, want %q in it", said, says)
		}
	}
	a, _, _ := w.rows(t, atomicRows, netbatch.Request(row(rowCreate, "", `{"id":"a","pk":"p","v":"`+strings.Repeat("x",
		wire.MaxBatch)+`"}`)))
	a.refused(t, http.StatusRequestEntityTooLarge, "0", "RequestEntityTooLarge")
	if cont.Head() != 0 {
		t.Errorf("the head is %d: something was written", cont.Head())
	}
}

// A refused operation undoes the others. Its row says why, and theirs that they depended on
// it.
func TestAtomicRows(t *testing.T) {
	w, cont := newContainer(t, Options{})
	etag := w.item(t, "old", `,"v":1`).header.Get("etag")
	stale := row(rowReplace, "old", `{"id":"old","pk":"p","v":2}`)
	stale.IfMatch = new(`"stale"`)
	create := row(rowCreate, "", `{"id":"new","pk":"p"}`)
	for name, c := range map[string]struct {
		op   netbatch.Operation
		want int32
	}{
		"conflict": {row(rowCreate, "", `{"id":"old","pk":"p"}`), 409},
		"missing":  {row(rowDelete, "none", ""), 404},
		"stale":    {stale, 412},
		"no JSON":  {row(rowCreate, "", `{"id":"x","pk":"p"`), 400},
		"key":      {row(rowCreate, "", `{"id":"x","pk":"q"}`), 400},
	} {
		_, results, statuses := w.rows(t, atomicRows, netbatch.Request(create, c.op, row(rowRead, "old", "")))
		if want := fmt.Sprintf("424 %d 424", c.want); statuses != want || results[1].Body == nil ||
			results[0].Body != nil || results[0].ETag != nil {
			t.Errorf("%s: statuses %s, want %s; the row says %q, that before it %q", name, statuses, want,
				results[1].Body, results[0].Body)
		}
		if sub := results[1].SubStatus; name == "key" && (sub == nil || *sub != wire.SubKeyMismatch) {
			t.Errorf("%s: sub-status %v", name, sub)
		}
	}
	if cont.Head() != 1 {
		t.Fatalf("the head is %d: something was written", cont.Head())
	}
	fresh := stale
	fresh.IfMatch = &etag
	patch := row(rowPatch, "old",
		`{"condition":"FROM c WHERE c.v=2","operations":[{"op":"incr","path":"/v","value":5}]}`)
	a, results, statuses := w.rows(t, atomicRows, netbatch.Request(fresh, patch, create, row(rowDelete, "new", "")))
	if a.status != 200 || statuses != "200 200 201 204" || !strings.Contains(string(results[1].Body), `"v":7`) ||
		*results[1].ETag == etag {
		t.Errorf("status %d, %s: %q", a.status, statuses, results[1].Body)
	}
	if last := results[3]; last.Body != nil || last.ETag != nil {
		t.Errorf("a delete has the body %q and an ETag %v", last.Body, last.ETag)
	}
	if got := a.header.Get("x-ms-session-token"); got != "0:-1#2" {
		t.Errorf("the session token is %q", got)
	}
}

// A read whose client has the item already is no failure, and no success either.
func TestRowsThatAreNotModified(t *testing.T) {
	w, cont := newContainer(t, Options{})
	etag := w.item(t, "old", "").header.Get("etag")
	reading := func(match, none string) netbatch.Operation {
		op := row(rowRead, "old", "")
		if match != "" {
			op.IfMatch = &match
		}
		if none != "" {
			op.IfNoneMatch = &none
		}
		return op
	}
	for _, c := range []struct {
		match, none string
		want        int32
	}{
		{etag, "", 304},
		{"", etag, 304},
		{"", "*", 304},
		{"", strings.Trim(etag, `"`), 304},
		{"*", "", 200},
		{"", `"other"`, 200},
		{`"other"`, "", 412},
	} {
		a, results, statuses := w.rows(t, bulkRows, netbatch.Request(reading(c.match, c.none)))
		if statuses != fmt.Sprint(c.want) || (results[0].Body == nil) != (c.want == 304) ||
			c.want != 412 && *results[0].ETag != etag {
			t.Errorf("If-Match %s, If-None-Match %s: status %d, %s, body %q, want %d", c.match, c.none, a.status,
				statuses, results[0].Body, c.want)
		}
	}
	a, _, statuses := w.rows(t, atomicRows, netbatch.Request(row(rowCreate, "", `{"id":"new","pk":"p"}`),
		reading(etag, "")))
	if a.status != http.StatusMultiStatus || statuses != "201 304" || cont.Count() != 2 {
		t.Errorf("status %d, %s, %d items: want 207, 201 304, and the new item", a.status, statuses, cont.Count())
	}
	written := fmt.Sprintf(`[{"operationType":"Read","id":"old","ifNoneMatch":%q}]`, etag)
	if _, statuses := w.send(t, written).results(t, http.StatusMultiStatus); statuses != "304" {
		t.Errorf("in JSON the status is %s", statuses)
	}
}

// Operations of a bulk belong to callers that do not know of each other.
func TestBulkRows(t *testing.T) {
	w, cont := newContainer(t, Options{})
	w.item(t, "a", `,"v":1`)
	keyless, unwanted := row(rowRead, "b", ""), row(rowUpsert, "", `{"id":"d","pk":"p"}`)
	unwanted.Minimal = true
	a, results, statuses := w.rows(t, bulkRows, netbatch.Request(
		row(rowCreate, "", `{"id":"b","pk":"p"}`),
		row(rowCreate, "", `{"id":"a","pk":"p"}`),
		row(rowPatch, "a", `{"operations":[]}`),
		row(rowPatch, "a", `{"condition":"FROM c WHERE (","operations":[{"op":"incr","path":"/v","value":1}]}`),
		row(rowPatch, "a", `{"operations":[{"op":"incr","path":"/v","value":1}]}`),
		row(rowRead, "", ""),
		row(rowDelete, "none", ""),
		unwanted,
		keyless))
	if a.status != 207 || statuses != "201 409 400 400 200 400 404 201 200" || cont.Count() != 3 {
		t.Errorf("status %d, %s, %d items", a.status, statuses, cont.Count())
	}
	if !strings.Contains(string(results[2].Body), "patch has 0 operations") || results[7].Body != nil ||
		results[7].ETag == nil {
		t.Errorf("the patch says %q, the upsert has the body %q", results[2].Body, results[7].Body)
	}
	keyless.PartitionKey = nil
	if _, _, statuses = w.rows(t, bulkRows, netbatch.Request(keyless,
		row(rowDelete, "a", ""))); statuses != "400 204" || cont.Count() != 2 {
		t.Errorf("with an operation without a key: %s, %d items", statuses, cont.Count())
	}
}

// Keys come as .NET writes them, and are those of the items.
func TestBulkRowsFindTheirKeys(t *testing.T) {
	w, cont := newContainer(t, Options{})
	for sent, pk := range map[string]string{
		`[1.0]`: `1`, `[-0.0]`: `0`, `[1E+21]`: `1e21`, `[1E-07]`: `0.0000001`,
		`[9007199254740992.0]`:       `9007199254740992`,
		`["\u65e5\u672c\"\\\u00fc"]`: `"日本\"\\ü"`, `[true]`: `true`, `[null]`: `null`, `[""]`: `""`,
	} {
		create, read := row(rowCreate, "", `{"id":"1","pk":`+pk+`}`), row(rowRead, "1", "")
		create.PartitionKey, read.PartitionKey = &sent, &sent
		if a, _, statuses := w.rows(t, bulkRows, netbatch.Request(create, read)); statuses != "201 200" {
			t.Errorf("key %s of an item with pk %s: %s %s", sent, pk, statuses, a.body)
		}
		if _, err := cont.Item(t.Context(), feed.PartitionKey(`[`+pk+`]`), "1"); err != nil {
			t.Errorf("item with pk %s: %v", pk, err)
		}
	}
}

// A key that a row leaves empty is not that of the header, which is about rows without one.
func TestARowWithAnEmptyKeyIsRefused(t *testing.T) {
	w, cont := newContainer(t, Options{})
	empty := row(rowCreate, "", `{"id":"1","pk":"p"}`)
	empty.PartitionKey = new("")
	headers := maps.Clone(bulkRows)
	maps.Copy(headers, under("p"))
	if _, _, statuses := w.rows(t, headers, netbatch.Request(empty)); statuses != "400" {
		t.Errorf("the status is %s, want 400", statuses)
	}
	if cont.Count() != 0 {
		t.Error("the row was carried out")
	}
}

// drainedWorld has a container of two partitions, of which that of key "c" has used up its budget.
func drainedWorld(t *testing.T) (*world, *docstore.Container) {
	t.Helper()
	w := newWorld(t, Options{})
	cont := w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "800"})
	if _, err := cont.Split(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	w.write(t, "c")
	time.Sleep(time.Second)
	w.drain(t, "c")
	return w, cont
}

// Whoever is over the budget is told so by the answer. By a row only where others are not.
func TestThrottledRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, cont := drainedWorld(t)
		request := netbatch.Request(row(rowRead, "1", ""), row(rowCreate, "", `{"id":"2","pk":"p"}`))
		for _, headers := range []map[string]string{
			atomicRows,
			without(bulkRows, "x-ms-documentdb-partitionkeyrangeid"),
		} {
			a, _, _ := w.rows(t, headers, request)
			a.refused(t, http.StatusTooManyRequests, "3200", "TooManyRequests")
		}
		elsewhere := row(rowCreate, "", `{"id":"3","pk":"q"}`)
		elsewhere.PartitionKey = new(otherPartition(t, cont, "p"))
		elsewhere.Body = fmt.Appendf(nil, `{"id":"3","pk":%s}`, strings.Trim(*elsewhere.PartitionKey, "[]"))
		both := netbatch.Request(row(rowRead, "1", ""), elsewhere)
		a, results, statuses := w.rows(t, without(bulkRows, "x-ms-documentdb-partitionkeyrangeid"), both)
		if a.status != http.StatusMultiStatus || statuses != "429 201" || *results[0].SubStatus != 3200 ||
			results[0].RetryAfter == nil || *results[0].RetryAfter == 0 {
			t.Fatalf("status %d, %s, %+v", a.status, statuses, results)
		}
		time.Sleep(time.Second)
		if _, _, statuses := w.rows(t, atomicRows, request); statuses != "200 201" {
			t.Errorf("after a pause: %s", statuses)
		}
	})
}

// without are headers but one.
func without(headers map[string]string, name string) map[string]string {
	left := maps.Clone(headers)
	delete(left, name)
	return left
}

// otherPartition is a key that is not in the partition of another.
func otherPartition(t *testing.T, cont *docstore.Container, than string) string {
	t.Helper()
	partition := func(key feed.PartitionKey) string {
		p, err := locate(cont, key)
		if err != nil {
			t.Fatal(err)
		}
		return p.part.ID
	}
	for i := range 100 {
		if key := feed.Key(fmt.Sprint(i)); partition(key) != partition(feed.Key(than)) {
			return string(key)
		}
	}
	t.Fatal("no key of another partition")
	return ""
}

// An import of twice the throughput is done, with the patience of the SDK.
func TestABulkOverItsBudgetIsDoneInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		cont := w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "400"})
		var all sync.WaitGroup
		for client := range 4 {
			all.Go(func() {
				for n := range 3 {
					var ops []netbatch.Operation
					for i := range 100 {
						ops = append(ops, row(rowCreate, "", fmt.Sprintf(`{"id":"%d-%d-%d","pk":"p"}`, client, n, i)))
					}
					w.importRows(t, netbatch.Request(ops...))
				}
			})
		}
		all.Wait()
		if cont.Count() != 1200 {
			t.Errorf("%d items were imported, want 1200", cont.Count())
		}
	})
}

// importRows sends a bulk as the SDK does: an answer that was throttled again after as long as
// it says, nine times; what is throttled then, and results that were, ten times in all, after
// 100 ms.
func (w *world) importRows(t *testing.T, body []byte) {
	t.Helper()
	for range 10 {
		statuses, waited := "429", time.Duration(0)
		for tried := 0; tried <= tries && waited <= patience; tried++ {
			var a answer
			if a, _, statuses = w.rows(t, bulkRows, body); a.status != http.StatusTooManyRequests {
				break
			}
			statuses = "429"
			pause := retryAfter(t, a)
			waited += pause
			time.Sleep(pause)
		}
		if !strings.Contains(statuses, "429") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("a bulk was given up")
}
