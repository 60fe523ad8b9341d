package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/changefeed/cmd/changefeed/internal/fleet"
	"github.com/millrace/changefeed/cmd/changefeed/internal/hostfile"
	"github.com/millrace/changefeed/cmd/changefeed/internal/manual"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/pause"
)

// The units of a file of changefeed host: the commands run and relay prepare them from the values of the file, as they
// do from flags.

// The handlers of a file.
const (
	programHandler = "program"
	webhookHandler = "webhook"
	appHandler     = "functions"
	relayHandler   = "relay"
)

// secretKey is the key of the secret that signs the requests to a webhook.
const secretKey = "webhook-secret"

// newUnitFlags returns the flags for a unit with a handler.
func newUnitFlags(handler string) unitFlags {
	switch handler {
	case relayHandler:
		return &relayOptions{}
	case appHandler:
		return &functionsOptions{}
	}
	return &runOptions{}
}

// Flags that a file does not have: of the process, or of the handler itself.
var noKeys = []string{
	"help", untilStdinName, outputFlag, "stdio", "token-from-program", "to", "quiet", verboseFlag, "check",
	uiFlag, uiWriteFlag,
}

// Flags of run that fit one of its handlers.
var (
	onlyPrograms = []string{"long-lived", "manual", "jobs", "grace"}
	onlyWebhooks = []string{"post"}
)

// hostKinds describes the handlers and their options from the flags of their commands.
func hostKinds() []hostfile.Kind {
	secret := hostfile.Option{Name: secretKey, About: "signs the requests", Type: "string", IsSecret: true}
	return []hostfile.Kind{
		{
			Key: programHandler, About: "program and arguments, started for each batch or, with long-lived, once", IsList: true,
			Options: optionsOf(programHandler, onlyWebhooks),
		},
		{
			Key: webhookHandler, About: "URL of http or https that receives each batch",
			Options: append(optionsOf(webhookHandler, onlyPrograms), secret),
		},
		{
			Key: appHandler, About: "directory of an Azure Functions app with a custom handler",
			Options: optionsOf(appHandler, nil),
		},
		{
			Key: relayHandler, Flag: "to", About: "broker for the events of an outbox: changefeed help brokers",
			Options: append(optionsOf(relayHandler, nil), secret),
		},
	}
}

// optionsOf returns the options of a handler: most flags of the handler's command.
func optionsOf(handler string, without []string) (options []hostfile.Option) {
	cmd := newUnitFlags(handler).command()
	under("", cmd)
	describeFlags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(noKeys, f.Name) || slices.Contains(without, f.Name) {
			return
		}
		_, about := manual.Placeholder(f)
		option := hostfile.Option{
			Name: f.Name, About: about, IsSecret: f.Name == "account-key" || f.Name == "connection-string",
		}
		switch typ := f.Value.Type(); typ {
		case "bool":
			option.Type = "boolean"
		case "int":
			option.Type = "integer"
		case "stringArray":
			option.Type, option.IsList = "string", true
		default:
			option.Type = "string"
		}
		if words, ok := f.Value.(interface{ Words() []string }); ok && f.Name != "from" {
			option.Words = words.Words()
		}
		options = append(options, option)
	})
	return options
}

// hosting reads the units of a file.
type hosting struct {
	cmd    *cobra.Command // host or validate
	path   string
	form   report.Form // of logs and messages
	stores *place.Opener
	ui     *ui.UI // shows the units; nil if there is no dashboard

	mu      sync.Mutex
	running int           // units that run
	leaving int           // of them, those that have killed their programs at the second interrupt
	allLeft chan struct{} // closed when all of them have
}

// hostedUnit is a unit of the file whose values are checked.
type hostedUnit struct {
	hostfile.Unit
	name     string
	prepared *prepared
}

// describeHandler names the handler for people, without arguments and passwords.
func (u *hostedUnit) describeHandler() string {
	return u.Kind + " " + terminal.WithoutSecrets(u.Command[0])
}

// identity is the same for units that run in the same way.
func (u *hostedUnit) identity() string {
	values := slices.Clone(u.Values)
	slices.SortStableFunc(values, func(a, b hostfile.Value) int { return strings.Compare(a.Name, b.Name) })
	var text strings.Builder
	fmt.Fprintf(&text, "%s %q", u.Kind, u.Command)
	for _, v := range values {
		fmt.Fprintf(&text, " %s=%q", v.Name, v.Text)
	}
	text.WriteString(u.prepared.files)
	return text.String()
}

// newHosting returns the reader for the units of a file.
func newHosting(cmd *cobra.Command, path string, form report.Form, stores *place.Opener) *hosting {
	return &hosting{cmd: cmd, path: path, form: form, stores: stores, allLeft: make(chan struct{})}
}

// readUnits reads the file and checks its values. The error joins all mistakes.
func (h *hosting) readUnits() (units []*hostedUnit, err error) {
	inFile, err := hostfile.Read(h.path, hostKinds())
	if err != nil {
		return nil, err
	}
	var mistakes []error
	places := map[string]int{}
	for _, u := range inFile {
		p, err := h.prepareUnit(u)
		if err != nil {
			mistakes = append(mistakes, h.listMistakes(u, err)...)
			continue
		}
		for _, notice := range p.told {
			p.tell("%s:%d: %s", h.path, u.Line, notice)
		}
		for _, at := range p.places {
			if line := places[at]; line > 0 {
				text := "--name is %s: the unit of line %d has the same name and containers: want each unit once"
				if p.one == nil {
					text = "%s has a function with the leases of the unit of line %d: want each function once"
				}
				twice := fmt.Errorf(text, p.name, line)
				mistakes = append(mistakes, h.describeMistake(u, usage.Error{Err: twice}))
			}
			places[at] = u.Line
		}
		units = append(units, &hostedUnit{u, p.name, p})
	}
	return units, errors.Join(mistakes...)
}

// prepareUnit makes the instance of a unit.
func (h *hosting) prepareUnit(u hostfile.Unit) (*prepared, error) {
	flags := newUnitFlags(u.Kind)
	cmd, args, err := h.newCommand(flags, u)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkFlags(cmd), prepareReport(cmd), cmd.PreRunE(cmd, nil)); err != nil {
		return nil, err
	}
	p, err := flags.prepare(cmd, args)
	if err != nil {
		return nil, err
	}
	p.settle(surroundings{h.stores, []os.Signal{os.Interrupt, syscall.SIGTERM}, h.exit}) // SIGHUP reads the file again
	p.show(h.ui)
	return p, nil
}

// newCommand returns the command of a unit, with the values of the unit as flags and arguments.
func (h *hosting) newCommand(flags unitFlags, u hostfile.Unit) (cmd *cobra.Command, args []string, err error) {
	cmd = flags.command()
	cmd.Use = h.cmd.Use // the messages name the host's command
	under(h.cmd.Root().Name(), cmd)
	cmd.SetContext(h.cmd.Context())
	cmd.SetOut(h.cmd.OutOrStdout())
	cmd.SetErr(h.cmd.ErrOrStderr())
	values := append([]hostfile.Value{{Name: outputFlag, Text: string(h.form)}}, h.inheritedValues(u)...)
	if args = u.Command; u.Kind == relayHandler {
		values = append(values, hostfile.Value{Name: "to", Text: u.Command[0]})
		args = nil
	}
	if url := isURL(u.Command); u.Kind == webhookHandler && !url || u.Kind == programHandler && url {
		want := "a URL of http or https"
		if url {
			want = "a program; a URL is a webhook"
		}
		given := terminal.WithoutSecrets(u.Command[0])
		return nil, nil, usage.Error{Err: fmt.Errorf("%s is %s: want %s", u.Kind, given, want)}
	}
	var wrong wrongValues
	for _, v := range append(values, u.Values...) {
		if v.Name == secretKey {
			flags.unit().secret = v.Text
			continue
		}
		if err := cmd.Flags().Set(v.Name, v.Text); err != nil {
			wrong = append(wrong, flagError(cmd, err))
		}
	}
	if len(wrong) > 0 {
		return nil, nil, wrong
	}
	return cmd, args, nil
}

// wrongValues are the mistakes in the values of a unit.
type wrongValues []error

// Unwrap returns them.
func (w wrongValues) Unwrap() []error { return w }

// Error joins their texts.
func (w wrongValues) Error() string { return errors.Join(w...).Error() }

// under gives a command a parent with a name, and with the flags of every command.
func under(name string, cmd *cobra.Command) {
	parent := &cobra.Command{Use: name}
	globalFlags(parent)
	parent.AddCommand(cmd)
	cmd.InheritedFlags() // merges the flags of the parent
}

// inheritedValues returns the flags of every command as the host has them, which a unit may replace.
func (h *hosting) inheritedValues(u hostfile.Unit) (values []hostfile.Value) {
	n, _ := h.cmd.Flags().GetCount(verboseFlag) // fails only for an unknown flag
	for range n {
		values = append(values, hostfile.Value{Name: verboseFlag, Text: "+1"})
	}
	if quiet, _ := h.cmd.Flags().GetBool("quiet"); quiet {
		values = append(values, hostfile.Value{Name: "quiet", Text: "true"})
	}
	if f := h.cmd.Flags().Lookup(contextFlag); f != nil && f.Changed && u.Value(contextFlag) == "" {
		values = append(values, hostfile.Value{Name: contextFlag, Text: f.Value.String()})
	}
	return values
}

// flagInText is a flag in the text of an error. In a file the flag is a key without dashes.
var flagInText = regexp.MustCompile(`--([a-z]+(-[a-z]+)*)\b`)

// listMistakes returns the errors of a unit, each with the place in the file.
func (h *hosting) listMistakes(u hostfile.Unit, err error) (all []error) {
	wrong, ok := errors.AsType[wrongValues](err)
	if !ok {
		return []error{h.describeMistake(u, err)}
	}
	for _, one := range wrong {
		all = append(all, h.describeMistake(u, one))
	}
	return all
}

// describeMistake returns an error of a unit with the place in the file: the line of the option that the error names
// first.
func (h *hosting) describeMistake(u hostfile.Unit, err error) error {
	line := u.Line
	text := terminal.WithoutSecrets(place.Plain(err))
	for _, found := range flagInText.FindAllStringSubmatch(text, -1) {
		if at := u.LineOf(found[1]); at != u.Line {
			line = at
			break
		}
	}
	text, recommended, isThere := strings.Cut(text, "changefeed ") // the flags of a command stay
	text = flagInText.ReplaceAllStringFunc(text, func(flag string) string {
		if flag == "--to" {
			return relayHandler
		}
		return strings.TrimPrefix(flag, "--")
	})
	text = strings.ReplaceAll(text, "COMMAND is", programHandler+" is")
	text = strings.ReplaceAll(text, "DIR is", appHandler+" is")
	if u.Kind == programHandler {
		words := strings.Fields(u.Command[0])
		text = strings.Replace(text, "as in "+oneByOne(words), "as in ["+strings.Join(words, ", ")+"]", 1)
	}
	if isThere {
		text += "changefeed " + recommended
	}
	if name := u.Value("name"); name != "" {
		text = "unit " + name + ": " + text
	}
	return &hostfile.Mistake{File: h.path, Line: line, Text: text, Err: err}
}

// checkUnits opens the containers of all units and tests the rights. The error joins those of all units.
func (h *hosting) checkUnits(ctx context.Context, units []*hostedUnit) error {
	var failures []error
	for _, u := range units {
		if err := h.checkUnit(ctx, u); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// checkUnit opens the containers of a unit and tests the rights.
func (h *hosting) checkUnit(ctx context.Context, u *hostedUnit) error {
	if err := u.prepared.check(ctx); err != nil {
		return h.describeMistake(u.Unit, err)
	}
	return nil
}

// fleetMembers returns the units for the fleet. Each run of a unit prepares the unit anew, because an instance runs
// once. An app makes its instances at the start of the run, from the files that were read: these may be changing.
func (h *hosting) fleetMembers(units []*hostedUnit) (members []fleet.Member) {
	for _, u := range units {
		members = append(members, fleet.Member{
			Name: u.name, Identity: u.identity(), Once: u.prepared.once,
			Run: func(ctx context.Context) error {
				p := u.prepared
				if p.one != nil {
					var err error
					if p, err = h.prepareUnit(u.Unit); err != nil {
						return err
					}
				}
				h.count(1)
				defer h.count(-1)
				if err := p.run(ctx); err != nil {
					return h.describeMistake(u.Unit, err)
				}
				return nil
			},
		})
	}
	return members
}

// count counts the units that run.
func (h *hosting) count(by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running += by
}

// exitLimit is how long the process waits at a second interrupt until all units have killed their programs. A unit that
// is being opened has none, and does not say so.
const exitLimit = time.Second

// exit ends the process at once, at the second interrupt, when the programs of all units have been killed.
func (h *hosting) exit() {
	h.mu.Lock()
	if h.leaving++; h.leaving == h.running {
		close(h.allLeft)
	}
	h.mu.Unlock()
	pause.UntilClosed(h.allLeft, exitLimit)
	exitAtOnce()
}
