package bench

import (
	"slices"
	"time"
)

// All returns the benchmarks of a machine in the order in which they run. Neighbours may share the stores that the
// site keeps.
func All() []Benchmark {
	return slices.Concat(ofTheStoreAndProcessor(), ofTheOutboxAndMillions(), ofTheServer())
}

func ofTheStoreAndProcessor() []Benchmark {
	return []Benchmark{
		{
			"durable_overwrite",
			"durable overwrites of 1 KB documents by 16 writers; against a plain file with the same grouping and fsync",
			durableOverwrite,
		},
		{
			"feed_read", "reading a feed of 200,000 documents from the beginning; against a bare scan of the engine",
			feedRead,
		},
		{
			"processor_backlog", "a processor with 4 leases works off the same 200,000; against feed_read",
			processorBacklog,
		},
		{
			"write_to_handler", "from the acknowledgement of a write to the handler, at 200 writes a second",
			writeToHandler,
		},
		{"idle_1000", "heap and processor time of 1,000 idle leases", idle1000},
		{
			"concurrency",
			"a handler that takes 10 ms for a change, 1,000 keys, 64 at once on one lease; against one after the other",
			concurrency,
		},
		{
			"concurrency_keys",
			"a handler that takes 5 ms for a call, 500 keys, 16 at once on one lease; against a call for each key",
			concurrencyKeys,
		},
		{
			"stuck_key",
			"10,000 keys beside one whose handler hangs with a million changes behind it; against the same without it",
			stuckKey,
		},
		{
			"poison_overhead",
			"processor time of a change with MaxAttempts and DeadLetters while none fails; against without",
			poisonOverhead,
		},
		{
			"trigger_program",
			"a long-lived program, another process, handles small changes on one lease; against a handler in Go",
			triggerProgram,
		},
		{
			"trigger_latency", "how much later a long-lived program has handled a change than a handler in Go",
			triggerTail,
		},
		{
			"ui_viewer", "processor time of a viewer of the dashboard, at 10,000 changes a second; against nobody",
			uiViewer,
		},
		{"memory_bound", "heap of a lease with documents of 1 MB, a slow handler and a buffer of 64 MB", memoryBound},
	}
}

func ofTheOutboxAndMillions() []Benchmark {
	return []Benchmark{
		{
			"outbox_commit",
			"durable units of work of an object and an event; against the same two documents as a bare batch",
			outboxCommit,
		},
		{
			"outbox_relay",
			"a relay to embedded NATS JetStream on disk, 1,000 keys, synced every 2 minutes as a NATS server is " +
				"by default", outboxRelay(relayEvents, relayRate, 2*time.Minute, "synced every 2 minutes"),
		},
		{
			"outbox_relay_sync", "the same, each event synced before it is acknowledged",
			outboxRelay(syncEvents, syncRate, 0, "each synced before it is acknowledged"),
		},
		{
			"outbox_slow_broker", "a relay to a broker that takes 5 ms to acknowledge; against one event after the other",
			outboxSlowBroker,
		},
		{
			"outbox_latency", "from the acknowledgement of a commit to the consumer of its event, at 200 commits a second",
			outboxLatency,
		},
		{
			"pending_3m", "the exact number of 3 million pending changes; fills the store that the next one needs too",
			pending3M,
		},
		{
			"overwrite_3m", "durable overwrites among 3 million documents of 1 KB; against the same among 100,000",
			overwrite3M,
		},
	}
}

func ofTheServer() []Benchmark {
	return []Benchmark{
		{
			"serve_upsert",
			"upserts over HTTP, durable, with group commit; this and the next against net/http echoing as many bytes",
			served("serve-upsert", serveDocs, 8000, echoBody, upsertOne),
		},
		{
			"serve_upsert_nosync", "the same, acknowledged before they are on the disk",
			served("serve-nosync", serveDocs, 14_000, echoBody, upsertOne, "--no-sync"),
		},
		{"serve_read", "point reads over HTTP", served("serve-read", serveDocs, 17_000, echoPage, readOne)},
		{
			"serve_query", "queries by id and partition key over HTTP, 20,000 documents",
			served("serve-query", serveDocs, 8000, echoPage, queryOne),
		},
		{"serve_query_200k", "the same, 200,000 documents", served("serve-query-200k", serveMore, 8000, echoPage,
			queryOne)},
		{
			"serve_batch", "atomic batches of 10 upserts over HTTP, durable",
			served("serve-batch", serveDocs, 2500, echoBatch, batchOfTen),
		},
		{"serve_feed", "a change feed of 100,000 documents over HTTP from the beginning, pages of 1,000", serveFeed},
		{
			"serve_follow",
			"from the acknowledgement of a write to a reader that waits (long poll), at 200 writes a second",
			serveFollow,
		},
		{
			"processor_http_100",
			"a processor with 4 leases works off 200,000 documents over HTTP in pages of 100; against one connection " +
				"that only reads them", processorHTTP("processor-http-100", 100, 0.35),
		},
		{"processor_http_1000", "the same in pages of 1,000", processorHTTP("processor-http-1000", 1000, 0.6)},
		{"processor_http_lease", "the same with one lease over one partition, in pages of 100", processorHTTPLease},
		{
			"attack_connections",
			"point reads over HTTP while 10,000 connections without a key are held; against the same without an attack",
			besieged("attack-connections", attackConnections),
		},
		{
			"attack_queries", "the same while 16 connections send hostile queries and pages of 4 MB are read slowly",
			besieged("attack-queries", attackQueries),
		},
		{"serve_start", "from the start of a server to its first answer", serveStart},
		{"serve_memory", "the most memory that a server with 20,000 documents takes under a load", serveMemory},
	}
}
