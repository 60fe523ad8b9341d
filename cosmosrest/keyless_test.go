package cosmosrest

import (
	"fmt"
	"net/http"
	"testing"
)

// SDKs that make a container without a partition key give it the service's own, and query it without a key.
func TestAContainerWithoutAKeyOfItsOwnIsQueriedWithoutAKey(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/_partitionKey"]}}`, nil)
	w.do(t, "POST", docs, map[string]string{"x-ms-documentdb-partitionkey": "[{}]"}, `{"id":"a"}`).want(t,
		http.StatusCreated)
	headers := across("x-ms-documentdb-query-enablecrosspartition", "")
	if got := column(t, w.ask(t, headers, "SELECT * FROM c WHERE c.id = 'a'").list(t, "Documents"), "id"); got != "a" {
		t.Errorf("found %q, want a", got)
	}
	w.do(t, "PUT", "/dbs/db/colls/c", nil, `{"id":"c","defaultTtl":5}`).want(t, http.StatusOK)
	if key := w.do(t, "GET", "/dbs/db/colls/c", nil, "").object(t)["partitionKey"]; fmt.Sprint(key) !=
		"map[kind:Hash paths:[/_partitionKey]]" {
		t.Errorf("after a replace without a key: the key is %v", key)
	}
}
