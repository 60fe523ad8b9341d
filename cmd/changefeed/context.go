package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The commands context. cmd/changefeed/internal/contexts keeps the file.

// contextCommand is the command context, the parent of the others.
func contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "context",
		GroupID: groupTools,
		Short:   "Name accounts and stores, and choose among them",
		Long: `A context names an account or a store in a directory, with a key, a certificate and a default database.
With a context, an ADDRESS may be DATABASE/container or, in the default database, container.

A command uses the context of --context, or else of $CHANGEFEED_CONTEXT, or else the current context, which changefeed
context use sets. --context= uses none. Flags such as --endpoint come before a context. A context that you name comes
before $COSMOS_ENDPOINT and $COSMOS_CONNECTION_STRING. The current context comes after them, and is used only while both
are unset. The key of a context is sent only to the endpoint of the context, and $COSMOS_KEY without $COSMOS_ENDPOINT is
not sent there.

Contexts are in changefeed/config.json in your directory of settings, or in the file of
$CHANGEFEED_CONFIG. The file says where a key is, and has the key itself only with
--store-secret.

An argument that may be a FILE, as of dlq, is no name: use --container NAME there.`,
		Example: `  changefeed context add shop --endpoint https://shop.documents.azure.com \
    --key-env SHOP_KEY --database shop
  changefeed context use shop
  changefeed tail orders`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOfParent,
	}
	cmd.AddCommand(contextAddCommand(), contextUseCommand(), contextListCommand(), contextShowCommand(),
		contextRemoveCommand())
	return cmd
}

// removedContext is the result of context rm.
type removedContext struct {
	Name    string `json:"name" about:"of the context"`
	Current bool   `json:"was_current" about:"the context was current, so there is no current context now"`
}

// ReportedAs implements [report.Value].
func (removedContext) ReportedAs() string { return "removed_context" }

var (
	contextKind = report.Kind{
		Name: "context", About: "A context: context list, show, add, use.", Of: contexts.Description{},
	}
	removedContextKind = report.Kind{
		Name: "removed_context", About: "A removed context: context rm.", Of: removedContext{},
	}
)

// addOptions are the flags of context add.
type addOptions struct {
	contexts.Wanted
	use    bool
	report *report.Report
}

// contextAddCommand is the command context add.
func contextAddCommand() *cobra.Command {
	var o addOptions
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a context",
		Long: `The context is of an account or of a store in a directory. Nothing is opened, so neither
has to exist yet.

The key of an account comes from a variable, a file, or the output of a program, each time that a command needs the key.
The program is run without a shell, has 30 s, and writes the key alone, in a single line. Without a key in the context,
and without --account-key, the key is that of $CHANGEFEED_KEY, or the identity is that of the machine in Microsoft Entra
ID; on a loopback address the emulator's well-known key is used. $COSMOS_KEY is not for a context.`,
		Example: `  changefeed context add shop --endpoint https://shop.documents.azure.com \
    --key-command 'pass show shop'
  changefeed context add local --db data --use`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			return o.add(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Endpoint, "endpoint", "", "`URL` of the account")
	f.StringVar(&o.Directory, "db", "", "`directory` of the store")
	f.StringVar(&o.Key.Variable, "key-env", "", "the key is in this environment `VARIABLE`")
	f.StringVar(&o.Key.File, "key-file", "", "the key is in this `file`")
	f.StringVar(&o.KeyCommand, "key-command", "", "the key is the output of this `COMMAND`; quotes keep blanks together")
	f.StringVar(&o.Key.Secret, "account-key", "", "the `key` itself, with --store-secret")
	f.BoolVar(&o.StoreSecret, "store-secret", false,
		"store the key of --account-key as plain text in the file of contexts")
	f.StringVar(&o.CA, "ca", "", "`file` with the certificate that a server made itself")
	f.StringVar(&o.Database, "database", "", "`name` of the database of containers that are named without a database")
	f.BoolVar(&o.use, "use", false, "make the context current")
	o.report = output(cmd)
	return cmd
}

// add adds the context.
func (o *addOptions) add(cmd *cobra.Command) error {
	// Without the key, as from a variable that is not set, the context would differ from the user's intention.
	for _, name := range []string{"key-env", "key-file", "key-command", "account-key"} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usage.Flag(name, "empty", "a value, or leave --"+name+" out")
		}
	}
	added, err := o.Complete()
	if err != nil {
		return err
	}
	return changeContexts(cmd, o.report, "added", func(all *contexts.Contexts) (string, error) {
		if o.use {
			all.Current = o.Name
		}
		return o.Name, all.Add(added)
	})
}

// contextUseCommand is the command context use.
func contextUseCommand() *cobra.Command {
	var out *report.Report
	cmd := &cobra.Command{
		Use:               "use NAME",
		Short:             "Make a context current",
		Long:              `Commands use the current context if you name no other.`,
		Example:           `  changefeed context use shop`,
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeContexts(cmd, out, "now using", func(all *contexts.Contexts) (string, error) {
				found, err := all.Find("NAME", args[0])
				all.Current = found.Name
				return found.Name, err
			})
		},
	}
	out = output(cmd)
	return cmd
}

// changeContexts changes the file of contexts, and reports the context whose name change returns.
func changeContexts(cmd *cobra.Command, out *report.Report, done string,
	change func(all *contexts.Contexts) (name string, err error),
) error {
	path, err := contexts.FilePath()
	if err != nil {
		return err
	}
	var changed contexts.Description
	err = contexts.Change(cmd.Context(), path, func(all *contexts.Contexts) error {
		name, err := change(all)
		if err != nil {
			return err
		}
		found, err := all.Find("NAME", name)
		changed = contexts.Describe(found, *all)
		return err
	})
	if err != nil {
		return err
	}
	return out.Object(changed, func(w io.Writer) error {
		if _, err := fmt.Fprint(w, done, " "); err != nil {
			return err
		}
		if err := changed.WriteText(w); err != nil || changed.Current {
			return err
		}
		_, err := fmt.Fprintf(w, "changefeed context use %s makes it the current one\n", changed.Name)
		return err
	})
}

// contextListCommand is the command context list.
func contextListCommand() *cobra.Command {
	var out *report.Report
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the contexts",
		Long:    `A star marks the current context. Keys are never shown, only their places.`,
		Example: `  changefeed context list`,
		RunE: func(*cobra.Command, []string) error {
			path, err := contexts.FilePath()
			if err != nil {
				return err
			}
			all, err := contexts.Read(path)
			if err != nil {
				return err
			}
			return listContexts(out, all)
		},
	}
	out = outputRows(cmd, contextKind)
	return cmd
}

// listContexts writes a row for each context.
func listContexts(out *report.Report, all contexts.Contexts) error {
	if !out.ForPeople() {
		rows := out.Rows()
		for _, name := range all.Names() {
			found, err := all.Find("NAME", name)
			if err != nil {
				return err
			}
			if err := rows.Add(contexts.Describe(found, all)); err != nil {
				return err
			}
		}
		return rows.Flush()
	}
	table := [][]string{{"CONTEXT", "ACCOUNT OR STORE", "DATABASE", "KEY"}}
	for _, name := range all.Names() {
		c, mark := all.ByName[name], "  "
		if name == all.Current {
			mark = "* "
		}
		table = append(table, []string{
			mark + terminal.OneLine(name), terminal.OneLine(c.Endpoint + c.Directory),
			terminal.OrDash(terminal.OneLine(c.Database)), terminal.OrDash(terminal.OneLine(c.Key.String())),
		})
	}
	_, err := io.WriteString(out.Out, terminal.Table(table, terminal.Of(out.Out).Room()))
	return err
}

// contextShowCommand is the command context show.
func contextShowCommand() *cobra.Command {
	var out *report.Report
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show a context, by default the context in use",
		Long: `Without NAME the command shows the context of --context, $CHANGEFEED_CONTEXT or changefeed context use.
The key is never shown.`,
		Example:           `  changefeed context show`,
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			choice := choiceOf(cmd)
			if len(args) == 1 { // whatever --context says
				path, err := contexts.FilePath()
				if err != nil {
					return err
				}
				choice = contexts.Choice{File: path, Name: args[0], By: "NAME"}
			}
			found, ok, err := choice.Find()
			if err != nil {
				return err
			}
			if !ok {
				return usage.Missing{Err: errors.New("there is no current context: want NAME, or first changefeed " +
					"context use NAME")}
			}
			all, err := contexts.Read(choice.File)
			if err != nil {
				return err
			}
			shown := contexts.Describe(found, all)
			return out.Object(shown, shown.WriteText)
		},
	}
	out = output(cmd)
	return cmd
}

// contextRemoveCommand is the command context rm.
func contextRemoveCommand() *cobra.Command {
	var out *report.Report
	cmd := &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a context",
		Long: `The context is removed from the file. The account or store, and files with keys, stay as they
are.`,
		Example:           `  changefeed context rm shop`,
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := contexts.FilePath()
			if err != nil {
				return err
			}
			removed := removedContext{Name: args[0]}
			err = contexts.Change(cmd.Context(), path, func(all *contexts.Contexts) (err error) {
				removed.Current, err = all.Remove(removed.Name)
				return err
			})
			if err != nil {
				return err
			}
			return out.Object(removed, func(w io.Writer) error {
				text := "removed context " + removed.Name
				if removed.Current {
					text += ", which was the current one: no context is current now"
				}
				_, err := fmt.Fprintln(w, text)
				return err
			})
		},
	}
	out = output(cmd)
	return cmd
}

// completeContexts completes the name of a context.
func completeContexts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	path, err := contexts.FilePath()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := contexts.Read(path)
	if err != nil { // a completion has nowhere to write an error
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return all.Names(), cobra.ShellCompDirectiveNoFileComp
}
