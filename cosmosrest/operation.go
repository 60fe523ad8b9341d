package cosmosrest

import (
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// A single table contains all requests. A request that is not in the table is a 404 or a 405. A 405 lists the methods
// from the same table, so the list is always complete.

// operation carries out a request. An operation sends the answer, or returns the error for the answer.
type operation func(*call) error

// operationOf returns the operation of a request.
func operationOf(in *wire.Request) (operation, error) {
	table := operations[in.Target.Kind]
	if table == nil {
		return nil, wire.BadRequest("this server has no %s: want databases, containers, items, pkranges or offers",
			in.Target.Kind)
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
	e := wire.Errorf(http.StatusMethodNotAllowed, 0, wire.CodeNotAllowed, "%s is not allowed on %s: want one of %s",
		in.Method, in.Path(), methods)
	e.Allow = methods
	return nil, e
}

// operations are keyed by the kind of resource, then by method and by whether the path names a single resource or a
// set.
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

// allowed returns the methods of the operations with a suffix, for a 405.
func allowed(table map[string]operation, suffix string) string {
	var methods []string
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if table[m+suffix] != nil {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

// postItems selects the operation of a POST to the documents of a container by its headers: create, upsert, query,
// query plan, batch or bulk.
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

// getItems selects the operation of a GET to the documents of a container: a change feed or ReadFeed.
func getItems(c *call) error {
	if c.in.Header(wire.HeaderAIM) != "" {
		return readChangeFeed(c)
	}
	return readFeed(c)
}
