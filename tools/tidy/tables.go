package tidy

import "regexp"

// The tables are code and not a settings file: they need no parser and no path, and a change invalidates the test
// cache.

// waivers are the exceptions: rule, place, reason. Keep them sorted by rule and place.
var waivers = []waiver{
	{"booleans", "cmd/changefeed/internal/web:Options", "settings of a user, each for itself"},
	{"booleans", "docstore:Options", "settings of a user, each for itself"},
	{"booleans", "internal/processor/delivery:Rules", "settings of a user, each for itself"},
	{"booleans", "internal/proof/sim:weather", "kinds of trouble, drawn each for itself"},
	{"file-length", "docstore/keys.go", "all byte layouts of the store, each with its reader beside its writer"},
	{
		"goroutine", "internal/child/output.go:newOutput",
		"a program may leave others behind, which write to its standard error for as long as they run",
	},
	{
		"goroutine", "cmd/changefeed/stdin.go:untilStdinFlag",
		"a read of standard input cannot be interrupted: it ends with the input or with the process",
	},
	{
		"goroutine", "trigger/contract/program.go:Serve",
		"a read of a pipe cannot be interrupted: it ends when the caller closes the pipe, or with the process",
	},
	{
		"goroutine", "internal/processor/tenure/worker.go:Begin",
		"a handler that ignores its context cannot be waited for: it keeps its range until it returns",
	},
	{
		"goroutine", "dashboard/survey.go:Dashboard.survey",
		"a survey is for all who wait for it, of whom each may go before its end",
	},
	{
		"goroutine", "dashboard/survey.go:shown.list",
		"a store that ignores its context cannot be waited for: it is asked again only when it has answered",
	},
	{
		"goroutine", "dashboard/survey.go:Dashboard.findUnits",
		"a search that ignores its context cannot be waited for: it is called again only when it has returned",
	},
	{
		"calls", "cosmosrest/call.go:call.recoverPanic",
		"net/http wants its own panic back, with which a handler cuts a connection",
	},
	{
		"calls", "internal/processor/delivery/state.go:mustAllow",
		"a change of state that is not in the table is a mistake of ours, after which nothing that the lease says " +
			"can be trusted",
	},
	{
		"calls", "internal/proof/lives/lives.go:Live",
		"virtual time, in which each life begins hours after the one before",
	},
	{
		"calls", "cosmosrest/faulty/faulty.go:Injector.ServeHTTP",
		"net/http closes a connection without an answer only if its handler panics with its own value",
	},
	{
		"calls", "metrics/servermetrics/metrics.go:Metrics.Observe",
		"a sync of the disk serves many writes, and belongs to the context of none",
	},
	{"calls", "trigger/contract/contracttest/cases.go:inPieces.Write", "plays a host whose messages come slowly"},
	{"calls", "internal/proof/sim/handler.go:instance.pauseOrFail", "plays a handler that panics"},
	{
		"engine", "cmd/changefeed/internal/bench/scan.go",
		"a benchmark compares reading a feed with a scan of the bare engine",
	},
	{"methods", "internal/proof/sim:ledger", "the outside checkers of one world, each a rule of its own"},
	{"methods", "internal/proof/sim:world", "what happens to one world, each a kind of event"},
	{"methods", "changefeedtest:containerTest", "a test a method, run by their names; none calls another"},
}

const (
	anyPackage = "..." // every package of this module
	thirdParty = "*"   // modules other than ours and the standard library
)

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
		"cosmosrest/internal/auth", "cosmosrest/internal/hybridrow",
		"cosmosrest/internal/meter", "cosmosrest/internal/query", "cosmosrest/internal/sql", "cosmosrest/internal/wire",
		"docstore", "feed", "internal/fold", "internal/cosmosdb/pkey", "internal/cosmosdb/rawjson",
		"internal/cosmosdb/service", thirdParty,
	},
	"cosmosrest/cosmostest":     {"cosmosrest", "cosmosrest/faulty", "docstore", "feed"},
	"cosmosrest/faulty":         {"cosmosrest/internal/wire", "internal/pause"},
	"cosmosrest/internal/auth":  {"cosmosrest/internal/wire", thirdParty},
	"cosmosrest/internal/meter": {"cosmosrest/internal/wire", "docstore", "internal/cosmosdb/service"},
	"cosmosrest/internal/query": {
		"cosmosrest/internal/meter", "cosmosrest/internal/sql",
		"cosmosrest/internal/wire", "docstore", "feed", "internal/cosmosdb/service",
	},
	"cosmosrest/internal/sql":  {"internal/cosmosdb/rawjson", "internal/cosmosdb/service", thirdParty},
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
		".", "changefeedtest", "cosmos", "cosmosrest", "deadletters", "docstore",
		"feed", "outbox", brokers, "outbox/webhookpub", thirdParty,
	},
	"internal/cosmosdb/epk":          {thirdParty},
	"internal/processor/balance":     {},
	"internal/processor/beat":        {},
	"cmd/changefeed/internal/memory": {},
	"internal/keyspace":              {},
	"internal/processor/delivery":    {"internal/notes"},
	"internal/proof/detector":        {},
	"internal/processor/latest":      {},
	"internal/notes":                 {"internal/cosmosdb/service"},
	"internal/processor/soon":        {},
	"internal/processor/parallel":    {},
	"internal/fold":                  {},
	"internal/hooklog":               {"feed", "internal/fold"},
	"internal/filelock":              {},
	"internal/cloudevent":            {"outbox"},
	"internal/webhook":               {},
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
		"cosmos", "cosmosrest", "docstore", "feed", "internal/pause",
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
		"cmd/changefeed/internal/report",
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
	"tools/pictures":                   {},
	"tools/size":                       {},
	"internal/proof/nethost":           {"docstore", "feed"},
	"internal/proof/alarms":            {},                            // tests alone, of files for other programs
	"internal/proof/scaler":            {}, "internal/proof/soak": {}, // tests alone
	"internal/proof/sim": {anyPackage, thirdParty}, // the whole system in a single test
	"tools/tidy":         {},

	"cosmosrest/internal/hybridrow": {"feed"},
	"cosmosrest/internal/netbatch":  {}, // shares no code with the package that it tests
}

const (
	engineModule = "github.com/cockroachdb/pebble"
	// facts verified before the engine opens a store belong to its format as much as to its API
	engineDir = "docstore/internal/engine"
)

var (
	vagueName = regexp.MustCompile(`^(utils?|common|helpers?|shared|types|models?|base|errors?|misc)$|utils?$|_`)

	// The brackets prevent these words from breaking the rule themselves.
	unfinished = regexp.MustCompile(`\b(TO[D]O|FIX[M]E|XX[X])\b`)

	forbiddenCall = regexp.MustCompile(`^(time\.Sleep|context\.(Background|TO[D]O)|os\.Exit|fmt\.Print.*|log\..*|panic|print|println)$`)

	wordRune = regexp.MustCompile(`^\w`)

	// The standard library defines the meaning of these methods, so they need no comment.
	wellKnownMethod = regexp.MustCompile(`^(Error|String|Unwrap|MarshalJSON|UnmarshalJSON)$`)
)

// forTests are the packages that only tests import, so they may import testing.
var forTests = []string{
	"changefeedtest", "cosmosrest/cosmostest", "cosmosrest/internal/netbatch",
	"cmd/changefeed/internal/bench/virtual", "internal/proof/lives", "outbox/outboxtest",
}

// knownFiles are the files that belong in the repository. A new kind of file needs a line.
var knownFiles = []*regexp.Regexp{
	regexp.MustCompile(`^([a-z0-9]+/)*[a-z0-9_]+\.go$`),
	regexp.MustCompile(`(^|/)testdata/`),
	regexp.MustCompile(`^docs/host\.schema\.json$`), // for editors
	regexp.MustCompile(`^(README\.md|CONTRIBUTING\.md|CHANGELOG\.md|LICENSE|Makefile|\.gitignore|\.gitattributes)$`),
	// pinned separately from the library's own requirements
	regexp.MustCompile(`^(tools/pinned/|conformance/(go|cloudevents|browser)/|examples/(exactlyonce|recipes)/)?go\.(mod|sum)$`),
	regexp.MustCompile(`^dashboard/page/[a-z]+\.(html|css|js|svg)$`),
	regexp.MustCompile(`^conformance/browser/package(-lock)?\.json$`), // the rules of accessibility
	regexp.MustCompile(`^conformance/(js|servicebus|standardwebhooks)/([a-z-]+\.mjs|package(-lock)?\.json)$`),
	regexp.MustCompile(`^conformance/standardwebhooks/([a-z-]+\.py|requirements\.txt)$`),
	regexp.MustCompile(`^conformance/python/([a-z_]+\.py|requirements\.txt)$`),
	regexp.MustCompile(`^clients/python/(README\.md|pyproject\.toml|requirements\.txt)$`),
	regexp.MustCompile(`^clients/python/([a-z]+/)*(_{0,2}[a-z_]+\.py|py\.typed)$`),
	regexp.MustCompile(`^conformance/java/([A-Z][A-Za-z]+\.java|pom\.xml)$`),
	regexp.MustCompile(`^conformance/kafka/pom\.xml$`), // the broker itself
	regexp.MustCompile(`^clients/node/(src/[a-z]+\.ts|test/[a-z-]+\.(mjs|ts)|(pack|eslint\.config)\.mjs)$`),
	regexp.MustCompile(`^clients/node/(README\.md|(package(-lock)?|(test/)?tsconfig)\.json)$`),
	regexp.MustCompile(`^\.ci/run$`),
	regexp.MustCompile(`^docs/[a-z0-9/-]*([a-z0-9-]+|README)\.(md|svg)$`),
	regexp.MustCompile(`^docs/json\.schema\.json$`),
	regexp.MustCompile(`^docs/pictures/[a-z0-9-]+\.(jpg|webp)$`), // the dashboard
	regexp.MustCompile(`^examples/[a-z]+/README\.md$`),
	regexp.MustCompile(`^examples/shell/[a-z]+\.sh$`),                              // programs of run --long-lived
	regexp.MustCompile(`^examples/contacts/(page\.html|openapi\.json)$`),           // files served by its service
	regexp.MustCompile(`^deploy/(alerts/[a-z0-9_.]+\.yaml|grafana/[a-z]+\.json)$`), // for Prometheus and Grafana
	regexp.MustCompile(`^tools/mutants/tables/[a-z]+\d?\.txt$`),
	// licences of others, which the binary contains
	regexp.MustCompile(`^cmd/changefeed/internal/notices/notices\.txt$`),
}

// foreign are heads of qualified names (`Head.Name`) that documents may use although they are not ours. The value
// says whose they are.
var foreign = map[string]string{}
