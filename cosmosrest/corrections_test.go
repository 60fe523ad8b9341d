package cosmosrest

import (
	"net/http"
	"strings"
	"testing"
)

// The texts of refusals name what to do.
func TestRefusalsNameTheCorrection(t *testing.T) {
	w, _ := newContainer(t, Options{})
	const rid = "x-ms-cosmos-intended-collection-rid"
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"ada"}`).want(t, http.StatusCreated)
	w.do(t, "POST", docs, under("p"), `{"id":"a","pk":"p"}`).want(t, http.StatusCreated)
	query := map[string]string{"Content-Type": "application/json", "x-ms-documentdb-isquery": "True"}
	for _, c := range []struct {
		method, path string
		headers      map[string]string
		body         string
		status       int
		want, no     string
	}{
		{
			"POST", docs, under("q"), `{"id":"b","pk":"p"}`, 400,
			`of item "b" is ["p"]: want ["q"], the partition key of the write`, "batch",
		},
		{"POST", "/dbs/db/users", nil, `{"id":"ada"}`, 409, `database "db" has a user with this id`, "replace"},
		{
			"GET", docs,
			map[string]string{rid: "bad"},
			"", 400,
			`header ` + rid + ` is "bad": want `, "made anew",
		},
		{
			"GET", "/dbs/db/colls/c/sprocs", nil, "", 400,
			"this server has no stored procedures (sprocs): want ", "",
		},
		{"GET", "/dbs/db/colls/c/udfs", nil, "", 400, "no user-defined functions (udfs): want dbs, colls, docs, ", ""},
		{"GET", "/dbs/db/colls/c/triggers", nil, "", 400, "users, permissions, conflicts, offers or pkranges", ""},
		{
			"POST", docs, query, `{"query":"SELECT * FROM c"}`, 400,
			"for a query want the Content-Type application/query+json", "",
		},
		{
			"GET", docs + "/a", under("p", "x-ms-consistency-level", "Strong"), "", 400,
			"want Session or a weaker level, or a server that was started with --consistency Strong", "",
		},
		{
			"PUT", docs + "/a", under("p", "If-Match", `"x"`), `{"id":"a","pk":"p"}`, 412,
			`item "a" has another ETag: want "x"`, "conflict: precondition failed",
		},
	} {
		a := w.do(t, c.method, c.path, c.headers, c.body)
		says := strings.ReplaceAll(string(a.body), `\`, "")
		if a.status != c.status || !strings.Contains(says, c.want) || c.no != "" && strings.Contains(says, c.no) {
			t.Errorf("%s %s: %d %s, want %d, %q and no %q", c.method, c.path, a.status, says, c.status, c.want, c.no)
		}
	}
}
