package cosmosrest

import (
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// One table says which requests there are. What is not in it is a 404 or a 405, and a
// 405 lists the methods of the same table, so no operation can be forgotten there.

// operation carries out a request, and answers it or returns the error to answer.
type operation func(*call) error

// operationOf is the operation of a request.
func operationOf(in *wire.Request) (operation, error) {
	table := operations[in.Target.Kind]
	if table == nil {
		return nil, wire.BadRequest("this server has no %s: want databases, containers, items, pkranges or offers", in.Target.Kind)
	}
	suffix := " one"
	if in.Target.Feed {
		suffix = " all"
	}
	if op := table[in.Method+suffix]; op != nil {
		return op, nil
	}
	methods := allowed(table, suffix)
	if methods == "" {
		return nil, wire.NotFound(0, "the path %q names no resource of this server", in.Path())
	}
	e := wire.Errorf(http.StatusMethodNotAllowed, 0, wire.CodeNotAllowed, "%s is not allowed on %s: want one of %s", in.Method, in.Path(), methods)
	e.Allow = methods
	return nil, e
}

// operations are keyed by the kind of resource, the method, and whether one resource or the
// set of them is meant.
var operations = map[string]map[string]operation{
	"": {"GET one": readAccount},
	"dbs": {
		"POST all": postDatabases, "GET all": listDatabases,
		"GET one": readDatabase, "DELETE one": deleteDatabase,
	},
	"colls": {
		"POST all": postContainers, "GET all": listContainers,
		"GET one": readContainer, "PUT one": replaceContainer, "DELETE one": deleteContainer,
	},
	"pkranges":   {"GET all": listRanges},
	"partitions": {"POST all": changePartitions},
	"backup":     {"GET all": sendBackup},
	"check":      {"GET all": checkStore},
	"offers": {
		"POST all": queryOffers, "GET all": listOffers,
		"GET one": readOffer, "PUT one": replaceOffer,
	},
	"docs": {
		"POST all": postItems, "GET all": getItems,
		"GET one": readItem, "PUT one": replaceItem,
		"PATCH one": patchItem, "DELETE one": deleteItem,
	},
}

// allowed lists the methods of the operations with a suffix, for the 405.
func allowed(table map[string]operation, suffix string) string {
	var methods []string
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if table[m+suffix] != nil {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

// postItems sorts the POSTs to the documents of a container by their headers: create,
// upsert, query, query plan, batch and bulk.
func postItems(c *call) error {
	switch {
	case c.in.Flag(wire.HeaderBatch):
		return writeBatch(c)
	case c.in.Flag(wire.HeaderQueryPlan):
		return planQuery(c)
	case c.in.IsQuery():
		return queryItems(c)
	}
	return createItem(c)
}

// getItems sorts the GETs to the documents of a container: both change feeds, and ReadFeed.
func getItems(c *call) error {
	if c.in.Header(wire.HeaderAIM) != "" {
		return readChangeFeed(c)
	}
	return readFeed(c)
}
