package cosmosrest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

func TestContainerLives(t *testing.T) {
	w, cont := newContainer(t, Options{})
	read := w.do(t, "GET", "/dbs/db/colls/c", nil, "").want(t, http.StatusOK)
	p := read.object(t)
	self := strings.Split(cont.Self(), "/")
	if p["id"] != "c" || p["_rid"] != cont.RID() || len(cont.RID()) != 12 || p["_self"] != cont.Self() ||
		self[3] != cont.RID() {
		t.Errorf("read %s", read.body)
	}
	for _, name := range []string{"_docs", "_sprocs", "_triggers", "_udfs", "_conflicts"} {
		if p[name] != name[1:]+"/" {
			t.Errorf("%s is %v", name, p[name])
		}
	}
	etag := read.header.Get("etag")
	if etag == "" || p["_etag"] != etag || p["_ts"].(float64) < 1 {
		t.Errorf("ETag %q beside %s", etag, read.body)
	}
	if path, alt := read.header.Get("x-ms-content-path"), read.header.Get("x-ms-alt-content-path"); path != self[1] ||
		alt != "dbs/db" {
		t.Errorf("content paths %q and %q, want those of the database: clients put them before the container's", path,
			alt)
	}
	for _, path := range []string{"/" + cont.Self(), "/dbs/" + self[1] + "/colls/" + self[3]} {
		if again := w.do(t, "GET", path, nil, "").want(t, http.StatusOK); string(again.body) != string(read.body) {
			t.Errorf("%s: %s, want %s", path, again.body, read.body)
		}
	}
	w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"If-None-Match": etag}, "").want(t, http.StatusNotModified)
	usage := w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"x-ms-documentdb-populatequotainfo": "True"},
		"").header.Get("x-ms-resource-usage")
	if !strings.HasSuffix(usage, ";documentsCount=0;") {
		t.Errorf("usage %q", usage)
	}
	w.do(t, "POST", "/dbs/db/colls", nil, `{"id":"c","partitionKey":{"paths":["/pk"]}}`).refused(t, http.StatusConflict,
		"0", "Conflict")
	if p["statistics"] != nil {
		t.Errorf("statistics that nobody asked for: %v", p["statistics"])
	}
	w.do(t, "DELETE", "/dbs/db/colls/c", map[string]string{"If-Match": `"other"`}, "").refused(t,
		http.StatusPreconditionFailed, "0", "PreconditionFailed")
	w.do(t, "DELETE", "/dbs/db/colls/c", nil, "").want(t, http.StatusNoContent)
	w.do(t, "GET", "/dbs/db/colls/c", nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
	w.do(t, "DELETE", "/dbs/db/colls/c", nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
	w.do(t, "GET", "/dbs/db/colls/c/docs", nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
}

func TestContainersOfADatabase(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.create(t, "db", `{"id":"a","partitionKey":{"paths":["/pk"]}}`, nil)
	w.create(t, "other", `{"id":"b","partitionKey":{"paths":["/pk"]}}`, nil)
	all := w.do(t, "GET", "/dbs/db/colls", nil, "")
	if got := column(t, all.list(t, "DocumentCollections"), "id"); got != "a c" {
		t.Errorf("listed %s", got)
	}
	d, err := w.db.Database("db")
	if err != nil {
		t.Fatal(err)
	}
	if rid := all.object(t)["_rid"]; rid != d.RID {
		t.Errorf("feed of %v, want %s", rid, d.RID)
	}
	query := map[string]string{"Content-Type": "application/query+json"}
	found := w.do(t, "POST", "/dbs/"+d.RID+"/colls", query, `{"query":"SELECT * FROM c WHERE c.id = 'c'"}`)
	if got := column(t, found.list(t, "DocumentCollections"), "id"); got != "c" {
		t.Errorf("found %s", got)
	}
	if got := w.do(t, "POST", "/dbs/db/colls", query, `{"query":"SELECT VALUE COUNT(1) FROM c"}`).want(t,
		http.StatusOK); !strings.Contains(string(got.body), `:[2]`) {
		t.Errorf("counted %s", got.body)
	}
	w.do(t, "GET", "/dbs/none/colls/c", nil, "").refused(t, http.StatusNotFound, "1003", "NotFound")
	w.do(t, "POST", "/dbs/none/colls", query, `{"query":"SELECT * FROM c"}`).refused(t, http.StatusNotFound, "1003",
		"NotFound")
	w.do(t, "POST", "/dbs/none/colls", nil, `{"id":"c","partitionKey":{"paths":["/pk"]}}`).refused(t,
		http.StatusNotFound, "1003", "NotFound")
}

// What the client said is kept, also what the server knows nothing of; what it did not
// say is what the service fills in.
func TestContainerProperties(t *testing.T) {
	const indexed = `"indexingPolicy":{"automatic":true,"indexingMode":"consistent","includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}`
	const rest = `"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"}`
	const vector = `"vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","dataType":"float32","distanceFunction":"cosine","dimensions":10}]},"computedProperties":[{"name":"low","query":"SELECT VALUE LOWER(c.a) FROM c"}],"x":{"y":[1.50,"<&>"]}`
	for _, test := range []struct{ name, sent, want string }{
		{
			"as little as can be", `"partitionKey":{"paths":["/pk"]}`,
			`"partitionKey":{"paths":["/pk"],"kind":"Hash"},` + indexed + `,` + rest,
		},
		{
			"unknown policies", `"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},` + vector,
			`"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},` + indexed + `,` + rest + `,` + vector,
		},
		{
			"a hierarchical key", `"partitionKey":{"paths":["/a","/b/c","/d"]}`,
			`"partitionKey":{"paths":["/a","/b/c","/d"],"kind":"MultiHash","version":2},` + indexed + `,` + rest,
		},
		{
			"a version in words, as the Java SDK has it",
			`"partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":"V2","x":1}`,
			`"partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2,"x":1},` + indexed + `,` + rest,
		},
		{
			"policies that are complete in part",
			`"partitionKey":{"paths":["/pk"]},"indexingPolicy":{"indexingMode":"Consistent","spatialIndexes":[]},"conflictResolutionPolicy":{"conflictResolutionPath":"/v"}`,
			`"partitionKey":{"paths":["/pk"],"kind":"Hash"},"indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}],"spatialIndexes":[]},` +
				`"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/v","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"}`,
		},
		{
			"no index", `"partitionKey":{"paths":["/pk"]},"indexingPolicy":{"indexingMode":"none","automatic":false}`,
			`"partitionKey":{"paths":["/pk"],"kind":"Hash"},"indexingPolicy":{"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]},` + rest,
		},
		{
			"time to live, unique keys, retention",
			`"partitionKey":{"paths":["/pk"]},"defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b"]}]},"changeFeedPolicy":{"retentionDuration":10,"more":1}`,
			`"partitionKey":{"paths":["/pk"],"kind":"Hash"},"defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b"]}]},"changeFeedPolicy":{"retentionDuration":10,"more":1},` + indexed + `,` + rest,
		},
		{
			"nulls",
			`"partitionKey":{"paths":["/pk"]},"defaultTtl":null,"uniqueKeyPolicy":null,"changeFeedPolicy":null,"indexingPolicy":null`,
			`"partitionKey":{"paths":["/pk"],"kind":"Hash"},` + indexed + `,` + rest,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.create(t, "db", `{"id":"c",`+test.sent+`,"_rid":"theirs","_self":"theirs"}`, nil)
			sameMembers(t, w.do(t, "GET", "/dbs/db/colls/c", nil, ""), `{`+test.want+`}`)
		})
	}
}

// sameMembers compares all members that are not the server's own.
func sameMembers(t *testing.T, a answer, want string) {
	t.Helper()
	a.want(t, http.StatusOK)
	got := a.object(t)
	for _, name := range append([]string{"id"}, systemMembers...) {
		if got[name] == nil || got[name] == "theirs" {
			t.Errorf("%s is %v", name, got[name])
		}
		delete(got, name)
	}
	var expected map[string]any
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, expected) {
		t.Errorf("properties are\n%s, want\n%s", wire.Encode(got), wire.Encode(expected))
	}
}

func TestContainerSpecification(t *testing.T) {
	w := newWorld(t, Options{})
	ttl := 60
	for _, test := range []struct {
		sent string
		want docstore.ContainerSpec
	}{
		{`"partitionKey":{"paths":["/pk"]}`, docstore.ContainerSpec{Paths: []string{"/pk"}, HashVersion: 1}},
		{`"partitionKey":{"paths":["/pk"],"kind":"Hash","version":1}`, docstore.ContainerSpec{
			Paths:       []string{"/pk"},
			HashVersion: 1,
		}},
		{`"partitionKey":{"paths":["/pk"],"version":2}`, docstore.ContainerSpec{
			Paths:       []string{"/pk"},
			HashVersion: 2,
		}},
		{`"partitionKey":{"paths":["/a","/b"]}`, docstore.ContainerSpec{Paths: []string{"/a", "/b"}, HashVersion: 2}},
		{`"partitionKey":{"paths":["/a"],"kind":"MultiHash"}`, docstore.ContainerSpec{
			Paths:       []string{"/a"},
			HashVersion: 2,
		}},
		{
			`"partitionKey":{"paths":["/pk"]},"defaultTtl":60,"changeFeedPolicy":{"retentionDuration":5},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b"]},{"paths":["/c"]}]}`,
			docstore.ContainerSpec{
				Paths: []string{"/pk"}, HashVersion: 1, DefaultTTL: &ttl, Retention: 5 * time.Minute,
				UniqueKeys: [][]string{{"/a", "/b"}, {"/c"}},
			},
		},
	} {
		cont := w.create(t, "db", `{"id":"c",`+test.sent+`}`, nil)
		test.want.ID, test.want.Database, test.want.Ranges = "c", "db", 1
		got := cont.Spec()
		got.Meta = nil
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", test.sent, got, test.want)
		}
		w.do(t, "DELETE", "/dbs/db/colls/c", nil, "").want(t, http.StatusNoContent)
	}
}

func TestContainerRefusals(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(t, "POST", "/dbs", nil, `{"id":"db"}`).want(t, http.StatusCreated)
	for _, test := range []struct{ sent, want string }{
		{``, "partitionKey is missing"},
		{`"partitionKey":5`, "partitionKey is 5"},
		{`"partitionKey":{}`, "partitionKey.paths has 0 paths"},
		{`"partitionKey":{"paths":["/a","/b","/c","/d"]}`, "Too many partition key paths"},
		{`"partitionKey":{"paths":["a"]}`, "partition key component definition path 'a' could not be accepted"},
		{`"partitionKey":{"paths":["/a"],"kind":"Range"}`, `partitionKey.kind is \"Range\"`},
		{`"partitionKey":{"paths":["/a","/b"],"kind":"Hash"}`, "partitionKey.kind is Hash with 2 paths"},
		{`"partitionKey":{"paths":["/a"],"version":3}`, "partitionKey.version is 3"},
		{`"partitionKey":{"paths":["/a","/b"],"version":1}`, "partitionKey.version is 1"},
		{`"partitionKey":{"paths":["/a"]},"defaultTtl":0`, "default ttl is 0"},
		{`"partitionKey":{"paths":["/a"]},"defaultTtl":-2`, "default ttl is -2"},
		{`"partitionKey":{"paths":["/a"]},"defaultTtl":1.5`, "defaultTtl is 1.5"},
		{`"partitionKey":{"paths":["/a"]},"defaultTtl":"5"`, `defaultTtl is \"5\"`},
		{
			`"partitionKey":{"paths":["/a"]},"changeFeedPolicy":{"retentionDuration":-1}`,
			"changeFeedPolicy.retentionDuration is -1",
		},
		{`"partitionKey":{"paths":["/a"]},"changeFeedPolicy":{"retentionDuration":0.5}`, "changeFeedPolicy is"},
		{
			`"partitionKey":{"paths":["/a"]},"changeFeedPolicy":{"retentionDuration":9999999999}`,
			"changeFeedPolicy.retentionDuration is 9999999999",
		},
		{`"partitionKey":{"paths":["/a"]},"uniqueKeyPolicy":{"uniqueKeys":[{}]}`, "unique key has no paths"},
		{`"partitionKey":{"paths":["/a"]},"uniqueKeyPolicy":[]`, "uniqueKeyPolicy is []"},
		{
			`"partitionKey":{"paths":["/a"]},"indexingPolicy":{"indexingMode":"fast"}`,
			`indexingPolicy.indexingMode is \"fast\"`,
		},
		{
			`"partitionKey":{"paths":["/a"]},"indexingPolicy":{"includedPaths":[{"path":"/a/?"}]}`,
			"indexingPolicy has no path /*",
		},
		{
			`"partitionKey":{"paths":["/a"]},"indexingPolicy":{"excludedPaths":[{"path":"*"}]}`,
			`indexingPolicy has the path \"*\"`,
		},
		{`"partitionKey":{"paths":["/a"]},"indexingPolicy":"none"`, "indexingPolicy is"},
		{`"partitionKey":{"paths":["/a"]},"geospatialConfig":1`, "geospatialConfig is 1"},
		{`"partitionKey":{"paths":["/a"]},"conflictResolutionPolicy":"x"`, "conflictResolutionPolicy is"},
		{
			`"partitionKey":{"paths":["/a"]},"conflictResolutionPolicy":{"mode":"First"}`,
			`conflictResolutionPolicy.mode is \"First\": want LastWriterWins or Custom`,
		},
		{
			`"partitionKey":{"paths":["/a"]},"geospatialConfig":{"type":"Flat"}`,
			`geospatialConfig.type is \"Flat\": want Geography or Geometry`,
		},
	} {
		message := w.do(t, "POST", "/dbs/db/colls", nil, strings.ReplaceAll(`{"id":"c",`+test.sent+`}`, ",}",
			"}")).refused(t, http.StatusBadRequest, "0", "BadRequest")
		if !strings.Contains(message, test.want) {
			t.Errorf("%s: message %q, want %q in it", test.sent, message, test.want)
		}
	}
}

func TestLenientServerNeedsNoPartitionKey(t *testing.T) {
	w := newWorld(t, Options{Lenient: true})
	cont := w.create(t, "db", `{"id":"c"}`, nil)
	if got := cont.Spec(); !reflect.DeepEqual(got.Paths, []string{"/_partitionKey"}) || got.HashVersion != 2 {
		t.Errorf("specification %+v", got)
	}
	key, _ := w.do(t, "GET", "/dbs/db/colls/c", nil, "").object(t)["partitionKey"].(map[string]any)
	if key["systemKey"] != true {
		t.Errorf("partition key %v", key)
	}
}

func TestReplaceContainer(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db",
		`{"id":"c","partitionKey":{"paths":["/pk"]},"defaultTtl":60,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]},"mine":1}`, nil)
	first := w.do(t, "GET", "/dbs/db/colls/c", nil, "")
	etag := first.header.Get("etag")
	next := w.do(t, "PUT", "/dbs/db/colls/c", map[string]string{"If-Match": etag},
		`{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash"},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]},"changeFeedPolicy":{"retentionDuration":7}}`).want(t, http.StatusOK)
	if next.header.Get("etag") == etag {
		t.Errorf("the ETag is still %s", etag)
	}
	if s := cont.Spec(); s.DefaultTTL != nil || s.Retention != 7*time.Minute || len(s.UniqueKeys) != 1 {
		t.Errorf("specification %+v", s)
	}
	p := next.object(t)
	if p["defaultTtl"] != nil || p["mine"] != nil || p["uniqueKeyPolicy"] == nil || p["_rid"] != cont.RID() {
		t.Errorf("replaced %s", next.body)
	}
	w.do(t, "PUT", "/dbs/db/colls/c", map[string]string{"If-Match": etag},
		`{"id":"c","partitionKey":{"paths":["/pk"]}}`).
		refused(t, http.StatusPreconditionFailed, "0", "PreconditionFailed")
	back := w.do(t, "PUT", "/"+cont.Self(), nil, string(first.body)).want(t, http.StatusOK)
	if p := back.object(t); p["defaultTtl"] != 60.0 || p["mine"] != 1.0 || cont.Spec().Retention != 0 {
		t.Errorf("written back: %s", back.body)
	}
	w.do(t, "PUT", "/dbs/db/colls/c", nil,
		`{"id":"c","partitionKey":{"paths":["/pk"]},"uniqueKeyPolicy":{"uniqueKeys":[]}}`).refused(t,
		http.StatusForbidden, "0", "Forbidden")
	for _, test := range []struct{ body, want string }{
		{`{"partitionKey":{"paths":["/pk"]}}`, "id is missing"},
		{`{"id":"d","partitionKey":{"paths":["/pk"]}}`, `id is \"d\"`},
		{`{"id":"c"}`, "partitionKey is missing"},
		{`{"id":"c","partitionKey":{"paths":["/other"]}}`, "it cannot be changed"},
		{`{"id":"c","partitionKey":{"paths":["/pk"],"version":2}}`, "it cannot be changed"},
		{`{"id":"c","partitionKey":{"paths":["/pk"]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]},"defaultTtl":0}`, "default ttl is 0"},
	} {
		message := w.do(t, "PUT", "/dbs/db/colls/c", nil, test.body).refused(t, http.StatusBadRequest, "0",
			"BadRequest")
		if !strings.Contains(message, test.want) {
			t.Errorf("%s: message %q, want %q in it", test.body, message, test.want)
		}
	}
	if now := w.do(t, "GET", "/dbs/db/colls/c", nil, ""); string(now.body) != string(back.body) {
		t.Errorf("refused replaces have left %s, want %s", now.body, back.body)
	}
	w.do(t, "PUT", "/dbs/db/colls/none", nil, `{"id":"none","partitionKey":{"paths":["/pk"]}}`).refused(t,
		http.StatusNotFound, "0", "NotFound")
}

func TestAnyVersionOfAResourceMeetsAStar(t *testing.T) {
	w, _ := newContainer(t, Options{})
	star := map[string]string{"If-Match": "*"}
	w.do(t, "PUT", "/dbs/db/colls/c", star, smallContainer).want(t, http.StatusOK)
	w.do(t, "DELETE", "/dbs/db/colls/c", star, "").want(t, http.StatusNoContent)
	w.do(t, "DELETE", "/dbs/db", star, "").want(t, http.StatusNoContent)
}

// A container that was made without the server is seen as its specification says.
func TestContainerMadeOutside(t *testing.T) {
	w := newWorld(t, Options{})
	ttl := docstore.NoDefaultTTL
	spec := docstore.ContainerSpec{
		ID: "c", Paths: []string{"/a", "/b"}, DefaultTTL: &ttl, Retention: time.Hour,
		UniqueKeys: [][]string{{"/x"}},
	}
	cont, err := w.db.CreateContainer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	read := w.do(t, "GET", "/dbs/default/colls/c", nil, "")
	sameMembers(t, read,
		`{"partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2},"defaultTtl":-1,"changeFeedPolicy":{"retentionDuration":60},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/x"]}]},
		"indexingPolicy":{"automatic":true,"indexingMode":"consistent","includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},
		"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"}}`)
	if etag := read.header.Get("etag"); etag != etagOf(cont) {
		t.Errorf("ETag %s, want %s", etag, etagOf(cont))
	}
	w.do(t, "PUT", "/dbs/default/colls/c", map[string]string{"If-Match": etagOf(cont)}, string(read.body)).want(t,
		http.StatusOK)
	if s := cont.Spec(); s.Retention != time.Hour || *s.DefaultTTL != -1 {
		t.Errorf("written back: %+v", s)
	}
}

// A container that was made anew is not the one that a client means which names it by its
// resource id besides.
func TestIntendedContainer(t *testing.T) {
	w, cont := newContainer(t, Options{})
	mine := map[string]string{"x-ms-cosmos-intended-collection-rid": cont.RID()}
	w.do(t, "GET", "/dbs/db/colls/c/pkranges", mine, "").want(t, http.StatusOK)
	w.do(t, "DELETE", "/dbs/db/colls/c", mine, "").want(t, http.StatusNoContent)
	w.create(t, "db", smallContainer, nil)
	w.do(t, "GET", "/dbs/db/colls/c/pkranges", mine, "").refused(t, http.StatusBadRequest, "1024", "BadRequest")
}

// Who may only read changes nothing.
func TestReadOnlyKeyManagesNothing(t *testing.T) {
	reader := base64.StdEncoding.EncodeToString([]byte("only for reading, nothing else"))
	w := newWorld(t, Options{Keys: Keys{Primary: wellKnownKey, PrimaryReadOnly: reader}})
	w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "400"})
	offer := "/" + w.theOffer(t, "true")["_self"].(string)
	writer := *w
	w.key = reader
	for _, path := range []string{
		"/", "/dbs", "/dbs/db", "/dbs/db/colls", "/dbs/db/colls/c",
		"/dbs/db/colls/c/pkranges", "/offers", offer,
	} {
		w.do(t, "GET", path, nil, "").want(t, http.StatusOK)
	}
	for _, path := range []string{"/dbs", "/dbs/db/colls", "/offers"} {
		w.do(t, "POST", path, queryHeaders, `{"query":"SELECT * FROM c"}`).want(t, http.StatusOK)
	}
	for _, test := range []struct{ method, path, body string }{
		{"POST", "/dbs", `{"id":"new"}`},
		{"DELETE", "/dbs/db", ``},
		{"POST", "/dbs/db/colls", named("new")},
		{"PUT", "/dbs/db/colls/c", smallContainer},
		{"DELETE", "/dbs/db/colls/c", ``},
		{"PUT", offer, `{"content":{"offerThroughput":500}}`},
		{"POST", "/dbs/db/colls/c/partitions", `{"operation":"split","id":"0"}`},
	} {
		w.do(t, test.method, test.path, nil, test.body).refused(t, http.StatusForbidden, "0", "Forbidden")
	}
	writer.do(t, "GET", "/dbs/db/colls/c", nil, "").want(t, http.StatusOK)
	if all := writer.do(t, "GET", "/dbs/db/colls/c/pkranges", nil, "").list(t, "PartitionKeyRanges"); len(all) != 1 {
		t.Errorf("%d ranges, want one", len(all))
	}
}

// What is asked of a store that has been closed is a 503, not a 404.
func TestClosedStore(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	w := serveStore(t, db, Options{})
	w.create(t, "db", smallContainer, nil)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dbs/db", "/dbs/db/colls", "/dbs/db/colls/c", "/dbs/db/colls/c/pkranges"} {
		w.do(t, "GET", path, nil, "").refused(t, http.StatusServiceUnavailable, "0", "ServiceUnavailable")
	}
}

// After a 503 clients try again, and after a 500 they report a defect.
func TestAStoreThatTakesNothingForNowIsUnavailable(t *testing.T) {
	for _, err := range []error{docstore.ErrClosed, docstore.ErrFailed, docstore.ErrDiskFull} {
		e := errorOf(fmt.Errorf("write: %w", err))
		if e.Status != http.StatusServiceUnavailable || !strings.Contains(e.Message, err.Error()) {
			t.Errorf("%v: answered %d %s, want 503 that says so", err, e.Status, e.Message)
		}
	}
}

// etagOf is the ETag of a container's specification.
func etagOf(c *docstore.Container) string {
	etag, _ := c.Version()
	return etag
}
