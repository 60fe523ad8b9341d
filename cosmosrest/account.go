package cosmosrest

import (
	"net"
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// readAccount answers the first request of every client. SDKs act on the locations and on
// the consistency. Our own client acts on the member changefeed as well, which the service
// does not have: it says that a read of the feed may wait for a change, and how long, that
// pending changes can be counted, and whether containers without a policy keep all
// versions.
func readAccount(c *call) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	name, endpoint := endpointOf(&c.in)
	here := []map[string]string{{"name": region, "databaseAccountEndpoint": endpoint}}
	keeps, _ := c.s.db.Retention()
	replicas := map[string]any{"asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4}
	return c.sendReply(http.StatusOK, wire.Encode(map[string]any{
		"id": name, "_rid": name + ".sql.cosmosdb.azure.com", "_self": "",
		"media": "//media/", "addresses": "//addresses/", "_dbs": "//dbs/",
		"writableLocations": here, "readableLocations": here, "enableMultipleWriteLocations": false,
		"userConsistencyPolicy": map[string]string{"defaultConsistencyLevel": c.s.o.Consistency},
		"userReplicationPolicy": replicas, "systemReplicationPolicy": replicas,
		"readPolicy":               map[string]int{"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
		"queryEngineConfiguration": queryLimits,
		"changefeed":               map[string]any{"maxPollingIntervalInMs": wire.MaxPolling.Milliseconds(), "countsPending": true, "keepsVersions": keeps > 0},
	}))
}

// region is the region that the emulator claims to be in.
const region = "South Central US"

// queryLimits are the emulator's, as JSON in a string. SDKs compile queries by them only
// where they have the service's native library.
const queryLimits = `{"maxSqlQueryInputLength":262144,"maxJoinsPerSqlQuery":5,"maxLogicalAndPerSqlQuery":500,` +
	`"maxLogicalOrPerSqlQuery":500,"maxUdfRefPerSqlQuery":10,"maxInExpressionItemsCount":16000,` +
	`"queryMaxInMemorySortDocumentCount":500,"maxQueryRequestTimeoutFraction":0.9,"sqlAllowNonFiniteNumbers":false,` +
	`"sqlAllowAggregateFunctions":true,"sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"allowNewKeywords":true,` +
	`"sqlAllowLike":true,"sqlAllowGroupByClause":true,"maxSpatialQueryCells":12,"spatialMaxGeometryPointCount":256,` +
	`"sqlAllowTop":true,"enableSpatialIndexing":true}`

// endpointOf is the host that the client has called, to which it is to send its further
// requests as well. The name localhost becomes the address, as in the emulator, since on
// some machines the name is that of IPv6 first, where nothing listens.
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
