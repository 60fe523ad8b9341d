package cosmosrest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

const (
	vectors = `"vectorEmbeddingPolicy":{"vectorEmbeddings":[` +
		`{"path":"/v","dataType":"float32","dimensions":256,"distanceFunction":"euclidean"}]}`
	texts = `"fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text","language":"en-US"}]}`
)

// searchable is the description of a container with more members.
func searchable(id, more string) string {
	return `{"id":"` + id + `","partitionKey":{"paths":["/pk"],"kind":"Hash"},` + more + `}`
}

// indexed is an indexing policy with indexes for searches.
func indexed(more string) string {
	return `"indexingPolicy":{"includedPaths":[{"path":"/*"}],` + more + `}`
}

// What the service refuses, in its words: the tests of its SDKs look for them.
func TestRefusedSearchPolicies(t *testing.T) {
	strict, _ := newContainer(t, Options{})
	lenient, _ := newContainer(t, Options{Lenient: true})
	for _, test := range []struct{ more, want string }{
		{
			indexed(`"vectorIndexes":[{"path":"/v","type":"flat"}]`),
			"The Vector Indexing Policy's path::/v not matching in Embedding's path.",
		},
		{
			vectors + `,` + indexed(`"vectorIndexes":[{"path":"/v3","type":"flat"}]`),
			"The Vector Indexing Policy's path::/v3 not matching in Embedding's path.",
		},
		{
			vectors + `,` + indexed(`"vectorIndexes":[{"path":"/v","type":"notFlat"}]`),
			"The Vector Indexing Policy's Index Type::notFlat is invalid.",
		},
		{
			vectors + `,` + indexed(`"vectorIndexes":[{"path":"/v","type":"quantizedFlat","quantizationByteSize":0}]`),
			"The Vector Indexing Policy parameter QuantizationByteSize value :: 0 is out of range. The allowed range is " +
				"between 1 and 256.",
		},
		{
			vectors + `,` + indexed(`"vectorIndexes":[{"path":"/v","type":"diskANN","indexingSearchListSize":5}]`),
			"IndexingSearchListSize value :: 5 is out of range. The allowed range is between 25 and 500.",
		},
		{
			vectors + `,` + indexed(`"vectorIndexes":[{"path":"/v","type":"diskANN","vectorIndexShardKey":["country"]}]`),
			"The Vector Indexing Policy has an invalid Shard Path: country.",
		},
		{
			vectors + `,` + indexed(`"vectorIndexes":[{"path":"/v","type":"diskANN","vectorIndexShardKey":["/a","/b"]}]`),
			"The number of shard paths defined in the Vector Indexing Policy: 2 exceeds the maximum: 1.",
		},
		{
			vectors + `,` + indexed(`"vectorIndexes":[{"path":"/v","type":"diskANN","vectorIndexShardKey":"/a"}]`),
			"One of the specified inputs is invalid",
		},
		{strings.Replace(vectors, "float32", "float33", 1), "The Vector Embedding Policy has an invalid DataType:float33"},
		{
			strings.Replace(vectors, "256", "8000", 1),
			"Vector Embedding Policy has Dimensions:8000 which is more than the maximum supported value",
		},
		{strings.Replace(vectors, "256", "-1", 1), "The Vector Embedding Policy has Dimensions:-1"},
		{
			strings.Replace(vectors, "euclidean", "handMeasured", 1),
			"The Vector Embedding Policy has an invalid DistanceFunction:handMeasured",
		},
		{strings.Replace(vectors, "/v", "v", 1), "The Vector Embedding Policy has an invalid Path:v"},
		{strings.Replace(texts, "/text", "text", 1), "The Full Text Policy contains an invalid Path: text"},
		{
			strings.Replace(texts, "en-US", "spa-SPA", 1),
			"The Full Text Policy contains an unsupported language spa-SPA. Supported languages are:",
		},
		{
			texts + `,` + indexed(`"fullTextIndexes":[{"path":"/other"}]`),
			"The path of the Full Text Index /other does not match the path specified in the Full Text Policy",
		},
		{
			texts + `,` + indexed(`"fullTextIndexes":[{"path":"text"}]`),
			"Full-text index specification at index (0) contains invalid path",
		},
		{
			texts + `,` + indexed(`"fullTextIndexes":[{"no":"text"}]`),
			"Missing path in full-text index specification at index (0)",
		},
		{indexed(`"spatialIndexes":[{"path":"/at/*"}]`), "indexingPolicy.spatialIndexes[0].types is missing or empty"},
		{indexed(`"spatialIndexes":[{"path":"/at/*","types":["Circle"]}]`), "spatialIndexes[0].types has"},
		{indexed(`"spatialIndexes":[{"types":["Point"]}]`), "indexingPolicy.spatialIndexes[0].path is"},
	} {
		body := searchable("s", test.more)
		message := strict.do(t, "POST", "/dbs/db/colls", nil, body).refused(t, http.StatusBadRequest, "0", "BadRequest")
		if !strings.Contains(message, test.want) {
			t.Errorf("%s: %s, want %s", test.more, message, test.want)
		}
		if strings.Contains(test.want, "One of the specified inputs") {
			continue
		}
		lenient.do(t, "POST", "/dbs/db/colls", nil, body).want(t, http.StatusCreated)
		lenient.do(t, "DELETE", "/dbs/db/colls/s", nil, "").want(t, http.StatusNoContent)
	}
}

// The policies come back as the client wrote them. Paths may be added, but neither a vector nor its index changed.
func TestSearchPoliciesAreKept(t *testing.T) {
	w, _ := newContainer(t, Options{})
	index := indexed(`"vectorIndexes":[{"path":"/v","type":"flat"}],"fullTextIndexes":[{"path":"/text"}],` +
		`"spatialIndexes":[{"path":"/at/*","types":["Point"]}]`)
	w.do(t, "POST", "/dbs/db/colls", nil, searchable("s", vectors+","+texts+","+index)).want(t, http.StatusCreated)
	got := string(w.do(t, "GET", "/dbs/db/colls/s", nil, "").want(t, http.StatusOK).body)
	for _, want := range []string{
		vectors, texts, `"vectorIndexes":[{"path":"/v","type":"flat"}]`, `"fullTextIndexes":[{"path":"/text"}]`,
		`"spatialIndexes":[{"path":"/at/*","types":["Point"]}]`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the container is %s, want %s in it", got, want)
		}
	}
	for _, test := range []struct{ more, want string }{
		{index, "The Vector Indexing Policy's path::/v not matching in Embedding's path."},
		{texts + "," + indexed(`"automatic":true`), "Paths in existing embedding policy cannot be modified in Collection Replace"},
		{
			strings.Replace(vectors, "256", "384", 1) + "," + texts + "," + index,
			"Paths in existing embedding policy cannot be modified in Collection Replace",
		},
		{
			vectors + "," + texts + "," + strings.Replace(index, `"flat"`, `"quantizedFlat"`, 1),
			"Paths in existing vector indexing policy cannot be modified in Collection Replace",
		},
	} {
		a := w.do(t, "PUT", "/dbs/db/colls/s", nil, searchable("s", test.more))
		if !strings.Contains(string(a.body), test.want) {
			if test.more == index && strings.Contains(string(a.body), "Full Text") {
				continue
			}
			t.Errorf("%s: %d %s, want %s", test.more, a.status, a.body, test.want)
		}
	}
	more := strings.Replace(vectors, `[{`,
		`[{"path":"/w","dataType":"int8","dimensions":2,"distanceFunction":"cosine"},{`, 1)
	w.do(t, "PUT", "/dbs/db/colls/s", nil, searchable("s", more+","+texts+","+index)).want(t, http.StatusOK)
}

// The policy's distance function orders the rows, also of a query that names its vector by a parameter.
func TestThePolicyDecidesAboutTheDistance(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", searchable("c", strings.Replace(vectors, "256", "2", 1)), nil)
	for id, v := range map[string]string{"far": "[9,9]", "near": "[1,0]", "nearer": "[2,1]"} {
		w.item(t, id, `,"v":`+v).want(t, http.StatusCreated)
	}
	for _, vectors := range []string{"c[@v], [2, 2]", "[2, 2], c[@v]"} {
		distance := "VectorDistance(" + vectors + ")"
		query := "SELECT TOP 2 c.id, " + distance + " AS d FROM c ORDER BY " + distance
		var p plan
		w.ask(t, planned("OrderBy, Top, NonStreamingOrderBy"), query, "@v", `"v"`).want(t, http.StatusOK).into(t, &p)
		if len(p.Info.OrderBy) != 1 || p.Info.OrderBy[0] != "Ascending" {
			t.Errorf("the plan of %s sorts %v, want Ascending", distance, p.Info.OrderBy)
		}
		rows := w.ask(t, across("x-ms-documentdb-partitionkey", `["p"]`), query, "@v", `"v"`).want(t, http.StatusOK)
		if got := column(t, rows.list(t, "Documents"), "id"); got != "nearer near" {
			t.Errorf("%s: %s, want nearer near", distance, rows.body)
		}
	}
}

// Over all partitions, ORDER BY RANK is refused with its plan; with a partition key, the answer comes at once.
func TestRanks(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", searchable("c", texts), nil)
	for id, text := range map[string]string{"a": "one fish", "b": "red fish, blue fish", "c": "none"} {
		w.item(t, id, `,"text":"`+text+`"`).want(t, http.StatusCreated)
	}
	const query = "SELECT TOP 2 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'fish')"
	refused := w.ask(t, across(), query)
	refused.refused(t, http.StatusBadRequest, "1004", "BadRequest")
	var reply struct {
		Extra string `json:"additionalErrorInfo"`
	}
	refused.into(t, &reply)
	var p struct {
		Hybrid *struct {
			Take int `json:"take"`
		} `json:"hybridSearchQueryInfo"`
	}
	if err := json.Unmarshal([]byte(reply.Extra), &p); err != nil || p.Hybrid == nil || p.Hybrid.Take != 2 {
		t.Errorf("the refusal has the plan %s, %v", reply.Extra, err)
	}
	rows := w.ask(t, across("x-ms-documentdb-partitionkey", `["p"]`), query).want(t, http.StatusOK)
	if got := column(t, rows.list(t, "Documents"), "id"); got != "b a" {
		t.Errorf("%s, want b a", rows.body)
	}
	// Each page ends where the next begins.
	pages := w.pages(t, "POST", across("x-ms-documentdb-partitionkey", `["p"]`, "x-ms-max-item-count", "1"),
		"SELECT c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'fish'), FullTextScore(c.text, 'red'))")
	if pages != "b|a|c" {
		t.Errorf("pages %s, want b|a|c", pages)
	}
}
