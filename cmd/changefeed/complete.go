package main

import (
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/changefeed/cmd/changefeed/internal/letters"
	"github.com/millrace/changefeed/cmd/changefeed/internal/lookup"
	"github.com/millrace/changefeed/cmd/changefeed/internal/manual"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
)

// Completion in shells. The usage line of a command and the placeholders of the flags describe each word, so a command
// needs no special code: ADDRESS, DIR, FILE and ID are completed wherever they stand.

// A completer completes a word of a command line.
type completer struct {
	cmd  *cobra.Command
	args []string // before the word
	word string
}

// found is a list of names, and whether the shell adds files, adds a space, and so on.
type found struct {
	names []string
	then  cobra.ShellCompDirective
}

// noNames completes to nothing.
var noNames = found{then: cobra.ShellCompDirectiveNoFileComp}

// complete sets how a shell completes the flags and arguments of a command. By default cobra offers files everywhere,
// which is right for only a few of them.
func complete(cmd *cobra.Command) {
	by := func(complete func(c completer) found) cobra.CompletionFunc {
		return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			all := complete(completer{cmd, args, word})
			return all.names, all.then
		}
	}
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = by(completer.completeArgument)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		// fails only for an unknown flag
		_ = cmd.RegisterFlagCompletionFunc(f.Name, by(func(c completer) found { return c.completeValue(f) }))
	})
}

// completeArgument completes an argument by its name in the usage line.
func (c completer) completeArgument() found {
	names := argumentNames(c.cmd)
	// Flags can stand for the address: --db, and --container, whose default does not count.
	if c.flagValue("db") != "" || c.cmd.Flags().Changed("container") {
		names = slices.DeleteFunc(names, func(name string) bool {
			return strings.Contains(name, "ADDRESS") && !strings.Contains(name, "DIR")
		})
	}
	if len(names) == 0 {
		return noNames
	}
	at := len(c.args)
	if last := names[len(names)-1]; at >= len(names) && strings.Contains(last, "...") {
		at = len(names) - 1
	}
	if at >= len(names) {
		return noNames
	}
	return c.completeNamed(strings.Trim(names[at], "[]."))
}

// completeNamed completes a word by its name in the usage line or in a flag.
func (c completer) completeNamed(what string) found {
	switch what {
	case "FILE", "FILE|-", "FILE|URL", "COMMAND", "COMMAND|URL", "ARG":
		return found{then: cobra.ShellCompDirectiveDefault}
	case "DIR", "TO":
		return found{then: cobra.ShellCompDirectiveFilterDirs}
	case "DIR|ADDRESS", "ADDRESS|DIR":
		if strings.HasPrefix(c.word, "http") {
			return noNames
		}
		return found{then: cobra.ShellCompDirectiveFilterDirs}
	case "ADDRESS", "SOURCE", "TARGET":
		return c.completeAddress()
	case "ADDRESS|FILE":
		if all := c.completeAddress(); place.IsAddress(c.word) {
			return all
		}
		return found{then: cobra.ShellCompDirectiveDefault}
	case "ID":
		return c.completeIDs()
	}
	return noNames
}

// completeValue completes the value of a flag.
func (c completer) completeValue(f *pflag.Flag) found {
	if v, ok := f.Value.(interface{ Words() []string }); ok {
		return found{v.Words(), cobra.ShellCompDirectiveNoFileComp}
	}
	switch f.Name {
	case "container":
		return c.keepMatching("", c.containersOf(place.Store(c.flagValue("db"), "")))
	case "name":
		return c.keepMatching("", unitsOf(c.cmd))
	}
	placeholder, _ := manual.Placeholder(f)
	return c.completeNamed(placeholder)
}

// completeAddress completes the address of a container.
func (c completer) completeAddress() found {
	scheme, rest, ok := strings.Cut(c.word, ":")
	switch dir, _, inStore := strings.Cut(rest, "#"); {
	case !ok:
		forms := []string{"docstore:", "cosmos:", "http://" + web.DefaultListen + "/"}
		return c.keepUnfinished("", append(forms, c.containersInContext()...))
	case scheme == "docstore" && inStore:
		return c.keepMatching("docstore:"+dir+"#", c.containersOf(place.Store(dir, "")))
	case scheme == "docstore":
		return c.keepUnfinished("docstore:", lookup.Stores(rest))
	case scheme == "cosmos":
		return c.keepMatching("cosmos:", c.containersOf(place.Store("", "")))
	}
	u, err := url.Parse(c.word)
	if err != nil || u.Host == "" || scheme != "http" && scheme != "https" || !strings.HasPrefix(u.Path, "/") {
		return noNames
	}
	endpoint := u.Scheme + "://" + u.Host
	return c.keepMatching(endpoint+"/", c.containersOf(place.Store("", endpoint)))
}

// keepUnfinished is matching for names that are the beginning of a word, so no space follows.
func (c completer) keepUnfinished(before string, names []string) found {
	all := c.keepMatching(before, names)
	all.then |= cobra.ShellCompDirectiveNoSpace
	return all
}

// keepMatching returns the names that begin with the word, with a text before each.
func (c completer) keepMatching(before string, names []string) found {
	all := noNames
	for _, name := range names {
		// A shell writes the names to the terminal. A name with a line break would become two names.
		shown := terminal.Harmless(name) == name && !strings.Contains(name, "\n")
		if name = before + name; shown && strings.HasPrefix(name, c.word) {
			all.names = append(all.names, name)
		}
	}
	return all
}

// flagValue returns the value of a flag; empty if there is none.
func (c completer) flagValue(name string) string {
	if f := c.cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// containersInContext returns the names of the containers of the context in use, if there is one.
func (c completer) containersInContext() []string {
	found, ok, err := choiceOf(c.cmd).Find()
	if err != nil || !ok {
		return nil
	}
	return c.containersOf(place.Store(found.Directory, found.Endpoint))
}

// accountSettings returns the account that the command line names.
func (c completer) accountSettings() place.Settings {
	return place.Settings{
		Endpoint: c.flagValue("endpoint"), Key: c.flagValue("account-key"),
		Connection: c.flagValue("connection-string"), CA: c.flagValue("ca"), Choice: choiceOf(c.cmd), NoPrograms: true,
	}
}

// containersOf returns the names of the containers of a store or an account.
func (c completer) containersOf(at place.Address) []string {
	return lookup.Containers(c.cmd.Context(), c.accountSettings(), at)
}

// findContainer returns the address of the container that the command line names, as far as it is written.
func (c completer) findContainer() (place.Address, error) {
	flags := placeFlags{db: c.flagValue("db"), container: c.flagValue("container"), account: c.accountSettings()}
	args := c.args
	if flags.db != "" || c.cmd.Flags().Changed("container") {
		args = nil
	}
	return flags.containerAddress(c.cmd, args[:min(len(args), 1)])
}

// completeIDs completes the id of a partition or of a dead letter.
func (c completer) completeIDs() found {
	ids := []string{}
	switch c.cmd.Name() {
	case "split", "merge":
		if at, err := c.findContainer(); err == nil {
			ids = lookup.Partitions(c.cmd.Context(), c.accountSettings(), at)
		}
	case "get", "delete": // a container has too many documents
	default:
		if at, err := c.findLetters(); err == nil {
			ids = lookup.Letters(c.cmd.Context(), c.accountSettings(), at, c.flagValue("name"))
		}
	}
	given := func(id string) bool {
		id, _, _ = strings.Cut(id, "\t")
		return slices.Contains(c.args, id)
	}
	return c.keepMatching("", slices.DeleteFunc(ids, given))
}

// findLetters returns the place of the dead letters that the command line means.
func (c completer) findLetters() (at letters.Place, err error) {
	if c.flagValue("db") == "" && !c.cmd.Flags().Changed("container") && len(c.args) > 0 {
		return letters.Parse(c.args[0])
	}
	at.Address, err = c.findContainer()
	return at, err
}

// unitsOf returns the names of the deployment units that the command line can mean.
func unitsOf(cmd *cobra.Command) []string {
	c := completer{cmd: cmd, args: cmd.Flags().Args()}
	var names []string
	// If the command line does not say where the letters or leases are, there are no names.
	if at, err := c.findLeases(); err == nil {
		names = lookup.Units(c.cmd.Context(), c.accountSettings(), at)
	}
	if cmd.Parent().Name() == "dlq" {
		if at, err := c.findLetters(); err == nil {
			names = append(names, lookup.UnitsWithLetters(c.cmd.Context(), c.accountSettings(), at)...)
		}
	}
	slices.Sort(names)
	isLeases := cmd.Name() == "leases" || cmd.Parent().Name() == "leases" // others refuse the unit without a name
	names = slices.DeleteFunc(names, func(name string) bool { return name == unit.Unnamed && !isLeases })
	return slices.Compact(names)
}

// findLeases returns the address of the lease container that the command line means.
func (c completer) findLeases() (at place.Address, err error) {
	switch leases, source := c.flagValue("leases"), c.flagValue("source"); {
	case leases != "":
		return place.Parse("--leases", leases)
	case source != "" && c.cmd.Parent().Name() != "dlq":
		at, err = place.Parse("--source", source)
		return at.Beside(unit.DefaultContainer), err
	}
	at, err = c.findContainer()
	if c.cmd.Parent().Name() == "dlq" {
		at = at.Beside(unit.DefaultContainer) // beside the letters
	}
	return at, err
}
