package wire

// The names of headers. Request headers are in the canonical form of net/http, as in its map. Answer headers are in
// lower case, as the service writes them.

// Headers of requests, in net/http's canonical form. Headers that the protocol documents are not explained here.
const (
	HeaderActivity       = "X-Ms-Activity-Id"
	HeaderAIM            = "A-Im" // which change feed, or following partition key ranges
	HeaderAtomic         = "X-Ms-Cosmos-Batch-Atomic"
	HeaderAuthorization  = "Authorization"
	HeaderAutoscale      = "X-Ms-Cosmos-Offer-Autopilot-Settings"
	HeaderBatch          = "X-Ms-Cosmos-Is-Batch-Request"
	HeaderConsistency    = "X-Ms-Consistency-Level"
	HeaderContainerRID   = "X-Ms-Cosmos-Intended-Collection-Rid"
	HeaderContentType    = "Content-Type"
	HeaderContinuation   = "X-Ms-Continuation"
	HeaderContinueOnErr  = "X-Ms-Cosmos-Batch-Continue-On-Error"
	HeaderCrossPartition = "X-Ms-Documentdb-Query-Enablecrosspartition"
	HeaderContinueLimit  = "X-Ms-Documentdb-Responsecontinuationtokenlimitinkb"
	HeaderDate           = "X-Ms-Date"
	HeaderDirection      = "X-Ms-Enumeration-Direction"
	HeaderDirectExecute  = "X-Ms-Cosmos-Query-Optimisticdirectexecute"
	HeaderEndEPK         = "X-Ms-End-Epk"
	HeaderExcludeSystem  = "X-Ms-Exclude-System-Properties" // leave out _self and _attachments
	HeaderExpiry         = "X-Ms-Documentdb-Expiry-Seconds" // of a resource token
	HeaderFeatures       = "X-Ms-Cosmos-Supported-Query-Features"
	HeaderFormat         = "X-Ms-Documentdb-Content-Serialization-Format"
	HeaderFormats        = "X-Ms-Cosmos-Supported-Serialization-Formats"
	HeaderIfMatch        = "If-Match"
	HeaderIfModified     = "If-Modified-Since"
	HeaderIfNoneMatch    = "If-None-Match"
	HeaderIndexMetrics   = "X-Ms-Cosmos-Populateindexmetrics"
	HeaderIndexMetricsV2 = "X-Ms-Cosmos-Populateindexmetrics-V2"
	HeaderIsQuery        = "X-Ms-Documentdb-Isquery"
	HeaderKey            = "X-Ms-Documentdb-Partitionkey"
	HeaderMaxItems       = "X-Ms-Max-Item-Count"
	HeaderPending        = "X-Changefeed-Count-Pending" // ours: asks for a count instead of a page
	HeaderPolling        = "X-Ms-Cosmos-Max-Polling-Interval"
	HeaderPostTrigger    = "X-Ms-Documentdb-Post-Trigger-Include"
	HeaderPrefer         = "Prefer"
	HeaderPreTrigger     = "X-Ms-Documentdb-Pre-Trigger-Include"
	HeaderQuery          = "X-Ms-Documentdb-Query"
	HeaderQueryMetrics   = "X-Ms-Documentdb-Populatequerymetrics"
	HeaderQueryPlan      = "X-Ms-Cosmos-Is-Query-Plan-Request"
	HeaderQuotaInfo      = "X-Ms-Documentdb-Populatequotainfo"
	HeaderRangeID        = "X-Ms-Documentdb-Partitionkeyrangeid"
	HeaderSession        = "X-Ms-Session-Token"
	HeaderStatistics     = "X-Ms-Documentdb-Populatepartitionstatistics"
	HeaderStartEPK       = "X-Ms-Start-Epk"
	HeaderThroughput     = "X-Ms-Offer-Throughput"
	HeaderVersion        = "X-Ms-Version"
	HeaderToAutoscale    = "X-Ms-Cosmos-Migrate-Offer-To-Autopilot"
	HeaderToManual       = "X-Ms-Cosmos-Migrate-Offer-To-Manual-Throughput"
	HeaderUpsert         = "X-Ms-Documentdb-Is-Upsert"
	HeaderWireFormat     = "X-Ms-Cosmos-Changefeed-Wire-Format-Version"
)

// Headers of answers, in lower case as the service writes them, because the .NET SDK finds the continuation and other
// headers by their exact spelling. Headers that HTTP defines, such as Content-Type, have net/http's spelling.
const (
	AnswerActivity       = "x-ms-activity-id"
	AnswerAllow          = "Allow"
	AnswerAltContentPath = "x-ms-alt-content-path"
	AnswerCharge         = "x-ms-request-charge"
	AnswerContentPath    = "x-ms-content-path"
	AnswerContinuation   = "x-ms-continuation"
	AnswerDistribution   = "x-ms-cosmos-query-requiresdistribution" // for HeaderDirectExecute
	AnswerDuration       = "x-ms-request-duration-ms"
	AnswerETag           = "etag"
	AnswerIndexProgress  = "x-ms-documentdb-collection-index-transformation-progress" // in percent
	AnswerIndexMetrics   = "x-ms-cosmos-index-utilization"
	AnswerItemLSN        = "x-ms-item-lsn" // of the last write of the item
	AnswerItemCount      = "x-ms-item-count"
	AnswerLocation       = "Content-Location"
	AnswerLSN            = "lsn"
	AnswerMinThroughput  = "x-ms-cosmos-min-throughput"
	AnswerOfferPending   = "x-ms-offer-replace-pending"
	AnswerQueryMetrics   = "x-ms-documentdb-query-metrics"
	AnswerRange          = "x-ms-documentdb-partitionkeyrangeid"
	AnswerResourceQuota  = "x-ms-resource-quota"
	AnswerResourceUsage  = "x-ms-resource-usage"
	AnswerRetryAfter     = "x-ms-retry-after-ms"
	AnswerSession        = "x-ms-session-token"
	AnswerShared         = "x-ms-share-throughput" // the container shares the throughput of its database
	AnswerSubStatus      = "x-ms-substatus"
)

// QueryType is the content type of a query.
const QueryType = "application/query+json"

// Values of [HeaderAIM] and [HeaderWireFormat].
const (
	LatestFeed   = "Incremental Feed"
	VersionsFeed = "Full-Fidelity Feed"
	WireFormat   = "2021-09-15" // items with metadata
)
