package cosmosrest

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// readAccount answers the first request of every client. SDKs use the locations and the consistency in the answer.
// Our own client also uses the member changefeed, which the service does not have. The member says how long a read of
// the feed may wait for a change, whether pending changes can be counted, and whether containers without a policy
// keep all versions.
func readAccount(c *call) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	name, endpoint := endpointOf(&c.in)
	here := []map[string]string{{"name": region, "databaseAccountEndpoint": endpoint}}
	keeps, _ := c.s.db.Retention()
	replicas := func(more string) json.RawMessage {
		return json.RawMessage(`{"minReplicaSetSize":3,"maxReplicasetSize":4` + more + `}`)
	}
	return c.sendReply(http.StatusOK, wire.Encode(map[string]any{
		"id": name, "_rid": name + ".sql.cosmosdb.azure.com", "_self": "",
		"media": "//media/", "addresses": "//addresses/", "_dbs": "//dbs/",
		"writableLocations": here, "readableLocations": here, "enableMultipleWriteLocations": false,
		"userConsistencyPolicy": map[string]string{"defaultConsistencyLevel": c.s.o.Consistency},
		"userReplicationPolicy": replicas(`,"asyncReplication":false`), "systemReplicationPolicy": replicas(""),
		"readPolicy":               map[string]int{"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
		"queryEngineConfiguration": queryLimits,
		"changefeed": map[string]any{
			"maxPollingIntervalInMs": wire.MaxPolling.Milliseconds(),
			"countsPending":          true, "keepsVersions": keeps > 0,
		},
	}))
}

// region is the region that the emulator claims to be in.
const region = "South Central US"

// queryLimits are the emulator's limits, as JSON in a string. SDKs use them to compile queries, but only on platforms
// with the service's native library.
const queryLimits = `{"maxSqlQueryInputLength":262144,"maxJoinsPerSqlQuery":5,"maxLogicalAndPerSqlQuery":500,` +
	`"maxLogicalOrPerSqlQuery":500,"maxUdfRefPerSqlQuery":10,"maxInExpressionItemsCount":16000,` +
	`"queryMaxInMemorySortDocumentCount":500,"maxQueryRequestTimeoutFraction":0.9,"sqlAllowNonFiniteNumbers":false,` +
	`"sqlAllowAggregateFunctions":true,"sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"allowNewKeywords":true,` +
	`"sqlAllowLike":true,"sqlAllowGroupByClause":true,"maxSpatialQueryCells":12,"spatialMaxGeometryPointCount":256,` +
	`"sqlAllowTop":true,"enableSpatialIndexing":true}`

// endpointOf returns the host that the client has called; the client must send its further requests to this host too.
// As in the emulator, the address replaces the name localhost, because on some machines localhost means IPv6 first,
// and the server does not listen there.
func endpointOf(in *wire.Request) (name, endpoint string) {
	scheme, host := in.Base()
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if strings.EqualFold(name, "localhost") {
		host = "127.0.0.1"
		if port != "" {
			host = net.JoinHostPort(host, port)
		}
	}
	return name, scheme + "://" + host + "/"
}
