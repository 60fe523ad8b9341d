package cosmosrest

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
)

// Recordings of the service show both forms: clients of 2015-12-16 get the kinds of indexes, later ones do not.
func TestIndexingPoliciesHaveTheFormOfTheVersion(t *testing.T) {
	const (
		etag    = `"excludedPaths":[{"path":"/\"_etag\"/?"}]`
		ranges  = `{"kind":"Range","dataType":"String","precision":-1},{"kind":"Range","dataType":"Number","precision":-1}`
		plain   = `{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],` + etag + `}`
		indexed = `{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*","indexes":[` + ranges +
			`]}],` + etag + `}`
	)
	for _, test := range []struct{ name, sent, before, since string }{
		{"none", `{}`, indexed, plain},
		{
			"an index of texts alone",
			`{"indexingMode":"Consistent","includedPaths":[{"path":"/*","indexes":[{"dataType":"String","kind":"Range"}]}]}`,
			indexed, plain,
		},
		{
			"both", `{"indexingMode":"Lazy","includedPaths":[{"path":"/*","indexes":[
				{"dataType":"Number","kind":"Range","precision":-1},{"dataType":"String","kind":"Hash"}]}]}`,
			`{"indexingMode":"lazy","automatic":true,"includedPaths":[{"path":"/*","indexes":[
				{"kind":"Range","dataType":"Number","precision":-1},{"kind":"Hash","dataType":"String","precision":3}]}],` +
				etag + `}`,
			`{"indexingMode":"lazy","automatic":true,"includedPaths":[{"path":"/*"}],` + etag + `}`,
		},
		{
			"precisions of the client", `{"includedPaths":[{"path":"/*","indexes":[
				{"dataType":"Number","kind":"Range","precision":2},{"dataType":"String","kind":"Hash","precision":7}]}]}`,
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*","indexes":[
				{"kind":"Range","dataType":"Number","precision":2},{"kind":"Hash","dataType":"String","precision":7}]}],` +
				etag + `}`,
			plain,
		},
		{
			"the ETag is included", `{"includedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}],"excludedPaths":[]}`,
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*","indexes":[` + ranges +
				`]},{"path":"/\"_etag\"/?","indexes":[` + ranges + `]}],"excludedPaths":[]}`,
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}],` +
				`"excludedPaths":[]}`,
		},
		{
			"the ETag is included, and no path is excluded", `{"includedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}`,
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*","indexes":[` + ranges +
				`]},{"path":"/\"_etag\"/?","indexes":[` + ranges + `]}],"excludedPaths":[]}`,
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}],` +
				`"excludedPaths":[]}`,
		},
		{"a policy that was read before", plain, indexed, plain},
		{"no path", `{"includedPaths":[],"excludedPaths":[]}`, indexed, plain},
		{
			"no index", `{"indexingMode":"None","automatic":false}`,
			`{"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]}`,
			`{"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]}`,
		},
		{
			"nothing is included", `{"includedPaths":[],"excludedPaths":[{"path":"/*"}]}`,
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[],` +
				`"excludedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}`,
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[],` +
				`"excludedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, Options{Lenient: true}) // new containers of the service are not lazy any more
			w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"]},"indexingPolicy":`+test.sent+`}`, nil)
			for version, want := range map[string]string{
				"2015-12-16": test.before, "2018-08-31": test.before,
				"2018-09-17": test.since, "2018-12-31": test.since, "": test.since,
			} {
				headers := map[string]string{"x-ms-version": version}
				a := w.do(t, "GET", "/dbs/db/colls/c", headers, "").want(t, http.StatusOK)
				checkPolicy(t, "version "+version, a.object(t), want)
			}
			all := w.do(t, "GET", "/dbs/db/colls", map[string]string{"x-ms-version": "2015-12-16"}, "")
			checkPolicy(t, "a list", all.list(t, "DocumentCollections")[0], test.before)
		})
	}
}

// checkPolicy compares the indexing policy of a container.
func checkPolicy(t *testing.T, where string, container map[string]any, want string) {
	t.Helper()
	var expected any
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	if got := container["indexingPolicy"]; !reflect.DeepEqual(got, expected) {
		t.Errorf("%s: policy %v, want %v", where, got, expected)
	}
}
