package cosmosrest

import (
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// A single table contains all requests. A request that is not in the table is a 404 or a 405. A 405 lists the methods
// from the same table, so the list is always complete.

// operation is what a request asks for.
type operation struct {
	run       func(*call) error          // sends the answer, or returns the error for the answer
	name      string                     // for [RequestDone]
	byHeaders func(*wire.Request) string // returns the name, if the headers decide
}

// operationOf returns the operation of a request.
func operationOf(in *wire.Request) (*operation, error) {
	table := operations[in.Target.Kind]
	if table == nil {
		return nil, wire.BadRequest("this server has no %s: want dbs, colls, docs, users, permissions, conflicts, offers or "+
			"pkranges", unserved(in.Target.Kind))
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
	e := wire.Errorf(http.StatusMethodNotAllowed, 0, wire.CodeNotAllowed,
		"RequestHandler.%s: %s is not allowed on %s: want one of %s", in.Method[:1]+strings.ToLower(in.Method[1:]),
		in.Method, in.Path(), methods)
	e.Allow = methods
	return nil, e
}

// unserved returns the name of a kind of resources that this server does not have, with its name in paths.
func unserved(kind string) string {
	names := map[string]string{
		"sprocs": "stored procedures", "udfs": "user-defined functions",
		"clientencryptionkeys": "client encryption keys",
	}
	if name := names[kind]; name != "" {
		return name + " (" + kind + ")"
	}
	return kind
}

// requests are what most kinds of resources have. A nil request does not exist. A POST is either post, which creates or
// queries, or query, which refuses everything else.
type requests struct{ post, query, list, read, replace, remove func(*call) error }

// operationsOf returns the operations of a kind of resources; one and all are the kind's names in [RequestDone].
func operationsOf(one, all string, has requests) map[string]*operation {
	table := map[string]*operation{}
	add := func(key, name string, run func(*call) error) {
		if run != nil {
			table[key] = &operation{run: run, name: name}
		}
	}
	add("GET all", "read_all_"+all, has.list)
	add("GET one", "read_"+one, has.read)
	add("PUT one", "replace_"+one, has.replace)
	add("DELETE one", "delete_"+one, has.remove)
	if has.post != nil {
		table["POST all"] = &operation{run: has.post, byHeaders: queryOr("query_"+all, "create_"+one)}
	}
	if has.query != nil {
		table["POST all"] = &operation{run: has.query, byHeaders: queryOr("query_"+all, otherOperation)}
	}
	return table
}

// operations are keyed by the kind of resource, then by method and by whether the path names a single resource or a
// set.
var operations = map[string]map[string]*operation{
	"": {"GET one": {run: readAccount, name: "read_account"}},
	"dbs": operationsOf("database", "databases", requests{
		post: postDatabases, list: listDatabases, read: readDatabase, remove: deleteDatabase,
	}),
	"colls": operationsOf("container", "containers", requests{
		post: postContainers, list: listContainers, read: readContainer, replace: replaceContainer,
		remove: deleteContainer,
	}),
	"users":       operationsOf("user", "users", users.requests()),
	"permissions": operationsOf("permission", "permissions", permissions.requests()),
	"conflicts": operationsOf("conflict", "conflicts", requests{
		query: queryConflicts, list: listConflicts, read: readConflict, remove: deleteConflict,
	}),
	"offers": operationsOf("offer", "offers", requests{
		query: queryOffers, list: listOffers, read: readOffer, replace: replaceOffer,
	}),
	"pkranges":   {"GET all": {run: listRanges, name: "read_feed_ranges"}},
	"partitions": {"POST all": {run: changePartitions, name: "change_partitions"}},
	"operations": {"POST one": {run: runOperation, name: "delete_partition_key"}},
	"backup":     {"GET all": {run: sendBackup, name: "create_backup"}},
	"check":      {"GET all": {run: checkStore, name: "check_store"}},
	"docs": {
		"POST all":   {run: postItems, byHeaders: nameOfPost},
		"GET all":    {run: getItems, byHeaders: nameOfGet},
		"GET one":    {run: readItem, name: "read_item"},
		"PUT one":    {run: replaceItem, name: "replace_item"},
		"PATCH one":  {run: patchItem, name: "patch_item"},
		"DELETE one": {run: deleteItem, name: "delete_item"},
	},
}

// allowed returns the methods of the operations with a suffix, for a 405.
func allowed(table map[string]*operation, suffix string) string {
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
