package cosmosrest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// The roles of the service cover neither throughput nor users: only keys read them.
func TestOnlyKeysReadThroughputAndUsers(t *testing.T) {
	issuer := newPair(t, "key", jwt.SigningMethodEdDSA)
	readOnly := testKey("r")
	w := newWorld(t, Options{
		Tokens: tokensOf(t, contributor, issuer), Keys: Keys{Primary: wellKnownKey, PrimaryReadOnly: readOnly},
	})
	w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "400"})
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"ada"}`).want(t, http.StatusCreated)
	self := "/" + w.theOffer(t, "true")["_self"].(string)
	const query = `{"query":"SELECT * FROM c"}`
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/offers", ""},
		{"GET", self, ""},
		{"POST", "/offers", query},
		{"GET", "/dbs/db/users", ""},
		{"GET", "/dbs/db/users/ada", ""},
		{"POST", "/dbs/db/users", query},
	} {
		headers := map[string]string{}
		if c.body != "" {
			headers["Content-Type"] = "application/query+json"
		}
		w.key = readOnly
		w.do(t, c.method, c.path, headers, c.body).want(t, http.StatusOK)
		headers["Authorization"] = issuer.bearer(t, nil)
		says := w.do(t, c.method, c.path, headers, c.body).refused(t, http.StatusForbidden, "5300", "Forbidden")
		if want := "The given request [" + c.method + " " + c.path; !strings.Contains(says, want) {
			t.Errorf("%s, want %q", says, want)
		}
		w.key = wellKnownKey
	}
}

// A definition of a role can be copied from Azure, with actions on what this server does not have.
func TestRolesMayNameActionsWithoutEffect(t *testing.T) {
	const prefix = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/"
	roles, err := ParseRoles([]byte(`{"p":[{"actions":["` + prefix + `manageConflicts","` + prefix +
		`executeStoredProcedure"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	issuer := newPair(t, "key", jwt.SigningMethodEdDSA)
	w := newWorld(t, Options{Tokens: tokensOf(t, roles, issuer)})
	w.create(t, "db", smallContainer, nil)
	token := issuer.bearer(t, map[string]any{"oid": "p"})
	w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"Authorization": token}, "").refused(t,
		http.StatusForbidden, "5301", "Forbidden")
	w.do(t, "GET", docs, map[string]string{"Authorization": token}, "").refused(t, http.StatusForbidden, "5302",
		"Forbidden")
}

// A container without an offer shows the budget that it has, if an offer can have it.
func TestAContainerWithoutAnOfferShowsItsBudget(t *testing.T) {
	for budget, want := range map[int]float64{0: 400, -1: 400, 100: 400, 450: 400, 400: 400, 1200: 1200} {
		w := newWorld(t, Options{Throughput: budget})
		w.create(t, "db", smallContainer, nil)
		content, _ := w.theOffer(t, "true")["content"].(map[string]any)
		if content["offerThroughput"] != want {
			t.Errorf("with a budget of %d: %v RU/s, want %v", budget, content["offerThroughput"], want)
		}
	}
}
