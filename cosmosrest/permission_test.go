package cosmosrest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// permit creates a permission and returns the headers of a request with its token and, unless it is empty, with a
// partition key.
func (w *world) permit(t *testing.T, definition string) func(key string) map[string]string {
	t.Helper()
	made := w.do(t, "POST", "/dbs/db/users/u/permissions", nil, definition).want(t, http.StatusCreated).object(t)
	token, _ := made["_token"].(string)
	return func(key string) map[string]string {
		return map[string]string{"Authorization": token, "x-ms-documentdb-partitionkey": key}
	}
}

func TestAPermissionNamesItsResourceByResourceIDs(t *testing.T) {
	w, c := newContainer(t, Options{})
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).want(t, http.StatusCreated)
	item := w.do(t, "POST", docs, under("p"), `{"id":"1","pk":"p"}`).want(t, http.StatusCreated).object(t)
	other := w.do(t, "POST", docs, under("p"), `{"id":"2","pk":"p"}`).want(t, http.StatusCreated).object(t)
	one := w.permit(t, `{"id":"one","permissionMode":"Read","resource":"`+item["_self"].(string)+`"}`)
	all := w.permit(t, `{"id":"all","permissionMode":"read","resource":"/`+c.Self()+`"}`)
	w.do(t, "GET", docs+"/1", one(`["p"]`), "").want(t, http.StatusOK)
	w.do(t, "GET", docs+"/2", one(`["p"]`), "").refused(t, http.StatusForbidden, "0", "Forbidden")
	write := w.permit(t, `{"id":"write","permissionMode":"All","resource":"dbs/db/colls/c/docs/2"}`)
	w.do(t, "PUT", docs+"/2", write(`["p"]`), `{"id":"2","pk":"p","n":1}`).want(t, http.StatusOK)
	w.do(t, "PUT", docs+"/2", write(`["p"]`), `{"id":"3","pk":"p"}`).refused(t, http.StatusForbidden, "0", "Forbidden")
	w.do(t, "GET", docs+"/2", all(`["p"]`), "").want(t, http.StatusOK)
	w.do(t, "GET", "/"+item["_self"].(string), one(`["p"]`), "").want(t, http.StatusOK)
	w.do(t, "GET", "/"+other["_self"].(string), one(`["p"]`), "").refused(t, http.StatusForbidden, "0", "Forbidden")
	w.do(t, "GET", docs, all(""), "").want(t, http.StatusOK)
	for _, resource := range []string{
		c.Self() + "docs/none", "dbs/db/colls/c/docs", "offers/x", "", "%ZZ", "dbs/db/colls/none",
		"dbs/AQAAAA==/colls/AgAAAJ0fgTc=", "dbs/AQAAAA==/colls/AQAAAA==", "dbs/AQAAAJ0fgTc=/colls/AQAAAJ0fgTc=",
	} {
		got := w.do(t, "POST", "/dbs/db/users/u/permissions", nil,
			fmt.Sprintf(`{"id":"x","permissionMode":"Read","resource":%q}`, resource))
		if got.status != http.StatusBadRequest && got.status != http.StatusNotFound {
			t.Errorf("resource %q: %d %s", resource, got.status, got.body)
		}
	}
}

// The tests of the SDKs for Python and JavaScript create permissions for a random resource id.
func TestAPermissionForAResourceIDThatNothingHas(t *testing.T) {
	w, c := newContainer(t, Options{})
	w.item(t, "1", "")
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).want(t, http.StatusCreated)
	const unknown = "dbs/AQAAAA==/colls/AQAAAJ0fgTc="
	token := w.permit(t, `{"id":"one","permissionMode":"All","resource":"`+unknown+`"}`)
	read := w.do(t, "GET", "/dbs/db/users/u/permissions/one", nil, "").want(t, http.StatusOK).object(t)
	if read["resource"] != unknown {
		t.Errorf("resource %v, want %s", read["resource"], unknown)
	}
	w.do(t, "POST", "/dbs/db/users/u/permissions", nil,
		`{"id":"two","permissionMode":"Read","resource":"`+unknown+`"}`).
		refused(t, http.StatusConflict, "0", "Conflict")
	for _, path := range []string{docs + "/1", "/" + c.Self(), "/" + unknown + "/docs/1"} {
		if got := w.do(t, "GET", path, token(`["p"]`), ""); got.status != http.StatusForbidden &&
			got.status != http.StatusNotFound {
			t.Errorf("GET %s with the token: %d, want 403 or 404", path, got.status)
		}
	}
}

// Links by resource ids lead to users and permissions as links by ids do.
func TestUsersAndPermissionsByResourceIDs(t *testing.T) {
	w, _ := newContainer(t, Options{})
	user := w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).want(t, http.StatusCreated).object(t)
	at := "/" + user["_self"].(string)
	const definition = `{"id":"p","permissionMode":"Read","resource":"dbs/db/colls/c"}`
	made := w.do(t, "POST", at+"permissions", nil, definition).want(t, http.StatusCreated).object(t)
	self := "/" + made["_self"].(string)
	if !strings.HasPrefix(self, at+"permissions/") {
		t.Errorf("the permission is %s, below %s", self, at)
	}
	read := w.do(t, "GET", self, nil, "").want(t, http.StatusOK)
	again := w.do(t, "GET", "/dbs/db/users/u/permissions/p", nil, "").want(t, http.StatusOK)
	if read.object(t)["_etag"] != again.object(t)["_etag"] {
		t.Errorf("%s and %s", read.body, again.body)
	}
	w.do(t, "PUT", self, nil, strings.Replace(definition, "Read", "All", 1)).want(t, http.StatusOK)
	w.do(t, "DELETE", self, nil, "").want(t, http.StatusNoContent)
	w.do(t, "GET", self, nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
	w.do(t, "DELETE", at, map[string]string{"If-Match": `"other"`}, "").
		refused(t, http.StatusPreconditionFailed, "0", "PreconditionFailed")
	w.do(t, "DELETE", at, nil, "").want(t, http.StatusNoContent)
	w.do(t, "GET", "/dbs/db/users/u", nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
}

// A page of a list goes on behind an id, so users and permissions come in the order of their ids.
func TestUsersAndPermissionsAreListedInPages(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"b"}`).want(t, http.StatusCreated)
	for _, id := range []string{"d", "c", "a"} {
		w.do(t, "POST", "/dbs/db/users", nil, `{"id":"`+id+`"}`).want(t, http.StatusCreated)
		w.do(t, "POST", "/dbs/db/users/b/permissions", nil,
			`{"id":"`+id+`","permissionMode":"Read","resource":"dbs/db/colls/c/docs/`+id+`"}`).want(t, http.StatusCreated)
	}
	for path, want := range map[string]string{"users": "a b c d", "users/b/permissions": "a c d"} {
		member := "Users"
		if strings.HasSuffix(path, "permissions") {
			member = "Permissions"
		}
		var got []string
		for next := ""; len(got) <= 4; {
			headers := map[string]string{"x-ms-max-item-count": "1", "x-ms-continuation": next}
			a := w.do(t, "GET", "/dbs/db/"+path, headers, "")
			got = append(got, column(t, a.list(t, member), "id"))
			if next = a.header.Get("x-ms-continuation"); next == "" {
				break
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s in pages of one: %q, want %s", path, got, want)
		}
	}
}

// Users are stored with their database, whose version stays the same when they change: also that of a database that was
// made without the server.
func TestUsersLeaveTheVersionOfTheirDatabase(t *testing.T) {
	w, _ := newContainer(t, Options{})
	if _, err := w.db.CreateDatabase(t.Context(), "outside", nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dbs/db", "/dbs/outside"} {
		before := w.do(t, "GET", path, nil, "").want(t, http.StatusOK).object(t)
		w.do(t, "POST", path+"/users", nil, `{"id":"u"}`).want(t, http.StatusCreated)
		w.do(t, "PUT", path+"/users/u", nil, `{"id":"v"}`).want(t, http.StatusOK)
		w.do(t, "DELETE", path+"/users/v", nil, "").want(t, http.StatusNoContent)
		after := w.do(t, "GET", path, nil, "").want(t, http.StatusOK).object(t)
		if after["_etag"] != before["_etag"] || after["_ts"] != before["_ts"] {
			t.Errorf("the database is %v, and was %v; want the same version", after, before)
		}
	}
}

// An upsert replaces the user or the permission with its id. The mode of a permission is answered as it was written.
func TestAnUpsertReplacesAUserOrAPermission(t *testing.T) {
	w, _ := newContainer(t, Options{})
	upsert := map[string]string{"x-ms-documentdb-is-upsert": "True"}
	user := w.do(t, "POST", "/dbs/db/users", upsert, `{"id":"u"}`).want(t, http.StatusCreated).object(t)
	again := w.do(t, "POST", "/dbs/db/users", upsert, `{"id":"u"}`).want(t, http.StatusOK).object(t)
	if again["_rid"] != user["_rid"] || again["_etag"] == user["_etag"] {
		t.Errorf("the user is %v, and was %v; want another ETag alone", again, user)
	}
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).refused(t, http.StatusConflict, "0", "Conflict")
	put := func(id, mode string) answer {
		return w.do(t, "POST", "/dbs/db/users/u/permissions", upsert,
			fmt.Sprintf(`{"id":%q,"permissionMode":%q,"resource":"dbs/db/colls/c"}`, id, mode))
	}
	first := put("p", "read").want(t, http.StatusCreated).object(t)
	second := put("p", "all").want(t, http.StatusOK).object(t)
	if first["permissionMode"] != "read" || second["permissionMode"] != "all" || second["_rid"] != first["_rid"] {
		t.Errorf("the permission was %v and is %v; want the mode all alone to be another", first, second)
	}
	token := map[string]string{
		"Authorization": second["_token"].(string), "x-ms-documentdb-partitionkey": `["p"]`,
	}
	w.do(t, "POST", docs, token, `{"id":"1","pk":"p"}`).want(t, http.StatusCreated)
	put("q", "read").refused(t, http.StatusConflict, "0", "Conflict") // the resource has a permission
}

// A token counts for ten seconds at least, and for a day at most.
func TestHowLongATokenCounts(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).want(t, http.StatusCreated)
	w.permit(t, `{"id":"p","permissionMode":"Read","resource":"dbs/db/colls/c"}`)
	for seconds, status := range map[string]int{"9": 400, "10": 200, "86400": 200, "86401": 400, "1h": 400} {
		h := map[string]string{"x-ms-documentdb-expiry-seconds": seconds}
		w.do(t, "GET", "/dbs/db/users/u/permissions/p", h, "").want(t, status)
	}
}

// A token for the first levels of a hierarchical key is a token for the keys below them, and for no others.
func TestATokenForTheFirstLevelsOfAKey(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2}}`, nil)
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).want(t, http.StatusCreated)
	below := w.permit(t,
		`{"id":"p","permissionMode":"All","resource":"dbs/db/colls/c","resourcePartitionKey":["x"]}`)
	w.do(t, "POST", docs, below(`["x","y"]`), `{"id":"1","a":"x","b":"y"}`).want(t, http.StatusCreated)
	w.do(t, "GET", docs+"/1", below(`["x", "\u0079"]`), "").want(t, http.StatusOK)
	for _, key := range []string{`["xx","y"]`, `["y","x"]`, `["x\",\"y"]`, ""} {
		w.do(t, "GET", docs+"/1", below(key), "").refused(t, http.StatusForbidden, "0", "Forbidden")
	}
	// The operations of a bulk name keys of their own, so a token for a key does not allow bulks.
	bulk := below("")
	bulk["x-ms-cosmos-is-batch-request"], bulk["x-ms-documentdb-partitionkeyrangeid"] = "True", "0"
	other := `[{"operationType":"Create","partitionKey":"[\"z\",\"z\"]","resourceBody":{"id":"2","a":"z","b":"z"}}]`
	w.do(t, "POST", docs, bulk, other).refused(t, http.StatusForbidden, "0", "Forbidden")
	bulk["x-ms-documentdb-partitionkey"] = `["x","y"]` // the key of the request is not that of the operation
	w.do(t, "POST", docs, bulk, other).refused(t, http.StatusForbidden, "0", "Forbidden")
	// All operations of a transaction have the key of the request.
	bulk["x-ms-cosmos-batch-atomic"] = "True"
	w.do(t, "POST", docs, bulk, `[{"operationType":"Read","id":"1"}]`).want(t, http.StatusOK)
}

// The operations of a bulk name keys of their own, so each needs the right, whatever key the request names.
func TestATokenForAKeyInABulk(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).want(t, http.StatusCreated)
	w.do(t, "POST", docs, under("z"), `{"id":"1","pk":"z"}`).want(t, http.StatusCreated)
	token := w.permit(t, `{"id":"p","permissionMode":"All","resource":"dbs/db/colls/c","resourcePartitionKey":["x"]}`)
	const read = `{"operationType":"Read","id":"1","partitionKey":"[\"z\"]"}`
	const create = `{"operationType":"Create","partitionKey":"[\"x\"]","resourceBody":{"id":"2","pk":"x"}}`
	for _, key := range []string{"", `["x"]`, `["z"]`} {
		headers := token(key)
		headers["x-ms-cosmos-is-batch-request"], headers["x-ms-documentdb-partitionkeyrangeid"] = "True", "0"
		w.do(t, "POST", docs, headers, "["+create+","+read+"]").refused(t, http.StatusForbidden, "0", "Forbidden")
		w.do(t, "GET", docs+"/2", under("x"), "").refused(t, http.StatusNotFound, "0", "NotFound")
	}
	const keyless = `{"operationType":"Read","id":"2"}` // has the key of the request
	for _, c := range []struct {
		key, operation string
		status         int
	}{
		{"", create, http.StatusOK},
		{`["z"]`, strings.Replace(create, `"2"`, `"3"`, 1), http.StatusOK},
		{`["x"]`, keyless, http.StatusOK},
		{`["z"]`, keyless, http.StatusForbidden},
	} {
		own := token(c.key)
		own["x-ms-cosmos-is-batch-request"] = "True"
		w.do(t, "POST", docs, own, "["+c.operation+"]").want(t, c.status)
	}
	// In a transaction only the key of the request counts.
	atomic := token(`["z"]`)
	atomic["x-ms-cosmos-is-batch-request"], atomic["x-ms-cosmos-batch-atomic"] = "True", "True"
	w.do(t, "POST", docs, atomic, `[{"operationType":"Read","id":"1","partitionKey":"[\"x\"]"}]`).
		refused(t, http.StatusForbidden, "0", "Forbidden")
}

// A token for an item does not allow a replace that gives the item another id: the token would write another item.
func TestATokenForAnItemDoesNotRenameTheItem(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).want(t, http.StatusCreated)
	item := w.do(t, "POST", docs, under("p"), `{"id":"1","pk":"p"}`).want(t, http.StatusCreated).object(t)
	one := w.permit(t, `{"id":"one","permissionMode":"All","resource":"dbs/db/colls/c/docs/1"}`)
	w.do(t, "PUT", docs+"/1", one(`["p"]`), `{"id":"2","pk":"p"}`).refused(t, http.StatusForbidden, "0", "Forbidden")
	w.do(t, "PUT", docs+"/1", one(`["p"]`), `{"id":"1","pk":"p","n":1}`).want(t, http.StatusOK)
	// A path of resource ids names the same item.
	w.do(t, "GET", "/"+item["_self"].(string), one(`["p"]`), "").want(t, http.StatusOK)
	other := w.do(t, "POST", docs, under("p"), `{"id":"3","pk":"p"}`).want(t, http.StatusCreated).object(t)
	w.do(t, "GET", "/"+other["_self"].(string), one(`["p"]`), "").refused(t, http.StatusForbidden, "0", "Forbidden")
	whole := w.permit(t, `{"id":"all","permissionMode":"All","resource":"dbs/db/colls/c"}`)
	w.do(t, "PUT", docs+"/1", whole(`["p"]`), `{"id":"2","pk":"p"}`).want(t, http.StatusOK)
}

// A permission whose key no item of the container can have would allow nothing.
func TestAPermissionForAKeyThatTheContainerCannotHave(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "POST", "/dbs/db/users", nil, `{"id":"u"}`).want(t, http.StatusCreated)
	for _, key := range []string{`[]`, `["a","b"]`, `{}`, `"a"`} {
		message := w.do(t, "POST", "/dbs/db/users/u/permissions", nil,
			`{"id":"p","permissionMode":"Read","resource":"dbs/db/colls/c","resourcePartitionKey":`+key+`}`).
			refused(t, http.StatusBadRequest, "0", "BadRequest")
		if !strings.Contains(message, "resourcePartitionKey") {
			t.Errorf("key %s: the message %q does not name the member", key, message)
		}
	}
}

// A server that ends between the splits of a higher throughput leaves the offer pending; the next read goes on.
func TestTheNextReadOfAnOfferGoesOnWithTheSplits(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	w := newWorld(t, Options{Ending: ctx})
	c := w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "400"})
	self := "/" + w.theOffer(t, "true")["_self"].(string)
	end()
	for range 2 {
		w.do(t, "PUT", self, nil, `{"content":{"offerThroughput":30000}}`).want(t, http.StatusOK)
	}
	again := serveStore(t, w.db, Options{})
	read := func() (string, int) {
		parts, err := c.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answer := again.do(t, "GET", self, nil, "").want(t, http.StatusOK)
		return answer.header.Get("x-ms-offer-replace-pending"), len(parts)
	}
	if pending, parts := read(); pending != "true" || parts != 1 {
		t.Errorf("after the end of the server: pending %s, %d partitions, want true and 1", pending, parts)
	}
	if pending, parts := read(); pending != "false" || parts != 3 {
		t.Errorf("after the next read: pending %s, %d partitions, want false and 3", pending, parts)
	}
}

// Each raise of a throughput splits as often as necessary, not only the first.
func TestEachRaiseOfAThroughputSplits(t *testing.T) {
	w := newWorld(t, Options{})
	c := w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "400"})
	self := "/" + w.theOffer(t, "true")["_self"].(string)
	for _, raise := range []struct{ ru, parts int }{{11_000, 2}, {40_000, 4}} {
		body := fmt.Sprintf(`{"content":{"offerThroughput":%d}}`, raise.ru)
		w.do(t, "PUT", self, nil, body).want(t, http.StatusOK)
		parts, err := c.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pending := w.do(t, "GET", self, nil, "").want(t, http.StatusOK).header.Get("x-ms-offer-replace-pending")
		if len(parts) != raise.parts || pending != "false" {
			t.Errorf("%d RU/s: %d partitions, pending %s, want %d and false", raise.ru, len(parts), pending, raise.parts)
		}
	}
}

func TestAllItemsOfAKeyInSeveralTransactions(t *testing.T) {
	w, c := newContainer(t, Options{})
	for i := range 250 {
		if _, err := c.Create(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"p"}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	path := strings.TrimSuffix(docs, "docs") + "operations/partitionkeydelete"
	w.do(t, "POST", path, under("p"), "").want(t, http.StatusOK)
	w.do(t, "POST", path, under("p"), "").want(t, http.StatusOK) // there is none left
	if n := c.Count(); n != 0 {
		t.Errorf("%d items are left", n)
	}
	if newest := c.Head(); newest != 253 {
		t.Errorf("the newest LSN is %d: want 250 and three transactions", newest)
	}
}

// SDKs ask for the conflicts of a container by a list or a query. There are none.
func TestTheFeedOfConflictsIsEmpty(t *testing.T) {
	w, _ := newContainer(t, Options{})
	const path = "/dbs/db/colls/c/conflicts"
	query := map[string]string{"Content-Type": wire.QueryType, wire.HeaderCrossPartition: "True"}
	for _, found := range [][]map[string]any{
		w.do(t, "GET", path, nil, "").want(t, http.StatusOK).list(t, "Conflicts"),
		w.do(t, "POST", path, query, `{"query":"SELECT * FROM c"}`).want(t, http.StatusOK).list(t, "Conflicts"),
	} {
		if len(found) != 0 {
			t.Errorf("conflicts: %v", found)
		}
	}
	w.do(t, "POST", path, query, `{"query":"SELEC"}`).refused(t, http.StatusBadRequest, "0", "BadRequest")
	w.do(t, "POST", path, nil, `{"id":"x"}`).refused(t, http.StatusMethodNotAllowed, "0", "MethodNotAllowed")
}

// As in the service, a raw tab or line break in a text is accepted. A lenient server accepts what a strict one accepts.
func TestRawBreaksInItemsAreAccepted(t *testing.T) {
	for _, lenient := range []bool{false, true} {
		w, _ := newContainer(t, Options{Lenient: lenient})
		w.do(t, "POST", docs, under("p"), "{\"id\":\"1\",\"pk\":\"p\",\n\"t\":\"a\tb\r\n\"}").
			want(t, http.StatusCreated)
		w.send(t, "[{\"operationType\":\"Create\",\n\"resourceBody\":{\"id\":\"3\",\"pk\":\"p\",\"t\":\"a\tb\r\n\"}}]").
			want(t, http.StatusOK)
		for _, id := range []string{"1", "3"} {
			if got := w.do(t, "GET", docs+"/"+id, under("p"), "").object(t)["t"]; got != "a\tb\r\n" {
				t.Errorf("lenient %v, item %s: %q", lenient, id, got)
			}
		}
		w.do(t, "POST", docs, under("p"), `{"id":"2","pk":"p","n":-.5}`).
			refused(t, http.StatusBadRequest, "0", "BadRequest")
	}
}
