# Everything here needs Go and, for the race detector, a C compiler. The tools are pinned in tools/pinned/go.mod.

GO    ?= go
TOOL  := $(GO) tool -modfile=tools/pinned/go.mod
PKG   ?= ./...

SEEDS    ?= 100
FROM     ?= 1
CRASHES  ?= 50
ROUNDS   ?= 20
DAMAGES  ?= 1000
QUERIES  ?= 2000
HISTORIES ?= 1000
RUNS     ?= 20000
SEED     ?= 1
FUZZTIME ?= 10s
LONG     ?= .long
BENCH    ?= .
BENCH_CLIENTS ?= 50000 5
PART     ?= 0/1
DIST     ?= .dist

.DEFAULT_GOAL := help
.PHONY: help check format vet lint fix test race sim search mutants mutants-build crash handlers damage faults resume model differ fuzz long stress transcripts bench cover demo page docs reference site man notices archive browser conformance-go conformance-js conformance-python conformance-java conformance-spring conformance-rust conformance-vectorstores conformance-servicebus conformance-cloudevents conformance-standardwebhooks kafka rabbitmq exactly-once-sqlite recipes clients clients-node bench-clients npm clients-python wheels size pictures cold vuln tidy alerts deploy-check api workflow release-tools release-dry scaler soak

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: format vet lint fix race ## what has to pass before a commit: format, vet, lint, fix, race

format: ## list files that gofumpt would change
	@echo "== gofumpt -l"
	@files=$$($(TOOL) gofumpt -l .) && test -z "$$files" || { echo "$$files"; exit 1; }

vet: ## go vet
	@echo "== go vet"
	@$(GO) vet $(PKG)
	@$(GO) vet -tags brokers ./cmd/changefeed/internal/broker ./cmd/changefeed ./examples/contacts && $(GO) test -tags brokers ./cmd/changefeed/internal/broker

lint: ## staticcheck
	@echo "== staticcheck"
	@$(TOOL) staticcheck $(PKG)

fix: ## show what go fix would change; fails when there is something
	@echo "== go fix -diff"
	@$(GO) fix -diff $(PKG)

test: ## all tests; PKG=./docstore for one package
	$(GO) test $(PKG)

# The detector itself crashes now and then when two threads run timers of one synctest bubble. So the root, which has most
# bubbles, runs on one thread beside the others; another package is run on one once more if the detector has crashed.
# By default each process of the detector sleeps for a second before it ends, also the handlers that tests start.
# The tools read sources and start programs, so they run without the detector. Vet is a step of its own.
race: ## all tests with the race detector, shuffled; those of the tools without it
	@echo "== go test -race -shuffle=on"
	@export GORACE=atexit_sleep_ms=0; logs=$$(mktemp -d) && trap 'rm -r "$$logs"' EXIT && root=$$($(GO) list .) && all=$$($(GO) list $(PKG)) && \
	run() { log="$$logs/$$1"; shift; $(GO) test -vet=off -timeout=30m "$$@" >"$$log" 2>&1; code=$$?; cat "$$log"; return $$code; }; \
	tools=$$(echo "$$all" | grep "^$$root/tools/"); others=$$(echo "$$all" | grep -vx -e "$$root" -e "$$root/tools/.*"); \
	first=; status=0; \
	if echo "$$all" | grep -qx "$$root"; then (export GOMAXPROCS=1; run root -race -shuffle=on "$$root") & first=$$!; fi; \
	if [ -n "$$others" ]; then run others -race -shuffle=on $$others || { log="$$logs/others"; \
		grep -qE '^(SIGSEGV|ThreadSanitizer: CHECK failed)' "$$log" && ! grep -qE 'DATA RACE|^ *--- FAIL' "$$log" && \
		echo "== the detector itself has crashed: once more on one thread" && \
		(export GOMAXPROCS=1; run again -race -shuffle=on $$(awk '$$1 == "FAIL" && NF == 3 { print $$2 }' "$$log")); } || status=1; fi; \
	[ -z "$$tools" ] || $(GO) test $$tools || status=1; \
	[ -z "$$first" ] || wait $$first || status=1; exit $$status

tidy: ## the house rules alone (they are part of every test run)
	$(GO) test -count=1 ./tools/tidy

search: ## every interleaving of the larger worlds of delivery, for some minutes
	$(GO) test -count=1 -timeout=0 -v -run Interleaving ./internal/processor/delivery -search.long

sim: ## the whole system in virtual time; SEEDS=10000 for a long run, FROM=501 to go on after the first 500
	$(GO) test -count=1 -timeout=0 -run PromisesHold ./internal/proof/sim -seeds $(SEEDS) -from $(FROM)

mutants: ## planted defects, which the tests must find; TABLE=root for one table, PART=3/10 for every tenth from the fourth
	$(GO) run ./tools/mutants -table '$(TABLE)' -part $(PART)

mutants-build: ## whether each planted defect fits the code and builds; no test runs
	$(GO) run ./tools/mutants -build

crash: ## the store, and effects that happen once, under kill -9; CRASHES=200 for a long run
	$(GO) test -count=1 -timeout=0 -run Kill -v ./docstore -crash.rounds $(CRASHES)
	$(GO) test -count=1 -timeout=0 -run ProcessIsKilled -v . -lives.rounds $(CRASHES)

handlers: ## hosts, servers and handlers of all kinds under kill -9; ROUNDS=200 for a long run, SEED=7 for others
	$(GO) test -count=1 -timeout=0 -run HandlersKeepTheirPromises/kills -v ./cmd/changefeed -handlers.rounds $(ROUNDS) -handlers.seed $(SEED)

exactly-once-sqlite: ## effects that happen once in SQLite, under kill -9 (a module of its own, which needs the network once)
	cd examples/exactlyonce && $(GO) vet ./... && $(GO) test -count=1 ./...

recipes: ## the recipes of examples, with their kills (a module of its own, which needs the network once)
	cd examples/recipes && $(GO) vet ./... && $(GO) test -count=1 -p 8 ./...

scaler: ## a unit under a simulated autoscaler, in virtual time; SEEDS=20 for the figures of docs/scaling.md, FROM=21 for others
	$(GO) test -count=1 -timeout=0 -v -run Promises ./internal/proof/scaler -seeds $(SEEDS) -from $(FROM)

soak: ## a server, two hosts, a relay and viewers in processes of their own; FOR=1h in all, CHAOS=30m of it at first, SEED=7
	$(GO) test -count=1 -timeout=0 -v -run Soak ./internal/proof/soak -soak.for $(or $(FOR),1h) -soak.chaos $(or $(CHAOS),30m) \
		-soak.seed $(SEED) $(if $(KEEP),-soak.keep '$(abspath $(KEEP))')

damage: ## files of the store damaged, one bit or one file at a time; DAMAGES=5000 for a long run
	$(GO) test -count=1 -timeout=0 -run Damage -v ./docstore -damage.n $(DAMAGES)

faults: ## the store, and stores of older builds, on a disk of which one call fails, or killed at one write, for each of some histories
	$(GO) test -count=1 -timeout=1h -run 'FailsOnce|FailedOnce|GoesOnAfterAKill' -v ./docstore -fault.calls 0

resume: ## random queries, paged in every way in which SDKs go on; QUERIES=20000 for a long run
	$(GO) test -count=1 -timeout=0 -run ResumedQueries ./cosmosrest -resume.queries $(QUERIES)

model: ## the store beside a model of it (-model.runs) and conditional writes over HTTP (-linear.seeds); HISTORIES=5000 for a long run
	$(GO) test -count=1 -timeout=0 -run 'EqualsModel|EqualModel' ./docstore -model.runs $(HISTORIES)
	$(GO) test -count=1 -timeout=0 -run Linearizable ./cosmosrest -linear.seeds $(HISTORIES)

differ: ## random queries beside an evaluator that is obvious; RUNS=100000 for a long run, SEED=7 for others
	$(GO) test -count=1 -timeout=0 -run 'ObviousEvaluator|Random' ./cosmosrest/internal/sql -differ.runs $(RUNS) -differ.seed $(SEED)

fuzz: ## each fuzz target for FUZZTIME (10s)
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do \
		for target in $$(grep -hoE '^func Fuzz\w+' $$dir/*_test.go | cut -c6-); do \
			echo "== $$dir $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$dir || exit 1; \
		done; \
	done

long: ## all that proves longer, at length, goes on where it stopped (.long); FOR=20m, JOB="sim fuzz" for a part
	$(GO) run ./tools/long -dir $(LONG) $(if $(FOR),-for $(FOR)) $(JOB)

stress: ## every test 20 times beside busy loops, long ones 5 times; PKG=./docstore for one package
	$(GO) run ./tools/stress $(PKG)

transcripts: ## write anew what the server answers, to be read in the diff
	$(GO) test -count=1 -run Transcripts ./cosmosrest -rewrite

bench: ## benchmarks; BENCH=Append PKG=./docstore for some
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(PKG)

cover: ## statement coverage of the whole by all tests, in coverage.out
	$(GO) test -coverprofile=coverage.out -coverpkg=./... ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

demo: ## the processor at work on this machine, nothing to set up
	$(GO) run ./cmd/changefeed demo

page: ## the page of the contacts example in a Chromium, with pictures in PICTURES; skipped where there is none
	@browser=$$(command -v chromium || command -v chromium-browser || command -v google-chrome) || \
		{ echo "skipped: there is no chromium here (apt-get install chromium)"; exit 0; }; \
	$(GO) test -count=1 -run Browser -v ./examples/contacts -browser "$$browser" -screenshots '$(PICTURES)'

alerts: ## the alarms of deploy: promtool checks them and runs the recorded incidents; then all incidents are staged anew
	@command -v promtool >/dev/null || { echo "this needs promtool: apt-get install prometheus, or take it from a release of" \
		"https://github.com/prometheus/prometheus/releases"; exit 1; }
	promtool check rules deploy/alerts/changefeed.rules.yaml
	promtool test rules deploy/alerts/*_test.yaml
	$(GO) test -count=1 ./internal/proof/alarms -incidents.all

docs: ## run the Examples and all commands of the documents, also those that fetch something; check what the documents name
	$(GO) test -run '^Example' ./...
	$(GO) test -count=1 -run '/docs' ./tools/tidy
	$(GO) test -count=1 ./tools/reference
	$(GO) test -count=1 -timeout=30m -v -run CommandsOfEachDocument ./cmd/changefeed -pages.network

reference: ## write the generated pages: docs/README.md and docs/reference, from the navigation, doc comments and the help of commands
	$(GO) run ./tools/reference
	$(GO) test -count=1 -run ReferenceOfCommands ./cmd/changefeed -update-reference

site: ## the documentation as static pages in DIST/site (.dist/site); skipped without node and npm
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "skipped: this needs node and npm"; exit 0; }; \
	cd docs/.site && { npm ci --no-audit --no-fund --loglevel=error || { echo "skipped: the generator cannot be had"; exit 0; }; } && \
	npm run --silent build -- --outDir "$(abspath $(DIST))/site"

man: ## write the manual pages of the command, in DIST (.dist)
	$(GO) run ./cmd/changefeed man "$(DIST)/man/man1"

notices: ## collect the licences of the modules that are linked into the binary, after a change of go.mod
	$(GO) run ./cmd/changefeed/internal/notices/collect cmd/changefeed/internal/notices/notices.txt

archive: ## the stripped binary with the licences, in DIST (.dist); GOOS and GOARCH for another system, TAGS=brokers for all brokers
	@name="changefeed-$$($(GO) env GOOS)-$$($(GO) env GOARCH)" && dir="$(DIST)/$$name" && mkdir -p "$$dir" && \
		CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -ldflags='-s -w' -o "$$dir/" ./cmd/changefeed && \
		cp LICENSE README.md "$$dir/" && cp cmd/changefeed/internal/notices/notices.txt "$$dir/NOTICES.txt" && \
		tar -C "$(DIST)" -czf "$$dir.tar.gz" "$$name" && rm -r "$$dir" && echo "== $$dir.tar.gz"

api: ## record what the public packages show to programs, in api; refuses incompatible changes that api/next-major.txt does not list
	$(GO) run ./tools/api

workflow: ## check the workflows, and run the steps of JOB (linux) of WORKFLOW (test) in a fresh clone of what is committed
	$(TOOL) actionlint .github/workflows/*.yml
	$(GO) run ./tools/workflow -workflow '$(WORKFLOW)' -job '$(JOB)'

WORKFLOW ?= test
JOB      ?= linux

# pinned by tools/goreleaser/go.mod and tools/release/go.mod, and built from their sources
release-tools: ## build GoReleaser and the program that lists the modules of a binary, in .dist/tools (minutes)
	$(GO) build -C tools/goreleaser -ldflags='-s -w' -o ../../.dist/tools/ github.com/goreleaser/goreleaser/v2
	$(GO) build -C tools/release -o ../../.dist/tools/ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

# The clone has a tag of its own, so the version in the binaries is checked too. Only what is committed is built.
release-dry: release-tools ## a whole release of VERSION (v0.1.0-dry.1) without publishing, in a fresh clone in .dist/dry; every file is opened
	@command -v python3 >/dev/null && command -v npm >/dev/null || echo "== wheels and npm packages are left out: they need python3 and npm"
	rm -rf .dist/dry && git clone -q --no-local . .dist/dry && git -C .dist/dry tag $(VERSION)
	$(GO) run -C tools/release . check ../../.dist/dry $(VERSION)
	$(GO) run -C tools/release . notes ../../.dist/dry $(VERSION) >.dist/notes.md
	cd .dist/dry && $(MAKE) --no-print-directory wheels DIST=.dist/wheels PLATFORM='$(DRY_PLATFORMS)'
	cd .dist/dry && $(MAKE) --no-print-directory npm DIST="$$PWD/.dist/npm" NPM_PLATFORMS='$(DRY_PLATFORMS)'
	sed 's/^    goos: .*/    goos: [$(DRY_GOOS)]/; s/^    goarch: .*/    goarch: [$(DRY_GOARCH)]/' .goreleaser.yaml >.dist/goreleaser.yaml
	cd .dist/dry && PATH="$(CURDIR)/.dist/tools:$$PATH" GITHUB_REPOSITORY=millrace/changefeed GORELEASER_CURRENT_TAG=$(VERSION) \
		goreleaser release -f ../goreleaser.yaml --clean --skip=publish,announce,ko --release-notes ../notes.md
	$(GO) run -C tools/release . verify ../../.dist/dry/.dist/release $(DRY_VERIFY)

VERSION ?= v0.1.0-dry.1
# for less: DRY_GOOS=linux DRY_GOARCH=amd64 DRY_VERIFY=linux/amd64
DRY_PLATFORMS ?= linux/amd64
DRY_GOOS      ?= linux, darwin, windows
DRY_GOARCH    ?= amd64, arm64
DRY_VERIFY    ?=

size: ## the size of the stripped binary, at most 45 MB, and the time that it takes to start, at most 15 ms
	$(GO) run ./tools/size

pictures: ## draw docs/pictures: what commands show in a terminal (needs tmux)
	$(GO) run ./tools/pictures

cold: ## processor time, user and system, of a build with an empty cache (the second line); TAGS=pebblegozstd to see what a tag saves
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
		GOCACHE="$$dir/cache" $(GO) build -tags '$(TAGS)' -o "$$dir/changefeed" ./cmd/changefeed && times && \
		echo "== $$($(GO) list -tags '$(TAGS)' -deps ./cmd/changefeed | wc -l) packages"

conformance-go: ## the Go SDK's own emulator suite, unmodified, against this server
	cd conformance/go && $(GO) run .

browser: site ## the dashboard in Chromium (skipped without a browser; with npm also the rules of accessibility)
	cd conformance/browser && { command -v npm >/dev/null && npm ci --no-audit --no-fund --loglevel=error || echo "skipped: axe-core cannot be had"; } && \
	$(GO) test -count=1 -timeout=10m ./...

deploy-check: ## the manifests by the types of Kubernetes and KEDA, and the steps of the image (a module of its own, which needs the network once)
	@cd conformance/deploy && { $(GO) list -deps -test ./... >/dev/null || { echo "skipped: the modules cannot be had"; exit 0; }; } && $(GO) vet ./... && $(GO) test -count=1 ./...

conformance-cloudevents: ## the CNCF's SDK for CloudEvents against the webhooks of the outbox, both ways
	cd conformance/cloudevents && $(GO) test -count=1 ./...

# OWN=1 runs our own tests alone; ONLY=NAME runs a part of the SDK's tests; UPDATE=1 writes the list of those that fail anew
JUDGE = $(GO) run ./tools/suites -results "$$results" $(if $(ONLY),-part) $(if $(UPDATE),-update)

conformance-js: ## own tests of the JavaScript SDK, and the SDK's own, against this server (skipped without node and npm)
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "skipped: this needs node and npm"; exit 0; }; \
	for dir in js js/public; do \
		(cd conformance/$$dir && npm ci --no-audit --no-fund --loglevel=error) || { echo "skipped: the SDK cannot be had"; exit 0; }; \
	done; \
	$(if $(ONLY)$(UPDATE),,(cd conformance/js && node run.mjs) &&) $(if $(OWN),exit 0;) \
	results=$$(mktemp) && trap 'rm -f "$$results"' EXIT && \
	(cd conformance/js/public && node run.mjs "$$results" '$(ONLY)') && $(JUDGE) -list conformance/js/known.txt

conformance-servicebus: ## Microsoft's client for JavaScript against the peer that stands in for Service Bus (skipped without node and npm)
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "skipped: this needs node and npm"; exit 0; }; \
	(cd conformance/servicebus && npm ci --no-audit --no-fund --loglevel=error) || { echo "skipped: the client cannot be had"; exit 0; }; \
	$(GO) test -count=1 -v -run JavaScript ./outbox/servicebuspub/internal/peer -javascript "$(CURDIR)/conformance/servicebus"

conformance-standardwebhooks: ## the libraries for Standard Webhooks from npm and PyPI against the signatures of the outbox (skipped without node, npm and python3)
	@command -v node >/dev/null && command -v npm >/dev/null && command -v python3 >/dev/null || { echo "skipped: this needs node, npm and python3"; exit 0; }; \
	(cd conformance/standardwebhooks && npm ci --no-audit --no-fund --loglevel=error && python3 -m venv .venv && .venv/bin/pip install --quiet -r requirements.txt) || { echo "skipped: the libraries cannot be had"; exit 0; }; \
	$(GO) test -count=1 -v -run StandardWebhooks ./outbox/webhookpub -standardwebhooks "$(CURDIR)/conformance/standardwebhooks"

rabbitmq: ## publishing to Debian's rabbitmq-server, started on the loopback (skipped where it is not installed)
	@test -x /usr/lib/rabbitmq/bin/rabbitmq-server || { echo "skipped: this needs rabbitmq-server"; exit 0; }; \
	$(GO) test -count=1 -v -run TestRabbitMQ ./outbox/rabbitpub -rabbitmq /usr/lib/rabbitmq/bin

kafka: ## publishing to Apache Kafka, started on the loopback (skipped without java and mvn; the broker is fetched for the run)
	@for tool in java mvn; do command -v $$tool >/dev/null || { echo "skipped: this needs $$tool"; exit 0; }; done; \
	dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && \
	{ mvn -q -B -Dstyle.color=never -f conformance/kafka/pom.xml dependency:build-classpath -Dmdep.outputFile="$$dir/classpath" || \
		{ echo "skipped: Kafka cannot be had"; exit 0; }; } && \
	$(GO) test -count=1 -v -run TestKafka ./outbox/kafkapub -kafka "$$(cat "$$dir/classpath")"

conformance-python: ## own tests of the Python SDK, and the SDK's own, against this server (skipped without python3; minutes)
	@command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "skipped: this needs python3 with ensurepip and venv"; exit 0; }; \
	$(if $(ONLY)$(UPDATE),,python3 conformance/python/run.py &&) results=$$(mktemp) && trap 'rm -f "$$results"' EXIT && \
	{ python3 conformance/python/public.py "$$results" '$(ONLY)' || { code=$$?; [ $$code = 3 ] && exit 0; exit $$code; }; } && \
	$(JUDGE) -list conformance/python/known.txt

conformance-vectorstores: ## the vector stores of langchain and semantic-kernel against this server (skipped without python3; they are installed for the run)
	@command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "skipped: this needs python3 with ensurepip and venv"; exit 0; }; \
	python3 conformance/vectorstores/run.py

wheels: ## wheels of the Python client with the binary, for five platforms, in DIST (.dist); PLATFORM=linux/amd64 for one
	@command -v python3 >/dev/null || { echo "skipped: this needs python3"; exit 0; }; \
	GO='$(GO)' python3 clients/python/tools/wheels.py '$(DIST)' $(PLATFORM)

clients-python: ## the Python client: lint, types, tests, wheel (skipped without python3; tools are installed for the run)
	@command -v python3 >/dev/null && python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "skipped: this needs python3, 3.10 or later, with ensurepip and venv"; exit 0; }; \
	GO='$(GO)' python3 clients/python/tools/check.py

conformance-java: ## the Java SDK and its processor against this server (skipped without java, javac and mvn)
	@for tool in java javac mvn; do command -v $$tool >/dev/null || { echo "skipped: this needs $$tool"; exit 0; }; done; \
	dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && \
	{ mvn -q -B -Dstyle.color=never -f conformance/java/pom.xml dependency:build-classpath -Dmdep.outputFile="$$dir/classpath" || \
		{ echo "skipped: the SDK cannot be had"; exit 0; }; } && \
	javac -d "$$dir/classes" -cp "$$(cat "$$dir/classpath")" conformance/java/*.java conformance/javaserver/*.java && \
	$(GO) build -o "$$dir/changefeed" ./cmd/changefeed && \
	java -cp "$$dir/classes:$$(cat "$$dir/classpath")" Run "$$dir/changefeed" "$$dir"

conformance-rust: ## the Rust SDK, unconfigured, against this server (skipped without cargo; opt-in, it compiles 200 crates)
	@command -v cargo >/dev/null || { echo "skipped: this needs cargo"; exit 0; }; \
	cargo fetch --quiet --locked --manifest-path conformance/rust/Cargo.toml || { echo "skipped: the SDK cannot be had"; exit 0; }; \
	dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && $(GO) build -o "$$dir/changefeed" ./cmd/changefeed && \
	cargo build --quiet --locked --manifest-path conformance/rust/Cargo.toml && \
	cargo run --quiet --locked --manifest-path conformance/rust/Cargo.toml -- "$$dir/changefeed" "$$dir"

conformance-spring: ## Spring Data against this server (skipped without java, javac and mvn; no registry has its own tests)
	@for tool in java javac mvn; do command -v $$tool >/dev/null || { echo "skipped: this needs $$tool"; exit 0; }; done; \
	dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && \
	{ mvn -q -B -Dstyle.color=never -f conformance/spring/pom.xml dependency:build-classpath -Dmdep.outputFile="$$dir/classpath" || \
		{ echo "skipped: the library cannot be had"; exit 0; }; } && \
	javac -parameters -d "$$dir/classes" -cp "$$(cat "$$dir/classpath")" conformance/spring/*.java conformance/javaserver/*.java && \
	$(GO) build -o "$$dir/changefeed" ./cmd/changefeed && \
	java -cp "$$dir/classes:$$(cat "$$dir/classpath")" conformance.Run "$$dir/changefeed" "$$dir"

NPM_PLATFORMS ?= linux/amd64 linux/arm64 darwin/arm64 darwin/amd64 windows/amd64
NPM_CI := npm ci --no-audit --no-fund --loglevel=error

clients: clients-node clients-python ## both clients: build, install, types, lint, tests, packages

clients-node: ## build, type check, lint and test the client for Node (skipped without node and npm)
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "skipped: this needs node and npm"; exit 0; }; \
	(cd clients/node && $(NPM_CI)) || { echo "skipped: the compiler and the SDK cannot be had"; exit 0; }; \
	dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && $(GO) build -o "$$dir/changefeed" ./cmd/changefeed && \
	cd clients/node && npm run --silent build && npm run --silent lint && CHANGEFEED_BINARY="$$dir/changefeed" npm run --silent test

bench-clients: ## the clients for Node and Python beside own loops of the SDKs, and their latency (needs node, npm and python3)
	@for tool in node npm python3; do command -v $$tool >/dev/null || { echo "skipped: this needs $$tool"; exit 0; }; done; \
	(cd clients/node && $(NPM_CI) && npm run --silent build) || { echo "skipped: the SDK cannot be had"; exit 0; }; \
	dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && $(GO) build -o "$$dir/changefeed" ./cmd/changefeed && \
	export CHANGEFEED_BINARY="$$dir/changefeed" && uptime && \
	echo "== Node" && node clients/node/test/bench.mjs $(BENCH_CLIENTS) && \
	python3 clients/python/tools/check.py bench $(BENCH_CLIENTS) && \
	for program in "node clients/node/test/steered.mjs" "python3 clients/python/tests/steered.py"; do \
		echo "== $$program" && PYTHONPATH=clients/python/src \
			"$$CHANGEFEED_BINARY" bench trigger_latency --program "$$program" -o json || exit 1; \
	done; uptime

npm: ## the npm packages of the client for Node, with a binary for each of NPM_PLATFORMS, in DIST (.dist)
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "skipped: this needs node and npm"; exit 0; }; \
	(cd clients/node && $(NPM_CI)) || { echo "skipped: the compiler cannot be had"; exit 0; }; \
	(cd clients/node && npm run --silent build) && dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && pairs= && \
	for platform in $(NPM_PLATFORMS); do \
		pairs="$$pairs $$platform=$$dir/$$platform" && \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' \
			-o "$$dir/$$platform" ./cmd/changefeed || exit 1; \
	done && node clients/node/pack.mjs "$(DIST)" $$pairs

vuln: ## govulncheck (needs the network)
	$(TOOL) govulncheck $(PKG)
