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
		"goroutine", "dashboard/survey.go:shown.listUnit",
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
	"examples/recipes/internal/fleettest",
}

// knownFiles are the files that belong in the repository. A new kind of file needs a line.
var knownFiles = []*regexp.Regexp{
	regexp.MustCompile(`^([a-z0-9]+/)*[a-z0-9_]+\.go$`),
	regexp.MustCompile(`(^|/)testdata/`),
	regexp.MustCompile(`^docs/(host|json)\.schema\.json$`), // for editors
	regexp.MustCompile(`^(README\.md|CONTRIBUTING\.md|CHANGELOG\.md|LICENSE|Makefile|\.gitignore|\.gitattributes)$`),
	// pinned separately from the library's own requirements
	regexp.MustCompile(`^(tools/pinned/|conformance/(go|cloudevents|browser|deploy)/|examples/(exactlyonce|recipes)/)?go\.(mod|sum)$`),
	regexp.MustCompile(`^dashboard/page/[a-z]+\.(html|css|js|svg)$`),
	regexp.MustCompile(`^(conformance/browser|docs/\.site)/(navigation|package(-lock)?)\.json$`),
	regexp.MustCompile(`^docs/\.site/\.vitepress/(config\.mjs|theme/(index\.js|style\.css))$`),
	regexp.MustCompile(`^conformance/(js(/public)?|servicebus|standardwebhooks)/([a-z-]+\.mjs|package(-lock)?\.json)$`),
	regexp.MustCompile(`^conformance/standardwebhooks/([a-z-]+\.py|requirements\.txt)$`),
	regexp.MustCompile(`^conformance/(python|vectorstores)/([a-z_]+\.py|(public-)?requirements\.txt)$`),
	// for the SDK's own tests
	regexp.MustCompile(`^conformance/python/standin/(outcomes|devtools_testutils/[a-z_]+)\.py$`),
	regexp.MustCompile(`^conformance/(js|python)/known\.txt$`), // tests that fail, with reasons
	regexp.MustCompile(`^clients/python/(README\.md|pyproject\.toml|requirements\.txt)$`),
	regexp.MustCompile(`^clients/python/([a-z]+/)*(_{0,2}[a-z_]+\.py|py\.typed)$`),
	regexp.MustCompile(`^conformance/(java|javaserver|spring)/([A-Z][A-Za-z]+\.java|pom\.xml)$`),
	regexp.MustCompile(`^conformance/rust/(Cargo\.(toml|lock)|src/(bin/)?[a-z]+\.rs)$`),
	regexp.MustCompile(`^conformance/kafka/pom\.xml$`), // the broker itself
	regexp.MustCompile(`^clients/node/(src/[a-z]+\.ts|test/[a-z-]+\.(mjs|ts)|(pack|eslint\.config)\.mjs)$`),
	regexp.MustCompile(`^clients/node/(README\.md|(package(-lock)?|(test/)?tsconfig)\.json)$`),
	regexp.MustCompile(`^\.ci/run$`),
	regexp.MustCompile(`^docs/[a-z0-9/-]*([a-z0-9-]+|README)\.(md|svg)$`),
	regexp.MustCompile(`^docs/pictures/[a-z0-9-]+\.(jpg|webp)$`), // the dashboard
	regexp.MustCompile(`^examples/[a-z]+/README\.md$`),
	regexp.MustCompile(`^examples/shell/[a-z]+\.sh$`),                    // programs of run --long-lived
	regexp.MustCompile(`^examples/contacts/(page\.html|openapi\.json)$`), // files served by its service
	regexp.MustCompile(`^(\.dockerignore|deploy/(Dockerfile|systemd/changefeed@\.service|(kubernetes|container-apps)/[a-z/-]+\.yaml))$`),
	regexp.MustCompile(`^deploy/(alerts/[a-z0-9_.]+\.yaml|grafana/[a-z]+\.json)$`), // for Prometheus and Grafana
	regexp.MustCompile(`^tools/mutants/tables/[a-z]+\d?\.txt$`),
	// licences of others, which the binary contains
	regexp.MustCompile(`^cmd/changefeed/internal/notices/notices\.txt$`),
}

// foreign are heads of qualified names (`Head.Name`) that documents may use although they are not ours. The value
// says whose they are.
var foreign = map[string]string{}
