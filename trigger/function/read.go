package function

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/internal/spelling"
)

// What an app says is either obeyed or refused. The host of Azure ignores much that it does not know, and a function
// then reads other leases, or another account, than its author believes. So an unknown name is an error here, unless it
// concerns something else than a Cosmos DB trigger and the program.

// ReadOptions are the optional settings of [ReadApp].
type ReadOptions struct {
	// Environ has the settings of the app, each as NAME=VALUE, for example those of [os.Environ]. Values of
	// local.settings.json are added, except for names that Environ has.
	Environ []string

	// Only names the functions to read; the default is all. What other functions say is not looked at.
	Only []string
}

// reader reads an app, and collects what is wrong with it.
type reader struct {
	dir      string
	settings settings
	only     []string
	app      *App
	retry    *Retry // of host.json
	listed   []string
	errs     []error
}

// ErrNoFunction is wrapped by the error of a name in [ReadOptions].Only that no function has.
var ErrNoFunction = errors.New("there is no function")

// ReadApp reads the app in a directory: host.json, the function.json of each function, and local.settings.json if there
// is one. If something is wrong, the error has a line for each mistake of all files. No error has a key of an account.
func ReadApp(dir string, o ReadOptions) (*App, error) {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("read app: %w", err)
	}
	if _, err := os.Stat(filepath.Join(whole, hostFile)); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no host.json (%w): want the directory of an Azure Functions app",
			dir, os.ErrNotExist)
	}
	r := &reader{dir: whole, settings: newSettings(o.Environ), only: o.Only, app: &App{Dir: whole}}
	r.readLocal()
	r.readHost()
	r.readFunctions()
	r.refuseShared()
	r.app.Environ = r.settings.environ
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return r.app, nil
}

// The members of host.json. Others concern the host of Azure, or extensions other than that for Cosmos DB.
var (
	hostKnown = []string{"customHandler", "httpWorker", "extensions", "functions", "functionTimeout", "retry"}

	hostOthers = []string{
		"$schema", "aggregator", "applicationInsights", "blobs", "concurrency", "configurationProfile", "console",
		"eventHub", "extensionBundle", "healthMonitor", "http", "id", "logging", "managedDependency", "queues",
		"sendCanceledInvocationsToWorker", "sendGrid", "serviceBus", "singleton", "telemetryMode", "tracing", "version",
		"watchDirectories", "watchFiles",
	}

	cosmosKnown = []string{"connectionMode", "userAgentSuffix"}

	cosmosEarlier = map[string]string{
		"protocol":     "want none: extension 4.x has only connectionMode",
		"leaseoptions": "want leaseContainerPrefix in the trigger of each function",
	}
)

const defaultTimeout = 30 * time.Minute

// readHost reads host.json.
func (r *reader) readHost() {
	host := r.readFile(hostFile, true)
	if host == nil {
		return
	}
	for _, m := range host.allMembers() {
		if !hasName(hostKnown, m.name) && !hasName(hostOthers, m.name) {
			if near := spelling.Nearest(m.name, hostKnown); len(near) > 0 {
				r.refuse("%s is not known: want %s", host.nameOf(m.name), strings.Join(near, " or "))
			} else {
				r.notice("%s is not known, and changes nothing here", host.nameOf(m.name))
			}
		}
	}
	r.app.Timeout = host.timeout("functionTimeout")
	r.retry = host.readRetry()
	r.listed = host.texts("functions")
	r.readExtension(host.section("extensions").section("cosmosDB"))
	r.readProgram(host)
}

// hasName reports whether a list has a name, in any case.
func hasName(names []string, name string) bool {
	return slices.ContainsFunc(names, func(known string) bool { return strings.EqualFold(known, name) })
}

// timeout returns the time limit of an invocation; 0 is none.
func (s *section) timeout(name string) time.Duration {
	value, ok := s.findMember(name)
	if !ok {
		return defaultTimeout
	}
	text, _ := plainText(value)
	if strings.TrimSpace(text) == "-1" {
		return 0
	}
	d, ok := parseSpan(text)
	if !ok || d <= 0 {
		s.refuseValue(name, value, wantSpan+` above zero, or "-1" for none`)
		return defaultTimeout
	}
	return d
}

// readExtension reads what host.json says about Cosmos DB.
func (r *reader) readExtension(s *section) {
	s.refuseUnknown(cosmosKnown, cosmosEarlier)
	r.app.UserAgentSuffix, _ = s.text("userAgentSuffix")
	mode, ok := s.text("connectionMode")
	switch {
	case !ok || strings.EqualFold(mode, "Gateway"):
	case strings.EqualFold(mode, "Direct"):
		r.notice("%s is Direct: requests go through the gateway of the account; the changes are the same",
			s.nameOf("connectionMode"))
	default:
		r.refuse("%s is %s: want Gateway or Direct", s.nameOf("connectionMode"), shown(mode))
	}
}

const defaultStart = 30 * time.Second

var (
	programKnown     = []string{"description", "enableForwardingHttpRequest", "initializationTimeout"}
	descriptionKnown = []string{
		"arguments", "defaultExecutablePath", "defaultWorkerPath", "workerArguments", "workingDirectory",
	}
)

// readProgram reads the description of the custom handler.
func (r *reader) readProgram(host *section) {
	s := host.section("customHandler")
	old := host.section("httpWorker")
	switch {
	case s == nil && old == nil:
		runtime, _ := r.settings.get("FUNCTIONS_WORKER_RUNTIME")
		r.refuse("%s has no customHandler: want one with description.defaultExecutablePath%s", hostFile,
			ofRuntime(runtime))
		return
	case s == nil:
		s = old
	case old != nil:
		r.notice("%s: httpWorker is the old name of customHandler, which is there too, and counts", hostFile)
	}
	s.refuseUnknown(programKnown, nil)
	p := &r.app.Program
	p.Forwards = s.boolean("enableForwardingHttpRequest")
	p.Start = defaultStart
	if d, ok := s.span("initializationTimeout"); ok {
		p.Start = d
		if d <= 0 {
			r.refuse("%s is %v: want more than zero", s.nameOf("initializationTimeout"), d)
		}
	}
	d := s.section("description")
	d.refuseUnknown(descriptionKnown, nil)
	p.Executable, _ = d.text("defaultExecutablePath")
	p.Arguments = d.texts("arguments")
	p.WorkerPath, _ = d.text("defaultWorkerPath")
	p.WorkerArguments = d.texts("workerArguments")
	p.WorkingDirectory, _ = d.text("workingDirectory")
	if p.Executable == "" {
		r.refuse("%s is empty: want the program of the custom handler", s.nameOf("description.defaultExecutablePath"))
	}
}

// ofRuntime says why an app of another runtime does not run here.
func ofRuntime(runtime string) string {
	if runtime == "" || strings.EqualFold(runtime, "custom") {
		return ""
	}
	return fmt.Sprintf("; FUNCTIONS_WORKER_RUNTIME is %s, and the workers of languages do not run here", shown(runtime))
}

// names matches the name of a function.
var names = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,127}$`)

const functionFile = "function.json"

// readFunctions reads the functions of the app.
func (r *reader) readFunctions() {
	files, err := filepath.Glob(filepath.Join(escape(r.dir), "*", functionFile))
	if err != nil {
		r.refuse("find functions: %w", err)
		return
	}
	found := map[string]string{}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if len(r.only) > 0 && !slices.Contains(r.only, name) {
			found[strings.ToLower(name)] = name
			continue
		}
		switch other := found[strings.ToLower(name)]; {
		case !names.MatchString(name):
			r.refuse("%s: the name of a function is a letter, followed by letters, digits, _ and -, at most 128", name)
		case other != "":
			r.refuse("%s: there is a function %s too: want names that differ in more than their case", name, other)
		default:
			r.readFunction(name)
		}
		found[strings.ToLower(name)] = name
	}
	for _, name := range r.only {
		if found[strings.ToLower(name)] != name {
			r.refuse("%w %s: want %s", ErrNoFunction, name,
				strings.TrimSuffix(alternatives(name, slices.Sorted(maps.Values(found))), ", or none"))
		}
	}
}

// escape writes a directory so that filepath.Glob takes it literally.
func escape(dir string) string {
	if filepath.Separator == '\\' {
		return dir // where nothing can be escaped
	}
	return regexp.MustCompile(`[\\*?[]`).ReplaceAllString(dir, `\$0`)
}

// refuseShared refuses functions that share the leases of one feed.
func (r *reader) refuseShared() {
	first := map[[7]string]string{}
	for _, f := range r.app.Functions {
		t := f.Trigger
		feed := [7]string{
			hostPort(t.Connection.Endpoint), t.Database, t.Container, hostPort(t.LeaseConnection.Endpoint),
			t.LeaseDatabase, t.LeaseContainer, t.LeasePrefix,
		}
		if other := first[feed]; other != "" {
			r.refuse("%s and %s read %s/%s with the same leases (%s/%s, leaseContainerPrefix %q), so each change would "+
				"reach only one of the two: want a leaseContainerPrefix of its own for one of them", other, f.Name,
				t.Database, t.Container, t.LeaseDatabase, t.LeaseContainer, t.LeasePrefix)
			continue
		}
		first[feed] = f.Name
	}
}
