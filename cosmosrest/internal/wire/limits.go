package wire

import (
	"time"

	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The limits of requests and answers. Those of the service come from package service; the
// others keep a request from costing more memory than it should. How much a server does at
// once is in package meter.
const (
	MaxItem       = service.MaxItem  // bytes of the body that has an item
	MaxBatch      = 2202010          // bytes of a batch, as in the service: the items, and a twentieth for what is around them
	MaxBatchOps   = service.MaxBatch // operations of a batch
	MaxPatchOps   = service.MaxPatch // operations of a patch
	MaxPage       = service.MaxPage  // bytes of a page, and of the items that a batch answers; a larger row comes alone
	MaxProperties = 1 << 20          // bytes of the body that describes a database, container or offer
	MaxQuery      = 1 << 20          // bytes of the body of a query, with its parameters
	MaxPolling    = 30 * time.Second // for which the answer to a poll is held back
	UsualRows     = 1000             // rows of a page whose request asks for no number, or for 0
	maxActivity   = 64               // bytes of an activity id that is echoed
	maxEPK        = 256              // digits of a bound; no effective partition key has as many
	maxKeyText    = 16 << 10         // bytes of a partition key header; a key has at most 2 KB
	maxMessage    = 4 << 10          // bytes of an error's message; requests that it repeats are larger
	maxSession    = 64 << 10         // bytes of a session token; the service's containers have many ranges
	maxToken      = 16 << 10         // bytes of a continuation token; far above those that this server gives
)
