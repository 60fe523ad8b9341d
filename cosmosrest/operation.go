package cosmosrest

import (
	"net/http"
	"strings"
)

// operation is the handler of what is asked.
func (c *call) operation() (func(*call) error, error) {
	t, method := c.target, c.r.Method
	table := operations[t.kind]
	if table == nil {
		return nil, newFault(http.StatusBadRequest, 0, "BadRequest", "this server has no %s: want databases, containers, items, pkranges or offers", t.kind)
	}
	key := method + " one"
	if t.feed {
		key = method + " all"
	}
	if op := table[key]; op != nil {
		return op, nil
	}
	methods := allowed(table, t.feed)
	if methods == "" {
		return nil, newFault(http.StatusNotFound, 0, "NotFound", "the path %q names no resource of this server", c.r.URL.Path)
	}
	f := newFault(http.StatusMethodNotAllowed, 0, "MethodNotAllowed", "%s is not allowed on %s: want one of %s", method, c.r.URL.Path, methods)
	f.allow = methods
	return nil, f
}

// operations are the handlers by kind of resource, method, and whether one resource or
// the set of them is asked.
var operations = map[string]map[string]func(*call) error{
	"": {"GET one": (*call).readAccount},
	"dbs": {
		"POST all": (*call).postDatabases, "GET all": (*call).listDatabases,
		"GET one": (*call).readDatabase, "DELETE one": (*call).deleteDatabase,
	},
	"colls": {
		"POST all": (*call).postContainers, "GET all": (*call).listContainers,
		"GET one": (*call).readContainer, "PUT one": (*call).replaceContainer, "DELETE one": (*call).deleteContainer,
	},
	"pkranges":   {"GET all": (*call).listRanges},
	"partitions": {"POST all": (*call).changePartitions},
	"backup":     {"GET all": (*call).sendBackup},
	"check":      {"GET all": (*call).checkStore},
	"offers": {
		"POST all": (*call).queryOffers, "GET all": (*call).listOffers,
		"GET one": (*call).readOffer, "PUT one": (*call).replaceOffer,
	},
	"docs": {
		"POST all": (*call).postItems, "GET all": (*call).getItems,
		"GET one": (*call).readItem, "PUT one": (*call).replaceItem,
		"PATCH one": (*call).patchItem, "DELETE one": (*call).deleteItem,
	},
}

func allowed(table map[string]func(*call) error, feed bool) string {
	suffix := " one"
	if feed {
		suffix = " all"
	}
	var methods []string
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if table[m+suffix] != nil {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

// postItems is everything that goes by POST to the documents of a container: create,
// upsert, query, query plan, batch and bulk.
func (c *call) postItems() error {
	switch {
	case c.flag("X-Ms-Cosmos-Is-Batch-Request"):
		return c.batch()
	case c.flag("X-Ms-Cosmos-Is-Query-Plan-Request"):
		return c.queryPlan()
	case isQuery(c):
		return c.queryItems()
	}
	return c.createItem()
}

// isQuery goes by the content type; the old SDKs' headers alone do for clients that send
// no content type.
func isQuery(c *call) bool {
	return strings.HasPrefix(c.header("Content-Type"), queryType) || c.flag("X-Ms-Documentdb-Isquery") || c.flag("X-Ms-Documentdb-Query")
}

const queryType = "application/query+json"

// getItems is everything that goes by GET to the documents of a container: both change
// feeds, and ReadFeed.
func (c *call) getItems() error {
	if c.header("A-Im") != "" {
		return c.changeFeed()
	}
	return c.readFeed()
}
