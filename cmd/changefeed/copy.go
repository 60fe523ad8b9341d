package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cmd/changefeed/internal/migration"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The commands copy and compare: cmd/changefeed/internal/migration does the work.

// pairOptions are the flags of a command with a source and a target.
type pairOptions struct {
	migration.Pair
	ttl     choice
	context string // of the target
	key     string
	text    string // connection string
}

// register adds the flags.
func (p *pairOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	p.ttl = choice{migration.Remaining, []string{migration.Remaining, migration.Exact}}
	f.Var(&p.ttl, "ttl", "ttl of documents in the target: the rest of their life, or the ttl in the source")
	f.StringVar(&p.DeletedWhen, "deleted-when", "",
		"a document is deleted if this `property` is there, and neither false nor null")
	f.IntVar(&p.Writers, "writers", 256, "requests at the same time")
	f.StringVar(&p.context, "target-context", "", "`name` of the context of the target's account")
	f.StringVar(&p.key, "target-account-key", "", "`key` of the target's account, if different")
	f.StringVar(&p.text, "target-connection-string", "", "`text` with endpoint and key of the target's account")
	accountFlags(cmd, &p.SourceAccount)
}

// take reads the arguments: the two addresses, and after -- a program.
func (p *pairOptions) take(cmd *cobra.Command, args []string) error {
	p.Source, p.Target, p.Transform = args[0], args[1], args[2:]
	p.TTL = p.ttl.value
	p.TargetAccount = p.SourceAccount
	if p.key != "" {
		p.TargetAccount.Key = p.key
	}
	if p.context != "" || p.text != "" {
		p.TargetAccount = place.Settings{
			Connection: p.text, Key: p.key, CA: p.SourceAccount.CA, Say: p.SourceAccount.Say, Choice: choiceOf(cmd),
		}
	}
	if p.context == "" {
		return nil
	}
	p.TargetAccount.Choice = contexts.Choose(p.context, true)
	_, _, err := p.TargetAccount.Choice.Find()
	return err
}

// pairArgs checks that there are two addresses, and a program only after --.
func pairArgs(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return usage.Error{Err: errors.New("SOURCE is missing: want " + place.AddressForms)}
	case len(args) == 1 || dash == 1:
		return usage.Error{Err: errors.New("TARGET is missing: want " + place.AddressForms)}
	case dash > 2 || dash < 0 && len(args) > 2:
		return usage.Error{Err: fmt.Errorf("%q is an argument too many: want a program after --, as in -- %[1]s", args[2])}
	case dash == len(args):
		return usage.Error{Err: errors.New("COMMAND is missing: want a program after --, as in -- cat")}
	}
	return nil
}

// copyCommand is the command copy.
func copyCommand() *cobra.Command {
	var o migration.Copy
	var p pairOptions
	cmd := &cobra.Command{
		Use:     "copy SOURCE TARGET [flags] [-- COMMAND [ARG...]]",
		GroupID: groupData,
		Short:   "Copy a container into another, and follow the source until the cut-over",
		Long: `First all items are copied, then their changes, while both containers are in use. The target may have another
partition key, and be in another account or store. After an interruption, the same command goes on. Several processes
with the same command share the work. An item of the source never replaces a newer item of the target.

Deletes and expiries are followed if the source retains all versions and deletes. Otherwise only soft deletes are seen,
with --deleted-when. compare finds the surplus documents.

A COMMAND is started for up to 1,000 documents. The program reads a document a line, and writes a line for each: the
document for the target, an array of documents, or null for none. An item that can never be copied goes to
--dead-letters; without, the copy ends with an error that names the item. docs/recipes/copy.md has the details.`,
		Example: `  changefeed copy docstore:data#orders docstore:data#views --create /customer
  changefeed copy cosmos:shop/orders cosmos:shop/orders2 --until-caught-up
  changefeed copy http://127.0.0.1:8081/shop/orders docstore:new#orders \
    --create /city -- jq -c 'del(.draft)'`,
		Args: pairArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.take(cmd, args); err != nil {
				return err
			}
			o.Pair = p.Pair
			o.Log = slog.New(logHandler(cmd, o.Report, slog.LevelWarn))
			o.Say = func(text string) { o.Report.Notice("%s", terminal.Harmless(text)) }
			o.Exit = exitAtOnce
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Create, "create", nil, "make a missing target, with this partition key `path`")
	f.StringVar(&o.Leases, "leases", "", "`address` of the lease container, which is made (default leases beside TARGET)")
	f.StringVar(&o.Name, "name", "", "`name` of the unit (default copy, with the names of both containers)")
	f.StringVar(&o.Letters, "dead-letters", "", "park items that can never be copied in the container of this `address or file`")
	f.StringVar(&o.Instance, "instance", "", "`name` of this instance (default host and process)")
	f.DurationVar(&o.Expiration, "expiration", time.Minute, "silence after which other instances take leases")
	f.DurationVar(&o.Steady, "steady", 10*time.Second, "how long the lag must be 0 before the cut-over")
	f.BoolVar(&o.UntilCaughtUp, "until-caught-up", false, "end when the lag has been 0 for --steady")
	f.BoolVar(&o.DryRun, "dry-run", false, "only show the plan")
	p.register(cmd)
	o.Report = output(cmd)
	return cmd
}
