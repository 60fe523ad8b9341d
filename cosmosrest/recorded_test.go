package cosmosrest

import (
	"net/http"
	"strings"
	"testing"
)

// Exchanges that others have recorded at the real service, and what ours answers to them.

// recordedRefusals are what the service refuses: the status, the sub-status (0 is none) and
// the beginning of the message, as they were recorded at a hosted account in 2026 unless
// something else is said.
var recordedRefusals = []struct {
	name, method, path string
	headers            map[string]string
	body               string
	status             int
	sub, code          string
	says               string
}{
	{"an item without a key", "GET", docs + "/a", nil, "", 400, "1001", "BadRequest",
		"The partition key supplied in x-ms-partitionkey header has fewer components than defined in the the collection."},
	{"a new item without a key", "POST", docs, nil, `{"id":"m2","pk":"a"}`, 400, "1001", "BadRequest",
		"The partition key supplied in x-ms-partitionkey header has fewer components than defined in the the collection."},
	{"a new item of another key", "POST", docs, under("zzz"), `{"id":"m1","pk":"a"}`, 400, "1001", "BadRequest",
		"PartitionKey extracted from document doesn't match the one specified in the header. Learn more: https://aka.ms/CosmosDB/sql/errors/wrong-pk-value"},
	{"an item that is not there", "GET", docs + "/nope", under("p"), "", 404, "0", "NotFound",
		"Entity with the specified id does not exist in the system. More info: https://aka.ms/cosmosdb-tsg-not-found"},
	{"a delete of an item that is not there", "DELETE", docs + "/nope", under("p"), "", 404, "0", "NotFound",
		"Entity with the specified id does not exist in the system. More info: https://aka.ms/cosmosdb-tsg-not-found"},
	{"an item that is there", "POST", docs, under("p"), `{"id":"a","pk":"p"}`, 409, "0", "Conflict",
		"Entity with the specified id already exists in the system."},
	{"another ETag", "PUT", docs + "/a", under("p", "If-Match", `"bogus"`), `{"id":"a","pk":"p"}`, 412, "0", "PreconditionFailed",
		"Operation cannot be performed because one of the specified precondition is not met."},
	{"no JSON", "POST", docs, under("p"), `{"id":`, 400, "0", "BadRequest",
		"The request payload is invalid. Ensure to provide a valid request payload."},
	{"no number of JSON", "POST", docs, under("p"), `{"id":"e4","pk":"p","x":NaN}`, 400, "0", "BadRequest",
		"The request payload is invalid. Ensure to provide a valid request payload."},
	{"no id", "POST", docs, under("p"), `{"pk":"p"}`, 400, "0", "BadRequest",
		"The input content is invalid because the required properties - 'id; ' - are missing. Learn more: https://aka.ms/CosmosDB/sql/errors/missing-id"},
	{"a database that is there", "POST", "/dbs", nil, `{"id":"db"}`, 409, "0", "Conflict",
		"Resource with specified id, name, or unique index already exists."},
	{"a name that no container may have", "POST", "/dbs/db/colls", nil, `{"id":"bad name/","partitionKey":` + simpleKey + `}`, 400, "0", "BadRequest",
		"The input name presented contains invalid character."},
	{"the unique keys left out", "PUT", "/dbs/db/colls/unique", nil, `{"id":"unique","partitionKey":` + simpleKey + `}`, 403, "0", "Forbidden",
		"The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one."},
	{"a query of a container that is not there", "POST", "/dbs/db/colls/nope/docs", across(), `{"query":"SELECT * FROM c"}`, 404, "0", "NotFound",
		"Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found"},
	{"a query without a key", "POST", docs, map[string]string{"content-type": "application/query+json"}, `{"query":"SELECT VALUE COUNT(1) FROM c"}`, 400, "0", "BadRequest",
		"Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception"},
	{"an aggregate", "POST", docs, across(), `{"query":"SELECT VALUE COUNT(1) FROM c"}`, 400, "1004", "BadRequest",
		"The provided cross partition query can not be directly served by the gateway."},
	{"aggregates without VALUE", "POST", docs, across(), `{"query":"SELECT COUNT(1), MAX(c.n) FROM c"}`, 400, "0", "BadRequest",
		"Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates."},
	{"groups", "POST", docs, across(), `{"query":"SELECT c.grp, COUNT(1) AS n FROM c GROUP BY c.grp"}`, 400, "0", "BadRequest",
		"Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates."},
	{"a page of no number", "POST", docs, across("x-ms-max-item-count", "abc"), `{"query":"SELECT * FROM c"}`, 400, "0", "BadRequest",
		"The input PageSize abc is invalid. Ensure to pass a valid page size which must be a positive integer or -1 for a dynamic page size."},
	{"a continuation of nobody", "POST", docs, across("x-ms-continuation", "garbage"), `{"query":"SELECT * FROM c"}`, 400, "0", "BadRequest",
		"Invalid Continuation Token"},
	{"a parameter without @", "POST", docs, across(), `{"query":"SELECT @p AS v","parameters":[{"name":"p","value":1}]}`, 400, "0", "BadRequest",
		"Invalid query. Specified parameter name 'p' is invalid. Parameter names should be in the format of symbol '@' followed by a valid identifier. E.g. @param1"},
	{"a parameter twice", "POST", docs, across(), `{"query":"SELECT @p AS v","parameters":[{"name":"@p","value":1},{"name":"@p","value":2}]}`, 400, "0", "BadRequest",
		"Invalid query. Specified duplicate parameter name '@p'."},
	{"too many operations", "POST", docs, batchOf("true"), "[" + strings.Repeat(`{"operationType":"Read","id":"a"},`, 100) + `{"operationType":"Read","id":"a"}]`, 400, "0", "BadRequest",
		"Batch request has more operations than what is supported."},
	{"no operations", "POST", docs, batchOf("true"), "[]", 400, "0", "BadRequest", // in the .NET SDK's tests
		"Batch request has no operations."},
	{"a range that is gone", "GET", docs, feedOf("x-ms-documentdb-partitionkeyrangeid", "7"), "", 410, "1002", "Gone", // 2024
		"PartitionKeyRange with id '7' in collection 'c' doesn't exist"},
	{"a session that is ahead", "GET", docs + "/a", under("p", "x-ms-session-token", "0:-1#99"), "", 404, "1002", "NotFound", // 2025
		"The read session is not available for the input session token."},
	{"no authorization", "GET", "/dbs", map[string]string{"Authorization": ""}, "", 401, "0", "Unauthorized",
		"Required Header authorization is missing. Ensure a valid Authorization token is passed."},
	{"more consistency than the account has", "POST", docs, across("x-ms-consistency-level", "Strong"), `{"query":"SELECT * FROM c"}`, 400, "0", "BadRequest",
		"ConsistencyLevel Strong specified in the request is invalid when service is configured with consistency level Session. Ensure the request consistency level is not stronger than the service consistency level."},
}

// batchOf are the headers of a batch of one key.
func batchOf(atomic string) map[string]string {
	return under("p", "x-ms-cosmos-is-batch-request", "true", "x-ms-cosmos-batch-atomic", atomic)
}

func TestRefusalsBeginAsTheServices(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.create(t, "db", `{"id":"unique","partitionKey":`+simpleKey+`,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/email"]}]}}`, nil)
	w.item(t, "a", "")
	for _, c := range recordedRefusals {
		t.Run(c.name, func(t *testing.T) {
			says := w.do(t, c.method, c.path, c.headers, c.body).refused(t, c.status, c.sub, c.code)
			if !strings.HasPrefix(says, c.says) && !strings.HasPrefix(says, `Message: {"Errors":["`+c.says) {
				t.Errorf("it says %q, want %q first", says, c.says)
			}
		})
	}
}

func TestErrorsOfAQueryHaveThePlaceAndTheCodeOfTheService(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for query, want := range map[string]string{
		"SELECT FROM c":                `{"severity":"Error","location":{"start":7,"end":11},"code":"SC1001","message":"Syntax error, incorrect syntax near 'FROM'."}`,
		"DELETE FROM c":                `{"severity":"Error","location":{"start":0,"end":6},"code":"SC1001","message":"Syntax error, incorrect syntax near 'DELETE'."}`,
		"SELECT ABC(1) AS x FROM c":    `{"severity":"Error","location":{"start":7,"end":10},"code":"SC2005","message":"'ABC' is not a recognized built-in function name."}`,
		"SELECT c.id FROM c;":          `{"severity":"Error","location":{"start":18,"end":19},"code":"SC1010","message":"Syntax error, invalid token ';'."}`,
		"SELECT 1 AS a; SELECT 2 AS b": `{"severity":"Error","location":{"start":13,"end":14},"code":"SC1010","message":"Syntax error, invalid token ';'."}`,
		"":                             `{"severity":"Error","location":{"start":0,"end":0},"code":"SC1002","message":"Syntax error, unexpected end-of-file."}`,
		"SELECT 1 AS a /* comment */":  `{"severity":"Error","location":{"start":14,"end":15},"code":"SC1001","message":"Syntax error, incorrect syntax near '/'."}`,
	} {
		says := w.ask(t, across(), query).refused(t, 400, "0", "BadRequest")
		if want = `Message: {"errors":[` + want + `]}`; !strings.HasPrefix(says, want) {
			t.Errorf("%s: it says %s, want %s", query, says, want)
		}
	}
}

// A batch that is refused as a whole because of one of its operations has the sub-status of that one.
func TestABatchHasTheSubStatusOfTheOperationThatFailed(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", "")
	for _, c := range []struct{ atomic, body, sub string }{
		{"true", `[{"operationType":"Create","resourceBody":{"id":"b","pk":"zzz"}}]`, "1001"},
		{"true", `[{"operationType":"Create","resourceBody":{"id":"b","pk":"p"}},{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}}]`, ""},
		{"false", `[{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}}]`, ""},
	} {
		a := w.do(t, "POST", docs, batchOf(c.atomic), c.body).want(t, http.StatusMultiStatus)
		if got := a.header.Get("x-ms-substatus"); got != c.sub {
			t.Errorf("%s: the sub-status is %q, want %q", c.body, got, c.sub)
		}
	}
}
