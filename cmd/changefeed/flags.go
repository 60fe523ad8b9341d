package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
)

// Flags shared by several commands: some name a container, others select documents.
//
// A container is named by an address, the only argument. For a store in a directory, two flags are also possible,
// which are shorter and can be completed by a shell. Keys come from flags or from the environment, because a command
// line is visible to every user of the machine.

// placeFlags name the container of a command: by an address or, for a store in a directory, by two flags.
type placeFlags struct {
	db        string
	container string
	account   place.Settings
	retries   *place.Patience // nil for commands that fail at once
}

// register adds the flags to a command.
func (p *placeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.db, "db", "",
		"`directory` of a store")
	cmd.Flags().StringVar(&p.container, "container", p.container, "`name` of the container in --db")
	accountFlags(cmd, &p.account)
}

// errNoAddress means: a command line names no container.
var errNoAddress = errors.New("ADDRESS is missing: want " + place.AddressForms + "; or --db and --container")

// containerAddress returns the container's address, from args or from the flags. If both are given, address fails,
// because either could be a mistake.
func (p *placeFlags) containerAddress(cmd *cobra.Command, args []string) (a place.Address, err error) {
	ok := true
	switch {
	case len(args) == 1 && (p.db != "" || cmd.Flags().Changed("container")):
		err = fmt.Errorf("ADDRESS is %q, and there is --db or --container: want one of the two", args[0])
	case len(args) == 1:
		a, err = p.account.Parse("ADDRESS", args[0])
	case p.db != "" && p.container == "":
		err = fmt.Errorf("--container is missing: want %s", containersWanted(cmd, p.db))
	case p.container == "":
		err = errNoAddress
	case p.db == "":
		if a, ok, err = p.account.ParseInContext("--container", p.container); err == nil && !ok {
			err = errNoAddress
		}
	default:
		a.Dir = p.db
		if a.Database, a.Container, ok = place.ParseName(p.container); !ok {
			err = fmt.Errorf("--container is %q: want container or database/container", p.container)
		}
	}
	if err != nil {
		return a, usage.Error{Err: err}
	}
	a.Guessed = len(args) == 0 && !cmd.Flags().Changed("container")
	return a, nil
}

// containersWanted returns which containers a store has, for an error.
func containersWanted(cmd *cobra.Command, dir string) string {
	names := completer{cmd: cmd}.containersOf(place.Store(dir, ""))
	if len(names) == 0 {
		return "the name of a container"
	}
	return "one of " + strings.Join(names, ", ")
}

// withContainer opens the container named by the command line, runs f on this container, and closes the container.
func (p *placeFlags) withContainer(cmd *cobra.Command, args []string, f func(c *place.Container) error) error {
	at, err := p.containerAddress(cmd, args)
	if err != nil {
		return err
	}
	return p.withOpener(func(o *place.Opener) error {
		c, err := o.Open(cmd.Context(), at)
		if err != nil {
			return err
		}
		return f(c)
	})
}

// withOpener runs f with an opener, and then closes everything opened by the opener.
func (p *placeFlags) withOpener(f func(o *place.Opener) error) (err error) {
	if err := p.retries.Check(); err != nil {
		return err
	}
	o := place.NewOpener(p.account)
	o.Retries = p.retries
	defer func() { err = cmp.Or(err, o.Close()) }()
	err = f(o)
	if place.IsGuessMissing(err) {
		err = place.Advise(err, "the command run with --create-leases makes it; if it has another name, want --container NAME", true)
	}
	return err
}

// accountFlags adds the flags of an account. The same settings can come from the environment.
func accountFlags(cmd *cobra.Command, f *place.Settings) {
	flags := cmd.Flags()
	flags.StringVar(&f.Endpoint, "endpoint", "",
		"`URL` of the account (default $"+place.EndpointVariable+")")
	flags.StringVar(&f.Key, "account-key", "",
		"`key` of the account (default $"+place.KeyVariable+")")
	flags.StringVar(&f.Connection, "connection-string", "",
		"`text` with endpoint and key (default $"+place.ConnectionVariable+")")
	flags.StringVar(&f.CA, "ca", "", "`file` with the certificate that a server made itself")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return chooseContext(cmd, f) }
}

// The names of the flags of every command.
const (
	contextFlag = "context"
	verboseFlag = "verbose"
)

// globalFlags adds the flags of every command.
func globalFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.BoolP("quiet", "q", false, "write results, warnings and errors only, and no progress")
	flags.CountP(verboseFlag, "v", "log the account, the key's origin, leases; -vv batches")
	flags.String(contextFlag, "",
		"`name` of the context whose account or store is used (default $"+contexts.ContextVariable+")")
	_ = root.RegisterFlagCompletionFunc(contextFlag, completeContexts) // fails only for an unknown flag
}

// chooseContext sets the context of a command, and refuses the name of no context, even if the command then needs none.
func chooseContext(cmd *cobra.Command, f *place.Settings) error {
	f.Choice = choiceOf(cmd)
	if n, _ := cmd.Flags().GetCount(verboseFlag); n > 0 { // fails only for an unknown flag
		f.Say = noticesOf(cmd)
	}
	if !f.Choice.Explicit() {
		return nil
	}
	_, _, err := f.Choice.Find()
	if missing, ok := errors.AsType[usage.Missing](err); ok {
		return missing
	}
	return nil // the command reports a damaged file if it needs the context
}

// choiceOf returns the choice of --context and the environment.
func choiceOf(cmd *cobra.Command) contexts.Choice {
	name, _ := cmd.Flags().GetString(contextFlag) // fails only for an unknown flag
	return contexts.Choose(name, cmd.Flags().Changed(contextFlag))
}

// addPatience adds the flag --wait, for long-running commands, which should survive a restart of the server. Other
// commands fail at once.
func (p *placeFlags) addPatience(cmd *cobra.Command) {
	p.retries = &place.Patience{Say: func(format string, args ...any) { reportOf(cmd).Warn(format, args...) }}
	cmd.Flags().DurationVar(&p.retries.Limit, "wait", place.DefaultLimit,
		"how long to try again if the account goes away after the start; 0s is not at all")
}

// selection contains the flags to select documents by their key.
type selection struct {
	key arg.Key
	rng arg.Range
}

// register adds the flags to a command.
func (s *selection) register(cmd *cobra.Command) {
	cmd.Flags().Var(&s.key, "key", `only this partition key: text, or JSON such as [5] or ["a","b"]`)
	cmd.Flags().Var(&s.rng, "range", "only effective partition keys min-max in hex, such as 05C1-0BF3")
}

// blame names --key in the error of a key unfit for the container.
func (s *selection) blame(err error) error {
	if s.key.Value == "" || !errors.Is(err, feed.ErrBadRequest) {
		return err
	}
	return usage.Error{Err: fmt.Errorf("--key is %s: %w", s.key.String(), err)}
}

// metaFlag adds the flag for the form in which a change is written on a line.
func metaFlag(cmd *cobra.Command, form *changeline.Form) {
	cmd.Flags().BoolVar(&form.Meta, "meta", false, "add metadata to each change")
}
