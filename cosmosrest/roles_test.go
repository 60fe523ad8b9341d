package cosmosrest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/millrace/changefeed/cosmosrest/internal/auth"
)

func TestRolesGrantInTheirScope(t *testing.T) {
	issuer := newPair(t, "key", jwt.SigningMethodEdDSA)
	roles, err := ParseRoles([]byte(`{
		"reader": [{"actions": ["Cosmos DB Built-in Data Reader"]}],
		"shop": [{"database": "shop", "container": "*", "actions": ["cosmos db built-in data contributor"]}],
		"orders": [{"database": "shop", "container": "orders", "actions": [
			"Microsoft.DocumentDB/databaseAccounts/readMetadata",
			"Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/*"]}],
		"two": [
			{"database": "shop", "container": "orders", "actions": ["Microsoft.DocumentDB/databaseAccounts/readMetadata"]},
			{"database": "shop", "container": "parts", "actions": ["Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/*"]}]
	}`))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Options{Tokens: tokensOf(t, roles, issuer)})
	for _, name := range []string{"orders", "parts"} {
		w.create(t, "shop", `{"id":"`+name+`","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, nil)
	}
	w.create(t, "bank", `{"id":"orders","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, nil)
	orders, err := w.db.Container("shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	own := strings.Trim(orders.Self(), "/") // by resource ids
	shop := strings.Join(strings.Split(own, "/")[:2], "/")
	for _, c := range []struct {
		who, action, path string
		want              string // resource of the refusal; empty is allowed
	}{
		{"reader", auth.ReadMetadata, "", ""},
		{"reader", auth.ReadItem, "dbs/shop/colls/orders/docs/1", ""},
		{"reader", auth.ReadChangeFeed, "dbs/bank/colls/orders/docs", ""},
		{"reader", auth.Query, "dbs/bank/colls/orders/docs", ""},
		{"reader", auth.Create, "dbs/shop/colls/orders/docs", "dbs/shop/colls/orders"},
		{"shop", auth.ReadMetadata, "", ""},
		{"shop", auth.ReadMetadata, "dbs", "/"},
		{"shop", auth.ReadMetadata, "offers/x", "/"},
		{"shop", auth.ReadMetadata, "dbs/shop", ""},
		{"shop", auth.ReadMetadata, shop, ""},
		{"shop", auth.Delete, "dbs/shop/colls/parts/docs/1", ""},
		{"shop", auth.Delete, "dbs/bank/colls/orders/docs/1", "dbs/bank/colls/orders"},
		{"orders", auth.ReadMetadata, "dbs/shop", "dbs/shop"},
		{"orders", auth.ReadMetadata, "dbs/shop/colls/orders/pkranges", ""},
		{"orders", auth.ReadMetadata, own + "/pkranges", ""},
		{"orders", auth.Upsert, own + "/docs", ""},
		{"orders", auth.ReadMetadata, "dbs/shop/colls/parts", "dbs/shop/colls/parts"},
		{"orders", auth.ReadMetadata, "dbs/shop/colls/missing", "dbs/shop/colls/missing"},
		{"orders", auth.Query, "dbs/shop/colls/orders/docs", "dbs/shop/colls/orders"},
		{"two", auth.Query, "dbs/shop/colls/parts/docs", ""},
		{"two", auth.ReadItem, "dbs/shop/colls/parts/docs/1", "dbs/shop/colls/parts"},
		{"two", auth.Query, own + "/docs", "dbs/shop/colls/orders"},
		{"nobody", auth.ReadMetadata, "", "/"},
	} {
		t.Run(c.who+" "+c.path, func(t *testing.T) {
			call := w.call(t, c.path, issuer.bearer(t, map[string]any{"oid": c.who}))
			err := call.allowAction(c.action)
			if c.want == "" {
				if err != nil {
					t.Errorf("%s: %v, want it to be allowed", c.action, err)
				}
				return
			}
			sub := 5302
			if c.action == auth.ReadMetadata {
				sub = 5301
			}
			want := "principal [" + c.who + "] does not have required RBAC permissions to perform action [" + c.action +
				"] on resource [" + c.want + "]"
			if err == nil {
				t.Fatalf("%s is allowed: want a refusal", c.action)
			}
			if e := errorOf(err); e.Status != http.StatusForbidden || e.Sub != sub ||
				!strings.Contains(e.Message, want) {
				t.Errorf("refused with %d/%d %s: want 403/%d, %s", e.Status, e.Sub, e.Message, sub, want)
			}
		})
	}
}

// call is a request as the handlers see it.
func (w *world) call(t testing.TB, path, authorization string) *call {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", authorization)
	c := newCall(w.Server, httptest.NewRecorder(), r)
	if err := c.in.Parse(); err != nil {
		t.Fatal(err)
	}
	if c.who, err = w.authority.Authenticate(t.Context(), &c.in); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNoRoleMayManage(t *testing.T) {
	issuer := newPair(t, "key", jwt.SigningMethodEdDSA)
	w, _ := newContainer(t, Options{Tokens: tokensOf(t, contributor, issuer)})
	message := w.do(t, "POST", "/dbs", map[string]string{"Authorization": issuer.bearer(t, nil)}, `{"id":"x"}`).
		refused(t, http.StatusForbidden, "5300", "Forbidden")
	if want := "The given request [POST /dbs] cannot be authorized"; !strings.Contains(message, want) {
		t.Errorf("message %q: want %q in it", message, want)
	}
}

// A database whose name is the resource id of another one grants nothing in that one.
func TestNamesThatLookLikeResourceIDs(t *testing.T) {
	issuer := newPair(t, "key", jwt.SigningMethodEdDSA)
	w, secret := newContainer(t, Options{})
	parts := strings.Split(secret.Self(), "/")
	if _, err := w.db.CreateDatabase(t.Context(), parts[1], nil); err != nil {
		t.Fatal(err)
	}
	roles := Roles{alice: {{Database: parts[1], Actions: []string{"Cosmos DB Built-in Data Contributor"}}}}
	w = serveStore(t, w.db, Options{Tokens: tokensOf(t, roles, issuer)})
	if err := w.call(t, "dbs/"+parts[1], issuer.bearer(t, nil)).allowAction(auth.ReadMetadata); err != nil {
		t.Errorf("the database with that name: %v, want it to be allowed", err)
	}
	if err := w.call(t, strings.Trim(secret.Self(), "/"),
		issuer.bearer(t, nil)).allowAction(auth.ReadMetadata); err == nil {
		t.Error("a container of the other database can be read")
	}
}

func TestBadRolesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		``:                                  "line 1: EOF",
		"{\n\"p\": x":                       "line 2: invalid character 'x'",
		"{\n\n\"p\": 5}":                    "line 3: json: cannot unmarshal number",
		"{\"p\": [{\n\"databse\": \"d\"}]}": `line 2: json: unknown field "databse"`,
		`{}`:                                "there are none",
		`{"p": []} {}`:                      "there is more after them",
		`{"": []}`:                          "a principal of the roles is empty",
		`{"p": [{}]}`:                       `grant 1 of principal "p": actions are empty`,
		`{"p": [{"container": "c", "actions": ["x"]}]}`:                  `container is "c" and database ""`,
		`{"p": [{"database": "*", "container": "c", "actions": ["x"]}]}`: `container is "c" and database "*"`,
		`{"p": [{"actions": ["read"]}]}`:                                 `action is "read": want one of Microsoft.DocumentDB/databaseAccounts/readMetadata, `,
	} {
		if _, err := ParseRoles([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// Each operation of a batch needs its own right.
func TestABatchNeedsTheRightOfEachOfItsOperations(t *testing.T) {
	issuer := newPair(t, "key", jwt.SigningMethodEdDSA)
	roles, err := ParseRoles([]byte(`{"maker": [{"actions": [
		"Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/create"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	w, cont := newContainer(t, Options{Tokens: tokensOf(t, roles, issuer)})
	const create, remove = `{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}}`,
		`{"operationType":"Delete","id":"a"}`
	token := issuer.bearer(t, map[string]any{"oid": "maker"})
	if got := w.send(t, "["+create+","+remove+"]", "Authorization", token); !got.forbidden() || cont.Head() != 0 {
		t.Errorf("who may only create, deletes in a batch: %d %s", got.status, got.body)
	}
	w.send(t, "["+create+"]", "Authorization", token).want(t, 200)
}
