package cosmosrest

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Each point operation without a key gets the sub-status that the service gives to reads and creates.
func TestAPointOperationWithoutAKeyHasTheSubStatusOfAKey(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "POST", docs, under("p"), `{"id":"a","pk":"p"}`).want(t, http.StatusCreated)
	for _, c := range []struct{ method, path, body string }{
		{"GET", docs + "/a", ""},
		{"DELETE", docs + "/a", ""},
		{"PUT", docs + "/a", `{"id":"a","pk":"p"}`},
		{"PATCH", docs + "/a", `{"operations":[{"op":"set","path":"/v","value":1}]}`},
		{"POST", docs, `{"id":"b","pk":"p"}`},
	} {
		says := w.do(t, c.method, c.path, nil, c.body).refused(t, http.StatusBadRequest, "1001", "BadRequest")
		if !strings.Contains(says, "x-ms-documentdb-partitionkey") {
			t.Errorf("%s: %s, want the name of the header", c.method, says)
		}
	}
}

// uniqueOn is a unique key policy of one key with so many paths.
func uniqueOn(paths int) string {
	var list []string
	for i := range paths {
		list = append(list, `"/p`+strconv.Itoa(i)+`"`)
	}
	return `"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]},{"paths":[` + strings.Join(list, ",") + `]}]}`
}

// flatOn is a flat index of vectors with so many dimensions.
func flatOn(dimensions, kind string) string {
	return strings.Replace(vectors, "256", dimensions, 1) + "," +
		indexed(`"vectorIndexes":[{"path":"/v","type":"`+kind+`"}]`)
}

// What a new container cannot have in the service. Each refusal names the member, the value and the limit.
func TestANewContainerHasTheLimitsOfTheService(t *testing.T) {
	strict, _ := newContainer(t, Options{})
	lenient, _ := newContainer(t, Options{Lenient: true})
	const notAccepted = "could not be accepted, failed near position "
	for _, test := range []struct{ paths, more, want string }{
		{`"/pk"`, uniqueOn(16), ""},
		{`"/pk"`, uniqueOn(17), "uniqueKeyPolicy.uniqueKeys[1].paths has 17 paths: want at most 16"},
		{`"/pk"`, flatOn("505", "flat"), ""},
		{`"/pk"`, flatOn("4096", "quantizedFlat"), ""},
		{
			`"/pk"`, flatOn("506", "Flat"),
			"indexingPolicy.vectorIndexes has /v of type Flat with 506 dimensions: want at most 505, or quantizedFlat or " +
				"diskANN",
		},
		{`"/pk"`, indexed(`"compositeIndexes":[[{"path":"/a"},{"path":"/b"}]]`), ""},
		{
			`"/pk"`, indexed(`"compositeIndexes":[[{"path":"/a"},{"path":"/b"}],[{"path":"/c"}]]`),
			"indexingPolicy.compositeIndexes[1] has the length 1: want at least 2 paths",
		},
		{`"/pk"`, indexed(`"compositeIndexes":[[]]`), "indexingPolicy.compositeIndexes[0] has the length 0: want at least 2 paths"},
		{
			`"/pk"`, `"indexingPolicy":{"indexingMode":"Lazy"}`,
			"indexingPolicy.indexingMode is Lazy: want consistent or none",
		},
		{`"/a-b_c/d"`, "", ""},
		{`"/\"a[0] b.c\"/'d@e'"`, "", ""},
		{`"/\"a\\\"[b\""`, "", ""},
		{`"/pk[0]"`, "", "'/pk[0]' " + notAccepted + "'3'"},
		{`"/a b"`, "", "'/a b' " + notAccepted + "'2'"},
		{`"/a/b.c"`, "", "'/a/b.c' " + notAccepted + "'4'"},
		{`"/a+b"`, "", "'/a+b' " + notAccepted + "'2'"},
		{`"/a@b"`, "", "'/a@b' " + notAccepted + "'2'"},
		{`"/a*"`, "", "'/a*' " + notAccepted + "'2'"},
	} {
		body := `{"id":"s","partitionKey":{"paths":[` + test.paths + `],"kind":"Hash","version":2},` + test.more + `}`
		body = strings.ReplaceAll(body, ",}", "}")
		if test.want != "" {
			a := strict.do(t, "POST", "/dbs/db/colls", nil, body)
			message := a.refused(t, http.StatusBadRequest, "0", "BadRequest")
			if plain := strings.ReplaceAll(message, `\`, ""); !strings.Contains(plain, test.want) {
				t.Errorf("%s: %s, want %s", body, message, test.want)
			}
		} else {
			strict.do(t, "POST", "/dbs/db/colls", nil, body).want(t, http.StatusCreated)
			strict.do(t, "DELETE", "/dbs/db/colls/s", nil, "").want(t, http.StatusNoContent)
		}
		lenient.do(t, "POST", "/dbs/db/colls", nil, body).want(t, http.StatusCreated)
		lenient.do(t, "DELETE", "/dbs/db/colls/s", nil, "").want(t, http.StatusNoContent)
	}
}

// A container that exists may keep what a new one cannot have: the service has such containers too.
func TestAnOldContainerKeepsALazyIndex(t *testing.T) {
	w, _ := newContainer(t, Options{Lenient: true})
	const body = `{"id":"s","partitionKey":{"paths":["/a.b"],"kind":"Hash","version":2},` +
		`"indexingPolicy":{"indexingMode":"lazy"}}`
	w.do(t, "POST", "/dbs/db/colls", nil, body).want(t, http.StatusCreated)
	strict := serveStore(t, w.db, Options{})
	strict.do(t, "PUT", "/dbs/db/colls/s", nil, body).want(t, http.StatusOK)
}

// A new item has a key of 2,048 bytes at most. Items that exist can be read and deleted under longer keys.
func TestAKeyOfANewItemHasALimit(t *testing.T) {
	longest, longer := strings.Repeat("x", 2048), strings.Repeat("ß", 1025)
	item := func(key string) string { return `{"id":"a","pk":"` + key + `"}` }
	create := func(key string) string { return `{"operationType":"Create","resourceBody":` + item(key) + `}` }
	const says = "level 1 of the partition key has 2050 bytes: want at most 2048"
	lenient, _ := newContainer(t, Options{Lenient: true})
	lenient.do(t, "POST", docs, under(longer), item(longer)).want(t, http.StatusCreated)
	w := serveStore(t, lenient.db, Options{})
	w.do(t, "POST", docs, under(longest), item(longest)).want(t, http.StatusCreated)
	upsert := under(longer, "x-ms-documentdb-is-upsert", "True")
	for _, headers := range []map[string]string{under(longer), upsert} {
		message := w.do(t, "POST", docs, headers, strings.Replace(item(longer), `"a"`, `"b"`, 1)).refused(t,
			http.StatusBadRequest, "0", "BadRequest")
		if !strings.Contains(message, says) {
			t.Errorf("message %.200q, want %q", message, says)
		}
	}
	const batch, atomic = "x-ms-cosmos-is-batch-request", "x-ms-cosmos-batch-atomic"
	whole := w.do(t, "POST", docs, under(longer, batch, "True", atomic, "True"), `[`+create(longer)+`]`)
	if whole.status != http.StatusBadRequest || !strings.Contains(string(whole.body), says) {
		t.Errorf("an atomic batch: %d %.200q, want 400 and %q", whole.status, whole.body, says)
	}
	own := `,"partitionKey":"[\"` + longer + `\"]"}`
	bulk := w.do(t, "POST", docs, map[string]string{batch: "True", atomic: "False"},
		`[`+strings.TrimSuffix(create(longer), "}")+own+`]`)
	if !strings.Contains(string(bulk.body), `"statusCode":400`) || !strings.Contains(string(bulk.body), says) {
		t.Errorf("a bulk: %d %.200q, want 400 and %q", bulk.status, bulk.body, says)
	}
	w.do(t, "GET", docs+"/a", under(longer), "").want(t, http.StatusOK)
	w.do(t, "DELETE", docs+"/a", under(longer), "").want(t, http.StatusNoContent)
}

// Version 1 of the hash reads the beginning of a key, and the service accepts longer keys.
func TestAKeyOfVersion1MayBeLong(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":1}}`, nil)
	long := strings.Repeat("x", 3000)
	w.do(t, "POST", docs, under(long), `{"id":"a","pk":"`+long+`"}`).want(t, http.StatusCreated)
}
