package cosmosrest

import (
	"net/http"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// directRequest is the request of a client in direct mode. It is not among the operations, because it needs no rights.
var directRequest = &operation{run: refuseDirect, name: "read_addresses"}

// refuseDirect answers a client in direct mode, which asks for the addresses of a partition's replicas before its first
// request about an item. There are none, because this server does not speak the protocol of the replicas. The answer
// is the same for all, so the sender need not be known. The sentence reaches the programmer: the SDKs put the message
// of this refusal into their exception.
func refuseDirect(*call) error {
	return wire.Errorf(http.StatusBadRequest, 0, wire.CodeBadRequest, "This server serves gateway mode only, and the "+
		"client is in direct mode: use gateway mode. In .NET set CosmosClientOptions.ConnectionMode = "+
		"ConnectionMode.Gateway, in Java call CosmosClientBuilder.gatewayMode()")
}
