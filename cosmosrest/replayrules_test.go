package cosmosrest

import (
	"slices"
	"strings"
)

// What the replay does not reach, and the differences that are accepted, each with its reason.

// replayRule accepts a difference: both texts must occur in the name of the exchange and in the difference.
type replayRule struct{ exchange, difference, why string }

var replayRules = []replayRule{
	// databases and containers
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
	{"PATCH", "members", "a new member comes before the system properties here, and before _ts in the service"},
	{"rest-docs", "excludedPaths is [map[path:/\"_etag\"/?]]", "the path of the ETag is among them since"},
	// partitions
	{"serverlogs/pkranges", "recorded body is no JSON", "the reference has a mistake"},
	{"sdk-fixture", "body", "the recording has 100 partitions of many splits"},
	{"docs-metrics", "status 404", "the session token is of ten partitions"},
	// queries
	{"user_defined_function_operations", "status 400", "there are no user-defined functions"},
	{"UoEi5w+upwA=/docs", "status 400", "a container without partition key needs no permission to cross partitions"},
	{"hosted 2026-10-10 POST /dbs/dbimp_it/colls/kv/docs", `"tiny":5e-324`, byNumbers},
	{"hosted 2026-10-10 POST /dbs/dbimp_it/colls/kv/docs", `"d":0.3333333333333333}`, byNumbers},
	{"hosted", "The response content contains a num", "the recording has the sub-status before the sentence"},
	{"hosted", "status 200 instead of 429", "the budget of the recording was used up"},
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

// unreachable returns why an exchange is not replayed.
func unreachable(e *exchange) string {
	for kind, why := range map[string]string{
		"/attachments": "attachments", "/sprocs": "stored procedures", "/triggers": "triggers", "/udfs": "functions",
		"/users": "users and permissions", "/media": "attachments",
	} {
		if strings.Contains(e.Path, kind) {
			return why
		}
	}
	if strings.HasPrefix(e.RequestBody, "(") || strings.Contains(e.RequestBody, "…") {
		return "the request is not recorded"
	}
	return ""
}
