package tidy

// edges defines which packages the code of a package, and of the packages below it, may import in addition to the
// standard library and its own family. A package without a line follows the nearest line above it; a new top-level
// package needs its own line. Test files may import any package.
var edges = map[string][]string{
	// the vocabulary: packages that share it share no other code
	"feed": {"internal/fold", "internal/keyspace"},
	// importing the processor must not add dependencies for its user
	".": {
		"feed", "internal/fold", "internal/hooklog", "internal/keyspace", "internal/processor/latest",
		"internal/notes", "internal/pause", "internal/processor/dispatch", "internal/processor/instance",
		"internal/processor/parallel", "internal/processor/records", "internal/processor/tenure",
		"internal/processor/unit",
		"internal/cosmosdb/service",
	},
	"internal/variants": {"feed", "internal/notes"},
	"changefeedtest":    {"feed", "internal/pause"},
	"docstore": {
		"feed", "internal/cosmosdb/epk", "internal/cosmosdb/leasedoc",
		"internal/cosmosdb/pkey", "internal/cosmosdb/rawjson", "internal/cosmosdb/service", thirdParty,
	},
	"cosmos": {
		"feed", "internal/cosmosdb/epk", "internal/cosmosdb/leasedoc", "internal/pause",
		"internal/cosmosdb/pkey", "internal/cosmosdb/rawjson", "internal/cosmosdb/rest", "internal/cosmosdb/service",
		thirdParty,
	},
	// both kinds of containers by one call, for programs that choose by an address
	"connect": {
		"cosmos", "docstore", "feed", "internal/address", "internal/cosmosdb/rest", "internal/cosmosdb/service",
	},
	"internal/address": {},
	// sinks must not add dependencies for their user either
	"admin": {
		".", "feed", "internal/cosmosdb/pkey", "internal/inquiry", "internal/keyspace", "internal/notes",
		"internal/pause",
		"internal/processor/balance", "internal/processor/instance", "internal/processor/parallel",
		"internal/processor/records", "internal/sentence",
		"internal/variants",
	},
	"internal/sentence": {},
	"internal/inquiry":  {"feed", "internal/notes", "internal/pause"},
	"deadletters": {
		".", "feed", "internal/filelock", "internal/inquiry", "internal/notes", "internal/pause",
		"internal/cosmosdb/pkey", "internal/cosmosdb/rawjson", "internal/cosmosdb/service",
	},
	// the only edge between siblings
	"cosmosrest": {
		"cosmosrest/internal/auth", "cosmosrest/internal/binaryjson", "cosmosrest/internal/hybridrow",
		"cosmosrest/internal/meter", "cosmosrest/internal/query", "cosmosrest/internal/sql", "cosmosrest/internal/wire",
		"docstore", "feed", "internal/fold", "internal/cosmosdb/pkey", "internal/cosmosdb/rawjson",
		"internal/cosmosdb/service", thirdParty,
	},
	"cosmosrest/cosmostest":          {"cosmosrest", "cosmosrest/faulty", "docstore", "feed"},
	"cosmosrest/faulty":              {"cosmosrest/internal/wire", "internal/pause"},
	"cosmosrest/internal/auth":       {"cosmosrest/internal/wire", thirdParty},
	"cosmosrest/internal/binaryjson": {"internal/cosmosdb/rawjson"},
	"cosmosrest/internal/meter":      {"cosmosrest/internal/wire", "docstore", "internal/cosmosdb/service"},
	"cosmosrest/internal/query": {
		"cosmosrest/internal/meter", "cosmosrest/internal/sql",
		"cosmosrest/internal/wire", "docstore", "feed", "internal/cosmosdb/service",
	},
	"cosmosrest/internal/geo": {thirdParty},
	"cosmosrest/internal/sql": {
		"cosmosrest/internal/geo", "internal/cosmosdb/rawjson", "internal/cosmosdb/service", thirdParty,
	},
	"cosmosrest/internal/wire": {"feed", "internal/cosmosdb/rawjson", "internal/cosmosdb/service"},
	"outbox": {
		".", "feed", "internal/pause", "internal/cosmosdb/rawjson",
		"internal/cosmosdb/service",
	},
	"outbox/outboxtest": {"feed", "outbox"},
	// no SDK: no dependencies for users
	"outbox/webhookpub":     {".", "feed", "internal/cloudevent", "internal/webhook", "outbox"},
	"outbox/internal/calls": {},
	// each with the client of its broker
	brokers: {
		".", "feed", "internal/cloudevent", "internal/filelock", "outbox", "outbox/internal/calls", thirdParty,
	},
	"outbox/outboxotel": {"outbox", thirdParty},
	"cosmos/cosmosotel": {thirdParty},
	"metrics":           {".", "feed", "outbox", thirdParty},
	"dashboard": {
		".", "admin", "deadletters", "feed", "internal/cosmosdb/pkey", "internal/sentence", "internal/spelling",
	},
	// beside metrics, so that a program with a processor does not link the server and the store
	"metrics/servermetrics": {"cosmosrest", "docstore", thirdParty},
	"trigger": {
		"feed", "internal/changeline", "internal/child", "internal/inhand", "internal/pause", "internal/spelling",
		"internal/suspects", "internal/webhook",
	},
	"internal/child":    {},
	"internal/inhand":   {},
	"internal/spelling": {},
	"internal/suspects": {},
	// separate modules, with the SDKs
	"conformance": {thirdParty},
	// connects the parts
	"cmd": {anyPackage, thirdParty},
	// only public packages, so examples can be copied as a whole
	"examples": {
		".", "changefeedtest", "connect", "cosmos", "cosmosrest", "deadletters", "docstore",
		"feed", "outbox", brokers, "outbox/webhookpub", thirdParty,
	},
	"examples/recipes/internal/fleettest": {"cosmosrest", "cosmosrest/cosmostest", "docstore"}, // for tests
	"internal/cosmosdb/epk":               {thirdParty},
	"internal/processor/balance":          {},
	"internal/processor/beat":             {},
	"cmd/changefeed/internal/memory":      {},
	"internal/keyspace":                   {},
	"internal/processor/delivery":         {"internal/notes"},
	"internal/proof/detector":             {},
	"internal/processor/latest":           {},
	"internal/notes":                      {"internal/cosmosdb/service"},
	"internal/processor/soon":             {},
	"internal/processor/parallel":         {},
	"internal/fold":                       {},
	"internal/hooklog":                    {"feed", "internal/fold"},
	"internal/filelock":                   {},
	"internal/cloudevent":                 {"outbox"},
	"internal/webhook":                    {},
	"internal/cosmosdb/leasedoc": {
		"feed", "internal/notes", "internal/cosmosdb/rawjson",
		"internal/cosmosdb/service",
	},
	"internal/cosmosdb/pkey": {
		"feed", "internal/cosmosdb/epk", "internal/cosmosdb/rawjson",
		"internal/cosmosdb/service",
	},
	"internal/processor/rank": {"internal/cosmosdb/service"},
	"internal/processor/dispatch": {
		"feed", "internal/fold", "internal/notes", "internal/processor/delivery",
		"internal/processor/instance", "internal/processor/records", "internal/cosmosdb/service",
		"internal/processor/soon",
	},
	"internal/processor/instance": {
		"feed", "internal/notes", "internal/processor/latest", "internal/pause",
		"internal/processor/balance", "internal/processor/delivery", "internal/processor/records",
		"internal/cosmosdb/service",
	},
	"internal/processor/records": {
		"feed", "internal/keyspace", "internal/notes", "internal/processor/balance",
		"internal/processor/rank", "internal/cosmosdb/service",
	},
	"internal/processor/tenure": {
		"feed", "internal/keyspace", "internal/notes", "internal/pause",
		"internal/processor/beat", "internal/processor/dispatch", "internal/processor/instance",
		"internal/processor/records",
	},
	"internal/processor/unit": {
		"feed", "internal/fold", "internal/keyspace", "internal/processor/latest",
		"internal/notes", "internal/processor/parallel", "internal/pause", "internal/processor/balance",
		"internal/processor/instance", "internal/processor/records", "internal/variants",
	},
	"internal/cosmosdb/rawjson":     {},
	"internal/cosmosdb/rest":        {thirdParty},
	"internal/proof/rewriter":       {},
	"internal/cosmosdb/service":     {"internal/cosmosdb/rawjson"},
	"internal/changeline":           {".", "feed", "internal/cosmosdb/rawjson", "internal/cosmosdb/service"},
	"internal/pause":                {},
	"cmd/changefeed/internal/usage": {},
	"cmd/changefeed/internal/arg": {
		"docstore", "feed", "cmd/changefeed/internal/terminal",
		"cmd/changefeed/internal/usage",
	},
	"cmd/changefeed/internal/place": {
		"cosmos", "cosmosrest", "docstore", "feed", "internal/address", "internal/pause",
		"internal/cosmosdb/rawjson", "internal/cosmosdb/rest", "cmd/changefeed/internal/contexts",
		"cmd/changefeed/internal/terminal", "cmd/changefeed/internal/usage", thirdParty,
	},
	// what a key command or a file says may be made to control the terminal
	"cmd/changefeed/internal/contexts": {
		"internal/filelock", "internal/pause", "cmd/changefeed/internal/terminal", "cmd/changefeed/internal/usage",
	},
	// asks before a deletion; knows nothing of what is deleted
	"cmd/changefeed/internal/confirm": {
		"cmd/changefeed/internal/terminal", "cmd/changefeed/internal/usage", thirdParty,
	},
	"cmd/changefeed/internal/items": {
		"feed", "internal/cosmosdb/pkey", "internal/cosmosdb/rawjson", "cmd/changefeed/internal/place",
		"cmd/changefeed/internal/report", "cmd/changefeed/internal/terminal", "cmd/changefeed/internal/usage",
	},
	"internal/proof/fleet": {".", "feed", "internal/pause"},
	"cmd/changefeed/internal/explorer": {
		".", "docstore", "feed", "internal/cosmosdb/rawjson", "cmd/changefeed/internal/arg",
		"cmd/changefeed/internal/items", "cmd/changefeed/internal/place", "cmd/changefeed/internal/usage",
	},
	"cmd/changefeed/internal/demo": {
		".", "docstore", "feed", "internal/proof/fleet", "internal/pause",
		"cmd/changefeed/internal/explorer", "cmd/changefeed/internal/terminal", "cmd/changefeed/internal/ui",
		"cmd/changefeed/internal/usage",
	},
	"cmd/changefeed/internal/broker": {
		"cmd/changefeed/internal/usage", "outbox", brokers, "outbox/webhookpub", thirdParty,
	},
	"cmd/changefeed/internal/bench": {
		".", "cosmos", "cosmosrest", "dashboard", "deadletters", "docstore", "feed",
		"internal/proof/fleet", "internal/proof/memnet", "cmd/changefeed/internal/memory", "internal/pause",
		"internal/spelling",
		"cmd/changefeed/internal/report", "cmd/changefeed/internal/scratch", "cmd/changefeed/internal/terminal",
		"cmd/changefeed/internal/usage", "cmd/changefeed/internal/web", "outbox", brokers,
		"trigger", thirdParty,
	},
	"cmd/changefeed/internal/web": {
		"cosmosrest", "cosmosrest/faulty", "docstore", "cmd/changefeed/internal/place",
		"cmd/changefeed/internal/report", "cmd/changefeed/internal/terminal", "cmd/changefeed/internal/usage",
	},
	"cmd/changefeed/internal/unit": {
		".", "admin", "cosmos", "deadletters", "docstore", "feed", "internal/cosmosdb/leasedoc", "internal/pause",
		"internal/sentence", "internal/processor/records", "internal/spelling",
		"cmd/changefeed/internal/place", "cmd/changefeed/internal/terminal", "cmd/changefeed/internal/usage", "trigger",
		"cmd/changefeed/internal/report",
	},
	"cmd/changefeed/internal/letters": {
		".", "admin", "deadletters", "feed", "internal/cosmosdb/rawjson", "cmd/changefeed/internal/place",
		"cmd/changefeed/internal/terminal", "cmd/changefeed/internal/unit", "cmd/changefeed/internal/usage",
		"cmd/changefeed/internal/report",
	},
	"cmd/changefeed/internal/functions": {
		".", "docstore", "feed", "cmd/changefeed/internal/instance", "cmd/changefeed/internal/items",
		"cmd/changefeed/internal/place", "cmd/changefeed/internal/report", "cmd/changefeed/internal/terminal",
		"cmd/changefeed/internal/ui", "cmd/changefeed/internal/usage", "trigger", thirdParty,
	},
	"cmd/changefeed/internal/ui": {
		".", "docstore", "feed", "internal/sentence", "cmd/changefeed/internal/explorer",
		"cmd/changefeed/internal/unit", "cmd/changefeed/internal/usage", "dashboard",
		"metrics", "metrics/servermetrics", "outbox", thirdParty,
	},
	"cmd/changefeed/internal/instance": {
		".", "cosmos", "deadletters", "docstore", "feed", "cmd/changefeed/internal/arg", "internal/notes",
		"cmd/changefeed/internal/explorer", "internal/cosmosdb/leasedoc", "internal/spelling",
		"cmd/changefeed/internal/place", "cmd/changefeed/internal/terminal", "cmd/changefeed/internal/scratch",
		"cmd/changefeed/internal/ui", "cmd/changefeed/internal/unit", "cmd/changefeed/internal/usage",
	},
	"cmd/changefeed/internal/unload": {
		".", "docstore", "feed", "internal/changeline", "internal/filelock", "internal/keyspace",
		"cmd/changefeed/internal/place", "cmd/changefeed/internal/report", "cmd/changefeed/internal/usage",
	},
	"cmd/changefeed/internal/load": {
		"docstore", "feed", "cmd/changefeed/internal/place", "internal/cosmosdb/service",
		"cmd/changefeed/internal/report", "cmd/changefeed/internal/terminal",
	},
	"cmd/changefeed/internal/manual": {"cmd/changefeed/internal/terminal", thirdParty},
	"cmd/changefeed/internal/lookup": {
		"cmd/changefeed/internal/letters", "cmd/changefeed/internal/place", "cmd/changefeed/internal/unit",
	},
	"cmd/changefeed/internal/report": {
		"cmd/changefeed/internal/terminal", "cmd/changefeed/internal/usage", thirdParty,
	},
	"cmd/changefeed/internal/terminal": {"internal/sentence", thirdParty},
	"internal/proof/lives":             {"docstore"},
	"internal/proof/memnet":            {},
	"cmd/changefeed/internal/notices":  {},
	"cmd/changefeed/internal/scratch":  {},
	"tools/mutants":                    {},
	"tools/rename":                     {thirdParty}, // loads packages with their types
	"tools/measure":                    {},
	"tools/long":                       {},
	"tools/stress":                     {},
	"tools/diagrams":                   {},
	"tools/pictures":                   {},
	"tools/reference":                  {},
	"tools/size":                       {},
	"tools/suites":                     {},
	"tools/api":                        {thirdParty}, // loads packages with their types
	"tools/workflow":                   {thirdParty}, // reads YAML
	"tools/release":                    {thirdParty}, // a module of its own, which reads packages
	"internal/proof/nethost":           {"docstore", "feed"},
	"internal/proof/alarms":            {},                       // tests alone, of files for other programs
	"internal/proof/scaler":            {},                       // tests alone
	"internal/proof/soak":              {},                       // tests alone
	"internal/proof/sim":               {anyPackage, thirdParty}, // the whole system in a single test
	"tools/tidy":                       {},
	"cosmosrest/internal/hybridrow":    {"feed"},
	"cosmosrest/internal/netbatch":     {}, // shares no code with the package that it tests
}
