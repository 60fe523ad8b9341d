package cosmosrest

import (
	"slices"
	"strings"
)

// The differences that are accepted, each with its reason.

// replayRule accepts a difference: both texts must occur in the name of the exchange and in the difference.
type replayRule struct{ exchange, difference, why string }

var replayRules = []replayRule{
	// databases and containers
	{"rest-docs", "excludedPaths is [map[path:/\"_etag\"/?]]", "the path of the ETag is among them since"},
	{"GET /dbs", "body.Databases[", "a list is in the order of the ids here; the service's order has no rule"},
	{"rest-docs", "has conflictResolutionPolicy", olderBody},
	{"rest-docs", "has geospatialConfig", olderBody},
	{"GET /dbs/SampleDatabase/colls", "has partitionKey", noKeyAtAll},
	{"/dbs/XrdaAA==/colls/", "status 400 instead of 200", noKeyAtAll},
	{"/dbs/cli000004/colls", "status 400 instead of 201", noKeyAtAll},
	{"/dbs/cli000004/colls", "has partitionKey", noKeyAtAll},
	{"azure-cli", "content-location is", "the recording has other names in requests than in replies"},
	{"GET /", "body.id is", byAccount},
	{"GET /", "body._rid is", byAccount},
	{"GET /", "Locations[0].", byAccount},
	{"GET /", "body.queryEngineConfiguration", "the limits are those of the emulator of today"},
	{"GET /", "body has changefeed", "our own client reads it"},
	// offers
	{"/offers", "body.Offers is []", otherOffers},
	{"GET /offers", "body._count", otherOffers},
	{"GET /offers", "x-ms-item-count", otherOffers},
	{"/offers/", "status 404 instead of 200", otherOffers},
	// items
	{"DELETE /dbs/testdb/colls/testcoll/docs/SalesOrder3", "status 404", "its partition key is another member"},
	{"docs/d9RzAJRFKgwEAAAAAAAAAA==", "status 400", "the path has resource ids, and this item cannot be made with one"},
	{"testcoll/docs", "SubTotal", "the reference was edited: the service would not keep the last 0"},
	{"/dbs/1KtjAA==/colls/1KtjAImkcgw=/docs", "status 200 instead of 201", "the reference prints 201 for a query"},
	{"GET /dbs/testdb/colls", "status 200 instead of 201", "the reference prints 201 for a read"},
	{"readme", "x-ms-session-token", "an account with two regions; this server has one"},
	// what this server refuses
	{refusedKinds[0], "status 400 instead of 2", "attachments are refused"},
	{refusedKinds[1], "status 400 instead of 2", "stored procedures are refused"},
	{refusedKinds[2], "status 400 instead of 2", "triggers are refused"},
	{refusedKinds[3], "status 400 instead of 2", "user-defined functions are refused"},
	{"PUT /dbs/volcanodb/users/a_user", "status 400 instead of 200", "the body has a comma too many"},
	// partitions
	{"serverlogs/pkranges", "recorded body is no JSON", "the reference has a mistake"},
	{"sdk-fixture", "body", "the recording has 100 partitions of many splits"},
	{"docs-metrics", "status 404", "the session token is of ten partitions"},
	// queries
	{"user_defined_function_operations", "status 400", "there are no user-defined functions"},
	{"UoEi5w+upwA=/docs", "status 400", "a container without partition key needs no permission to cross partitions"},
	{"hosted 2026-10-10 POST /dbs/dbimp_it/colls/kv/docs", `"tiny":5e-324`, byNumbers},
	{"hosted 2026-10-10 POST /dbs/dbimp_it/colls/kv/docs", `"d":0.3333333333333333}`, byNumbers},
}

// Reasons that several rules have.
const (
	byAccount   = "accounts have other names and regions"
	olderBody   = "containers of 2016 did not have it"
	noKeyAtAll  = "containers need a partition key here"
	otherOffers = "the offers belong to containers that the recording does not create here"
	byNumbers   = "queries write numbers as JavaScript does"
)

// ruleFor returns the index of the rule for a difference, or -1.
func ruleFor(e *exchange, difference string) int {
	return slices.IndexFunc(replayRules, func(r replayRule) bool {
		return strings.Contains(e.name(), r.exchange) && strings.Contains(difference, r.difference)
	})
}

// refusedKinds are the kinds of resources of the recordings that this server refuses.
var refusedKinds = []string{"/attachments", "/sprocs", "/triggers", "/udfs"}

// isRefused reports whether this server refuses every request about the resource.
func (e *exchange) isRefused() bool {
	return slices.ContainsFunc(refusedKinds, func(kind string) bool { return strings.Contains(e.Path, kind) })
}
