package wire

import (
	"time"

	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The limits of requests and answers. The service's limits come from package service. The other limits prevent a
// request from taking too much memory. Package meter limits how much a server does at once.
const (
	MaxItem = service.MaxItem // bytes of the body of an item
	// bytes of a batch, as in the service: the items, and a twentieth for the text around them
	MaxBatch    = 2202010
	MaxBatchOps = service.MaxBatch // operations of a batch
	MaxPatchOps = service.MaxPatch // operations of a patch
	// bytes of a page, and of the items in the answer to a batch; a larger row is a page of its own
	MaxPage       = service.MaxPage
	MaxProperties = 1 << 20          // bytes of the body that describes a database, container or offer
	MaxQuery      = 1 << 20          // bytes of the body of a query, with its parameters
	MaxPolling    = 30 * time.Second // longest wait before the answer to a poll
	UsualRows     = 1000             // rows of a page if the request gives no number, or 0
	maxActivity   = 64               // bytes of an activity id that is echoed
	maxEPK        = 256              // digits of a bound; effective partition keys have fewer
	maxKeyText    = 16 << 10         // bytes of a partition key header; a key has at most 2 KB
	maxMessage    = 4 << 10          // bytes of an error's message, which may repeat a larger request
	maxSession    = 64 << 10         // bytes of a session token; the service's containers have many ranges
	maxToken      = 16 << 10         // bytes of a continuation token; this server's tokens are far smaller
)
