package cosmosrest

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// asked are requests of every kind, and whether they change something.
var asked = []struct {
	method, path string
	headers      map[string]string
	body         string
	writes       bool
}{
	{"GET", "/", nil, "", false},
	{"GET", "/backup", nil, "", true}, // the full key only
	{"GET", "/check", nil, "", true},
	{"GET", "/dbs", nil, "", false},
	{
		"POST", "/dbs",
		map[string]string{"Content-Type": wire.QueryType, "x-ms-documentdb-isquery": "true"},
		`{"query":"SELECT * FROM r"}`, false,
	},
	{"POST", "/dbs", nil, `{"id":"x"}`, true},
	{"GET", "/dbs/db", nil, "", false},
	{"GET", "/dbs/db/colls", nil, "", false},
	{"POST", "/dbs/db/colls", nil, `{"id":"x","partitionKey":{"paths":["/pk"]}}`, true},
	{"GET", "/dbs/db/colls/c", nil, "", false},
	{"PUT", "/dbs/db/colls/c", nil, `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, true},
	{"GET", "/dbs/db/colls/c/pkranges", nil, "", false},
	{"POST", "/dbs/db/colls/c/partitions", nil, `{"split":"0"}`, true},
	{"GET", "/offers", nil, "", false},
	{"POST", "/offers", map[string]string{"Content-Type": wire.QueryType}, `{"query":"SELECT * FROM r"}`, false},
	{"GET", "/offers/x", nil, "", false},
	{"PUT", "/offers/x", nil, `{}`, true},
	{"POST", "/dbs/db/colls/c/docs", onPK, `{"id":"new","pk":"p"}`, true},
	{"POST", "/dbs/db/colls/c/docs", with(onPK, "x-ms-documentdb-is-upsert"), `{"id":"1","pk":"p"}`, true},
	{
		"POST", "/dbs/db/colls/c/docs", with(onPK, "x-ms-cosmos-is-batch-request", "x-ms-cosmos-batch-atomic"),
		`[{"operationType":"Upsert","resourceBody":{"id":"1","pk":"p"}}]`, true,
	},
	{
		"POST", "/dbs/db/colls/c/docs", with(onRange, "x-ms-cosmos-is-batch-request"),
		`[{"operationType":"Create","partitionKey":"[\"p\"]","resourceBody":{"id":"new","pk":"p"}}]`, true,
	},
	{
		"POST", "/dbs/db/colls/c/docs", with(onRange, "x-ms-cosmos-is-batch-request"),
		`[{"operationType":"Read","partitionKey":"[\"p\"]","id":"1"}]`, false,
	},
	{
		"POST", "/dbs/db/colls/c/docs", with(nil, "x-ms-cosmos-is-query-plan-request", "x-ms-documentdb-isquery"),
		`{"query":"SELECT * FROM c"}`, false,
	},
	{"POST", "/dbs/db/colls/c/docs", with(onPK, "x-ms-documentdb-isquery"), `{"query":"SELECT * FROM c"}`, false},
	{"GET", "/dbs/db/colls/c/docs", nil, "", false},
	{"GET", "/dbs/db/colls/c/docs", map[string]string{"A-IM": "Incremental Feed"}, "", false},
	{"GET", "/dbs/db/colls/c/docs/1", onPK, "", false},
	{"GET", "/dbs/db/colls/c/docs/none", onPK, "", false},
	{"PUT", "/dbs/db/colls/c/docs/1", onPK, `{"id":"1","pk":"p"}`, true},
	{"PATCH", "/dbs/db/colls/c/docs/1", onPK, `[{"op":"set","path":"/a","value":1}]`, true},
	{"DELETE", "/dbs/db/colls/c/docs/1", onPK, "", true},
	{"GET", "/dbs/db/colls/c/conflicts", nil, "", false},
	{"POST", "/dbs/db/colls/c/conflicts", across(), `{"query":"SELECT * FROM c"}`, false},
	{"GET", "/dbs/db/colls/c/conflicts/1", nil, "", false},
	{"DELETE", "/dbs/db/colls/c/conflicts/1", nil, "", true},
	{"POST", "/dbs/db/colls/c/operations/partitionkeydelete", onPK, "", true},
	{"DELETE", "/dbs/db/colls/c", nil, "", true},
	{"POST", "/dbs/db/users", nil, `{"id":"u"}`, true},
	{"GET", "/dbs/db/users", nil, "", false},
	{"GET", "/dbs/db/users/u", nil, "", false},
	{"PUT", "/dbs/db/users/u", nil, `{"id":"v"}`, true},
	{"DELETE", "/dbs/db/users/u", nil, "", true},
	// Permissions contain tokens, so a read-only key does not read them either.
	{"POST", "/dbs/db/users/u/permissions", nil, `{"id":"p","permissionMode":"All","resource":"dbs/db/colls/c"}`, true},
	{"GET", "/dbs/db/users/u/permissions", nil, "", true},
	{"GET", "/dbs/db/users/u/permissions/p", nil, "", true},
	{"PUT", "/dbs/db/users/u/permissions/p", nil, `{}`, true},
	{"DELETE", "/dbs/db/users/u/permissions/p", nil, "", true},
	{"DELETE", "/dbs/db", nil, "", true},
}

var (
	onPK    = map[string]string{"x-ms-documentdb-partitionkey": `["p"]`}
	onRange = map[string]string{"x-ms-documentdb-partitionkeyrangeid": "0"}
)

// with are headers, and some more that are true.
func with(headers map[string]string, flags ...string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, headers)
	for _, name := range flags {
		all[name] = "True"
	}
	return all
}

// forbidden tells whether an answer refuses all that was asked.
func (a answer) forbidden() bool {
	return a.status == http.StatusForbidden ||
		a.status == http.StatusMultiStatus && strings.Contains(string(a.body), `"statusCode":403`) &&
			!strings.Contains(string(a.body), `"statusCode":20`)
}

func TestEveryOperationAsksWhetherItMay(t *testing.T) {
	issuer := newPair(t, "key", jwt.SigningMethodEdDSA)
	keys := Keys{Primary: EmulatorKey, PrimaryReadOnly: testKey("r")}
	o := Options{Keys: keys, Tokens: tokensOf(t, contributor, issuer)}
	w, _ := newContainer(t, o)
	w.do(t, "POST", "/dbs/db/colls/c/docs", onPK, `{"id":"1","pk":"p"}`).want(t, http.StatusCreated)
	kinds := map[string]bool{}
	for _, q := range asked {
		to, err := wire.ParsePath(q.path)
		if err != nil {
			t.Fatal(err)
		}
		set := " one"
		if to.Feed {
			set = " all"
		}
		kinds[to.Kind+" "+q.method+set] = true
		token := with(q.headers)
		token["Authorization"] = issuer.bearer(t, map[string]any{"oid": "nobody"})
		w.key = keys.Primary
		if got := w.do(t, q.method, q.path, token, q.body); !got.forbidden() {
			t.Errorf("%s by nobody: %d %s, want 403", got.request, got.status, got.body)
		} else if rid := got.header.Get("x-ms-content-path"); rid != "" {
			t.Errorf("%s by nobody: tells that there is %s", got.request, rid)
		}
		w.key = keys.PrimaryReadOnly
		if got := w.do(t, q.method, q.path, q.headers, q.body); got.forbidden() != q.writes {
			t.Errorf("%s by a read-only key: %d %s, want 403: %v", got.request, got.status, got.body, q.writes)
		}
	}
	for kind, table := range operations {
		for op := range table {
			if !kinds[kind+" "+op] {
				t.Errorf("%s of %q is not asked here: add it", op, kind)
			}
		}
	}
}
