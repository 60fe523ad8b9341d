package cosmosrest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A single region has no conflicts: a list and a query are empty, and no conflict can be read or deleted.
func TestThereAreNoConflicts(t *testing.T) {
	w, c := newContainer(t, Options{})
	path := "/dbs/db/colls/c/conflicts"
	for _, a := range []answer{
		w.do(t, "GET", path, nil, ""),
		w.do(t, "POST", path, across(), `{"query":"SELECT * FROM c WHERE c.id = 'x'"}`),
	} {
		if got := string(a.want(t, http.StatusOK).body); got != `{"_rid":"`+c.RID()+`","Conflicts":[],"_count":0}` {
			t.Errorf("%s: %s", a.request, got)
		}
	}
	w.do(t, "POST", path, across(), `{"query":"SELECT"}`).want(t, http.StatusBadRequest)
	alone := across("x-ms-documentdb-query-enablecrosspartition", "")
	w.do(t, "POST", path, alone, `{"query":"SELECT * FROM c"}`).refused(t, http.StatusBadRequest, "0", "BadRequest")
	alone["x-ms-documentdb-partitionkey"] = `["p"]`
	w.do(t, "POST", path, alone, `{"query":"SELECT * FROM c"}`).want(t, http.StatusOK)
	w.do(t, "GET", path+"/x", nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
	w.do(t, "DELETE", path+"/x", nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
	w.do(t, "POST", path, nil, `{"id":"x"}`).refused(t, http.StatusMethodNotAllowed, "0", "MethodNotAllowed")
	w.do(t, "POST", "/dbs/db/colls/none/conflicts", across(), `{"query":"SELECT * FROM c"}`).
		refused(t, http.StatusNotFound, "0", "NotFound")
	w, _ = newContainer(t, Options{Lenient: true})
	delete(alone, "x-ms-documentdb-partitionkey")
	w.do(t, "POST", path, alone, `{"query":"SELECT * FROM c"}`).want(t, http.StatusOK)
}

func TestStatisticsOfAContainer(t *testing.T) {
	w, c := newContainer(t, Options{})
	asked := map[string]string{
		"x-ms-documentdb-populatepartitionstatistics": "True", "x-ms-documentdb-populatequotainfo": "true",
	}
	read := func() (all []rangeStatistics, usage string) {
		t.Helper()
		a := w.do(t, "GET", "/dbs/db/colls/c", asked, "").want(t, http.StatusOK)
		var body struct{ Statistics []rangeStatistics }
		if err := json.Unmarshal(a.body, &body); err != nil {
			t.Fatalf("%v: %s", err, a.body)
		}
		return body.Statistics, a.header.Get("x-ms-resource-usage")
	}
	if all, _ := read(); len(all) != 1 || all[0].ID != "0" || all[0].Documents != 0 || all[0].Largest == nil {
		t.Errorf("of an empty container: %+v", all)
	}
	bytes := map[string]int{}
	for i := range 7 {
		key := fmt.Sprintf("k%d", i)
		for n := range i + 1 {
			a := w.do(t, "POST", docs, under(key), fmt.Sprintf(`{"id":"%d","pk":%q,"text":%q}`, n, key,
				strings.Repeat("x", 1000))).want(t, http.StatusCreated)
			bytes[key] += len(a.body)
		}
	}
	if _, err := c.Split(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	all, usage := read()
	documents, keys, size, listed := int64(0), int64(0), int64(0), 0
	for _, s := range all {
		documents, keys, size, listed = documents+s.Documents, keys+s.Keys, size+s.Size, listed+len(s.Largest)
		if !slices.IsSortedFunc(s.Largest, func(a, b keyStatistics) int { return int(b.Size - a.Size) }) {
			t.Errorf("partition %s: the keys are not sorted by size: %+v", s.ID, s.Largest)
		}
		for _, k := range s.Largest {
			var key []string
			if err := json.Unmarshal(k.Key, &key); err != nil || len(key) != 1 ||
				k.Size != kilobytes(int64(bytes[key[0]])) {
				t.Errorf("key %s has %d KB: want %d bytes", k.Key, k.Size, bytes[key[0]])
			}
		}
	}
	if len(all) != 2 || documents != 28 || keys != 7 || listed < largestKeys || size < 28 || size > 40 {
		t.Errorf("%d partitions, %d documents, %d keys of which %d are listed, %d KB", len(all), documents, keys,
			listed, size)
	}
	if !strings.Contains(usage, ";documentSize=0;documentsSize=3") || !strings.Contains(usage, ";documentsCount=28;") {
		t.Errorf("usage %s", usage)
	}
	if plain := w.do(t, "GET", "/dbs/db/colls/c", nil, "").object(t); plain["statistics"] != nil {
		t.Errorf("nobody asked for statistics: %v", plain["statistics"])
	}
}

// The listed keys are the largest in bytes, also if all of them need the same number of KB.
func TestTheLargestKeysAreListed(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for i := range 8 {
		w.do(t, "POST", docs, under(fmt.Sprint(i)), fmt.Sprintf(`{"id":"a","pk":"%d","text":%q}`, i,
			strings.Repeat("x", 1100+50*i))).want(t, http.StatusCreated)
	}
	asked := map[string]string{"x-ms-documentdb-populatepartitionstatistics": "True"}
	var body struct{ Statistics []rangeStatistics }
	w.do(t, "GET", "/dbs/db/colls/c", asked, "").want(t, http.StatusOK).into(t, &body)
	var got []string
	for _, k := range body.Statistics[0].Largest {
		if got = append(got, string(k.Key)); k.Size != 2 {
			t.Errorf("key %s has %d KB, want 2", k.Key, k.Size)
		}
	}
	if want := `["7"] ["6"] ["5"] ["4"] ["3"]`; strings.Join(got, " ") != want {
		t.Errorf("the largest keys are %s, want %s", got, want)
	}
}

// The statistics contain partition keys, so a token for a single key does not get them, whichever key
// the request names.
func TestATokenForAKeyGetsNoStatistics(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).want(t, http.StatusCreated)
	one := w.permit(t, `{"id":"p","permissionMode":"All","resource":"dbs/db/colls/c","resourcePartitionKey":["p"]}`)
	w.do(t, "GET", "/dbs/db/colls/c", one(""), "").want(t, http.StatusOK)
	for _, key := range []string{"", `["p"]`, `["q"]`} {
		headers := one(key)
		headers["x-ms-documentdb-populatepartitionstatistics"] = "true"
		w.do(t, "GET", "/dbs/db/colls/c", headers, "").refused(t, http.StatusForbidden, "0", "Forbidden")
	}
}

// A recording of a hosted account shows where a new member stands.
func TestAPatchAddsMembersBeforeTheTime(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", `,"n":1`)
	patch := func(ops string) string {
		t.Helper()
		a := w.do(t, "PATCH", docs+"/a", under("p"), `{"operations":[`+ops+`]}`).want(t, http.StatusOK)
		read := w.do(t, "GET", docs+"/a", under("p"), "").want(t, http.StatusOK)
		if string(read.body) != string(a.body) {
			t.Errorf("read %s, want %s", read.body, a.body)
		}
		return strings.Join(membersOf(a.body), " ")
	}
	for _, step := range []struct{ ops, want string }{
		{`{"op":"add","path":"/x","value":{"_etag":"mine"}}`, "id pk n _rid _self _etag _attachments x _ts"},
		{`{"op":"set","path":"/y","value":2}`, "id pk n _rid _self _etag _attachments x y _ts"},
		{`{"op":"remove","path":"/x"},{"op":"incr","path":"/n","value":1}`, "id pk n _rid _self _etag _attachments y _ts"},
		{`{"op":"move","from":"/n","path":"/m"}`, "id pk _rid _self _etag _attachments y m _ts"},
	} {
		if got := patch(step.ops); got != step.want {
			t.Errorf("after %s: %s, want %s", step.ops, got, step.want)
		}
	}
	etag := w.do(t, "GET", docs+"/a", under("p"), "").header.Get("etag")
	w.do(t, "POST", docs, under("p", "If-Match", etag, "x-ms-documentdb-is-upsert", "true"),
		`{"id":"a","pk":"p","y":3,"x":{"_etag":"mine"}}`).want(t, http.StatusOK)
	if got := patch(`{"op":"set","path":"/y","value":4}`); got != "id pk y x _rid _self _etag _attachments _ts" {
		t.Errorf("after an upsert of the whole document: %s", got)
	}
}

// The Java SDK's tests send this header; reads and patches return the document as it was stored.
func TestAWriteMayLeaveOutTwoSystemProperties(t *testing.T) {
	w, _ := newContainer(t, Options{})
	const short = "id pk _rid _etag _ts"
	bare := under("p", "x-ms-exclude-system-properties", "true")
	for _, a := range []answer{
		w.do(t, "POST", docs, bare, `{"id":"a","pk":"p"}`).want(t, http.StatusCreated),
		w.do(t, "GET", docs+"/a", under("p"), "").want(t, http.StatusOK),
		w.do(t, "PUT", docs+"/a", bare, `{"id":"a","pk":"p"}`).want(t, http.StatusOK),
	} {
		if got := strings.Join(membersOf(a.body), " "); got != short {
			t.Errorf("%s: %s, want %s", a.request, got, short)
		}
	}
	a := w.do(t, "PATCH", docs+"/a", under("p"), `{"operations":[{"op":"add","path":"/x","value":1}]}`)
	if got := strings.Join(membersOf(a.body), " "); got != "id pk _rid _etag x _ts" {
		t.Errorf("patched: %s", got)
	}
	a = w.do(t, "PUT", docs+"/a", under("p"), `{"id":"a","pk":"p"}`)
	if got := strings.Join(membersOf(a.body), " "); got != "id pk _rid _self _etag _attachments _ts" {
		t.Errorf("replaced: %s", got)
	}
}

// The operations of a key in a bulk have a single LSN, and each succeeds or fails by itself.
func TestTheOperationsOfAKeyInABulkHaveOneLSN(t *testing.T) {
	w, c := newContainer(t, Options{})
	w.item(t, "taken", "")
	op := func(id, key string) string {
		return fmt.Sprintf(`{"operationType":"Create","partitionKey":"[\"%s\"]","resourceBody":{"id":%q,"pk":%q}}`, key,
			id, key)
	}
	ops := []string{op("a", "p"), op("taken", "p"), op("x", "q"), op("b", "p"), op("a", "p"), op("c", "p")}
	_, statuses := w.bulk(t, "["+strings.Join(ops, ",")+"]").results(t, http.StatusMultiStatus)
	if statuses != "201 409 201 201 409 201" {
		t.Errorf("statuses %s", statuses)
	}
	if head := c.Head(); head != 3 {
		t.Errorf("the newest LSN is %d, want 3: one of the first item and one of each key", head)
	}
	var first int64
	for _, id := range []string{"a", "b", "c"} {
		p, err := c.LogicalPartition(`["p"]`)
		if err != nil {
			t.Fatal(err)
		}
		item, err := p.Item(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if first = max(first, item.LSN); item.LSN != first {
			t.Errorf("item %s has LSN %d, another one %d", id, item.LSN, first)
		}
	}
}

// A replace with another id renames the item in a batch and in a bulk as it does alone.
func TestABatchRenamesItems(t *testing.T) {
	w, c := newContainer(t, Options{})
	for _, atomic := range []string{"true", "false"} {
		a, b := "a"+atomic, "b"+atomic
		etag := w.item(t, a, "").header.Get("etag")
		w.item(t, "taken"+atomic, "")
		before := c.Head()
		headers := batchOf(atomic)
		headers["x-ms-documentdb-partitionkey"] = `["p"]`
		ops := fmt.Sprintf(`[{"operationType":"Replace","id":%q,"ifMatch":%q,"resourceBody":{"id":%q,"pk":"p","v":1}},`+
			`{"operationType":"Read","id":%q}]`, a, etag, b, b)
		results, _ := w.do(t, "POST", docs, headers, ops).results(t, http.StatusOK)
		if results[0].StatusCode != http.StatusOK || results[1].StatusCode != http.StatusOK ||
			results[0].RequestCharge < 11 || results[0].ETag != results[1].ETag {
			t.Errorf("atomic %s: %+v", atomic, results)
		}
		if head := c.Head(); head != before+1 {
			t.Errorf("atomic %s: the rename has the LSNs %d to %d, want one", atomic, before+1, head)
		}
		w.do(t, "GET", docs+"/"+a, under("p"), "").want(t, http.StatusNotFound)
		w.do(t, "GET", docs+"/"+b, under("p"), "").want(t, http.StatusOK)
		ops = fmt.Sprintf(`[{"operationType":"Upsert","resourceBody":{"id":"new","pk":"p"}},`+
			`{"operationType":"Replace","id":%q,"resourceBody":{"id":%q,"pk":"p"}}]`, b, "taken"+atomic)
		results, _ = w.do(t, "POST", docs, headers, ops).results(t, http.StatusMultiStatus)
		if results[1].StatusCode != http.StatusConflict {
			t.Errorf("atomic %s: to an id that is taken: %+v", atomic, results)
		}
		w.do(t, "GET", docs+"/"+b, under("p"), "").want(t, http.StatusOK)
	}
	for _, path := range []string{"/id", "/_etag"} {
		w.do(t, "PATCH", docs+"/btrue", under("p"), `{"operations":[{"op":"set","path":"`+path+`","value":"x"}]}`).
			refused(t, http.StatusBadRequest, "0", "BadRequest")
	}
}
