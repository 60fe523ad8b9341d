package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/letters"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The commands dlq: the dead letters of a unit, in a container or in a file. cmd/changefeed/internal/letters finds
// the letters that a command line means, and works on them.

// dlqCommand is the command dlq, the parent of the others.
func dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dlq",
		GroupID: groupUnits,
		Short:   "Work on changes that a handler could not handle",
		Long: `A dead letter is a change that the handler of a deployment unit could not handle, and that was parked so
that the feed could go on.`,
		Example: `  changefeed dlq list cosmos:shop/letters --name mailer
  changefeed dlq retry cosmos:shop/letters --name mailer --all`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOfParent,
	}
	cmd.AddCommand(dlqListCommand(), dlqShowCommand(), dlqRetryCommand(), dlqReleaseCommand(), dlqWithdrawCommand(),
		dlqDropCommand())
	return cmd
}

// dlqHelp is the end of the help of the commands dlq.
const dlqHelp = `

An ID is the LSN of the change and a hash of its item, such as 4711.df8cf802. Tables show 8 digits of the hash or more.
Any beginning that only a single letter has will do, with 4 digits of the hash at least. In units that read all versions
and deletes an ID is the LSN and the place of the change, such as 4711.0.

A container has the letters of all instances. A FILE has the letters of the processor on this host alone.`

// letterOptions are the flags of the commands dlq.
type letterOptions struct {
	placeFlags
	query  letters.Query
	key    arg.Key
	all    bool // instead of ids
	sure   confirm.Flags
	report *report.Report
}

// keyForms says how a partition key is written.
const keyForms = `text, or JSON such as [5] or ["a","b"]`

// register adds the flags to a command.
func (o *letterOptions) register(cmd *cobra.Command) {
	o.placeFlags.register(cmd)
	cmd.Flags().StringVar(&o.query.Name, "name", "", "`name` of the deployment unit")
	cmd.Flags().Var(&o.key, "key", "only letters of this partition key: "+keyForms)
	cmd.Flags().StringVar(&o.query.Source, "source", "",
		"`address` of the container that the unit reads, if several units have this name")
	_ = cmd.MarkFlagRequired("name") // fails only for an unknown flag
}

// leasesFlag adds the flag of the leases in which a unit without letters is looked for.
func (o *letterOptions) leasesFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.query.Leases, "leases", "",
		"`address` of the lease container, which knows a unit without letters (default leases, beside the letters)")
}

// parse reads the arguments: a file, or the address of a container, and ids. If flags name the container, all arguments
// are ids, also an argument that looks like an address.
func (o *letterOptions) parse(cmd *cobra.Command, args []string) (at letters.Place, err error) {
	o.query.Key = o.key.Value
	if strings.TrimSpace(o.query.Name) == "" {
		return at, usage.Flag("name", strconv.Quote(o.query.Name), "the name of a deployment unit, such as mailer")
	}
	switch {
	case o.db != "" || cmd.Flags().Changed("container"):
		o.query.IDs = args
		at.Address, err = o.containerAddress(cmd, nil)
		return at, err
	case len(args) == 0:
		return at, usage.Error{Err: errors.New("ADDRESS or FILE is missing: want " + place.AddressForms +
			", or a file of letters; or --db and --container")}
	}
	o.query.IDs = args[1:]
	return letters.Parse(args[0])
}

// readLetters calls f with the selected letters, and with where they are.
func (o *letterOptions) readLetters(cmd *cobra.Command, args []string,
	f func(from string, all letters.Seq) error,
) error {
	at, err := o.parse(cmd, args)
	if err != nil {
		return err
	}
	if at.File != "" && o.query.Source != "" {
		return o.sourceOfFile()
	}
	return o.withOpener(func(opener *place.Opener) error {
		from, all, err := o.query.Read(cmd.Context(), opener, at)
		if err != nil {
			return err
		}
		return f(from, all)
	})
}

// sourceOfFile refuses --source for a file, because there is no container to compare --source with.
func (o *letterOptions) sourceOfFile() error {
	return usage.Error{Err: fmt.Errorf("--source is %s: the letters are in a file, which does not have what their "+
		"unit reads: leave it out", o.query.Source)}
}

// checkIDs requires either ids or --all. Without both there is nothing to do, and with both the meaning is unclear.
// Letters may be removed for good, so the command does not guess.
func (o *letterOptions) checkIDs() error {
	switch {
	case o.all && len(o.query.IDs) > 0:
		return usage.Error{Err: fmt.Errorf("ID is %s, and --all is set: want IDs or --all, and not both",
			strings.Join(o.query.IDs, " "))}
	case !o.all && len(o.query.IDs) == 0:
		return usage.Error{Err: errors.New("ID is missing: want those that changefeed dlq list shows, or --all, " +
			"and not both")}
	}
	return nil
}

// dlqListCommand is the command dlq list.
func dlqListCommand() *cobra.Command {
	var o letterOptions
	cmd := &cobra.Command{
		Use:   "list [ADDRESS|FILE] --name NAME [ID...]",
		Short: "List dead letters",
		Long: `The letters of each partition key come in the order of their changes. If several keys have the same ID, the key and the
ID name the letter.

The disposition says why a change was parked:

  failed       the handler failed too often, or for too long
  poison       the handler said that trying again cannot help
  undecodable  the handler cannot decode the change
  crashed      the process ended too often during the handler call for the change
  held         an earlier change of its key is parked, and the unit holds such keys` + dlqHelp,
		Example: `  changefeed dlq list cosmos:shop/letters --name mailer
  changefeed dlq list mailer.ndjson --name mailer --key London
  changefeed dlq list docstore:data#letters --name mailer -o json | jq .cause`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.readLetters(cmd, args, func(from string, all letters.Seq) error {
				if !o.report.ForPeople() {
					return letters.WriteList(o.report.Rows(), all)
				}
				return letters.WriteTable(o.report.Out, terminal.Of(o.report.Out), o.query.Name, from, all)
			})
		},
	}
	o.register(cmd)
	o.report = outputRows(cmd, letters.ListKind)
	o.leasesFlag(cmd)
	return cmd
}

// dlqShowCommand is the command dlq show.
func dlqShowCommand() *cobra.Command {
	var o letterOptions
	cmd := &cobra.Command{
		Use:   "show [ADDRESS|FILE] --name NAME [ID...]",
		Short: "Show dead letters whole, with their documents",
		Long: `All facts about each letter: why the change was parked, and the document of the feed. Without an ID, all
letters are shown. With -o json each object has the form in which letters are kept.` + dlqHelp,
		Example: `  changefeed dlq show cosmos:shop/letters --name mailer 4711.df8cf802
  changefeed dlq show mailer.ndjson --name mailer -o json | jq .document`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.readLetters(cmd, args, func(_ string, all letters.Seq) error {
				if !o.report.ForPeople() {
					return letters.WriteWhole(o.report.Rows(), o.query.Name, all)
				}
				return letters.Show(cmd.OutOrStdout(), all)
			})
		},
	}
	o.register(cmd)
	o.report = output(cmd)
	o.leasesFlag(cmd)
	return cmd
}

// dropOptions are the flags of the command dlq drop.
type dropOptions struct {
	letterOptions
	whoFlags
}

// dlqDropCommand is the command dlq drop.
func dlqDropCommand() *cobra.Command {
	var o dropOptions
	cmd := &cobra.Command{
		Use:   "drop [ADDRESS|FILE] --name NAME [ID...]",
		Short: "Remove dead letters, with their documents",
		Long: `Afterwards nothing remembers that these changes were not handled. If any of the named letters does not
exist, none is removed. A key that is held stays held, and further changes of the key are parked too, until dlq release
--key. The history of the unit records the drop (leases history), if the leases are found.

A file cannot be changed while open in a processor. On a terminal, drop asks first; elsewhere --yes is required.` + dlqHelp,
		Example: `  changefeed dlq drop cosmos:shop/letters --name mailer 4711.df8cf802
  changefeed dlq drop mailer.ndjson --name mailer --key London --all --yes`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.dropLetters(cmd, args) },
	}
	o.register(cmd)
	o.registerWho(cmd)
	o.leasesFlag(cmd)
	o.report = output(cmd)
	o.query.Sole = true
	cmd.Flags().BoolVar(&o.all, "all", false, "remove all letters of the unit or, with --key, of the key")
	o.sure.Register(cmd.Flags())
	return cmd
}

// dropLetters removes letters.
func (o *dropOptions) dropLetters(cmd *cobra.Command, args []string) error {
	o.query.By = o.acting()
	at, err := o.parse(cmd, args)
	if err != nil {
		return err
	}
	if at.File != "" && o.query.Source != "" {
		return o.sourceOfFile()
	}
	if err := o.checkIDs(); err != nil {
		return err
	}
	n := 0
	err = o.withOpener(func(opener *place.Opener) error {
		warn := func(text string) {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), terminal.OneLine(text))
		}
		n, err = o.query.Drop(cmd.Context(), opener, at, warn, func(letters int) (bool, error) {
			return o.sure.Ask(cmd.Context(), confirm.AtTerminal(cmd.Context(), cmd.ErrOrStderr()), confirm.Question{
				Text: fmt.Sprintf("Drop %s of unit %s, with their documents?", terminal.Count(letters, "letter"),
					o.query.Name),
			})
		})
		return err
	})
	if err != nil {
		return err
	}
	return o.report.Object(dropped{n, o.sure.DryRun}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s %s\n", o.sure.Verb("dropped", "drop"), terminal.Count(n, "letter"))
		return err
	})
}

// dropped is the result of dlq drop.
type dropped struct {
	Letters int  `json:"dropped" about:"number of letters"`
	DryRun  bool `json:"dry_run" about:"true if nothing was removed, but would be"`
}

// ReportedAs implements [report.Value].
func (dropped) ReportedAs() string { return "dropped_letters" }
