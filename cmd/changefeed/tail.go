package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
)

// The command tail: a feed on standard output, without leases. The command keeps no state. After an early end, tail
// prints the flags with which to continue.

// tailOptions are the flags of tail.
type tailOptions struct {
	placeFlags
	selection
	from   arg.Start
	after  string
	mode   arg.Mode
	follow bool
	form   changeline.Form
	most   int
	report *report.Report
}

// tailCommand is the command tail.
func tailCommand() *cobra.Command {
	o := tailOptions{from: arg.Start{Value: feed.FromBeginning()}}
	cmd := &cobra.Command{
		Use:   "tail [ADDRESS]",
		Short: "Follow the change feed of a container",
		Long: `Follow the change feed of a container: each change on a line, as JSON, until Ctrl-C.
No lease is read or written.

A line is the document, with its system properties. With --meta, with -o json and for all
versions, it is an object that contains the document:

  lsn, time        the commit: changes with one lsn were committed together
  op               upsert; or create, replace, delete
  id, key          of the document
  range            that the change was read from
  expired          a delete by time to live
  document         none for a delete
  previous         the version before, where the container keeps it
  previous_lsn
  next             position after the change, for --after; on the last change of a page

While an account cannot be reached, tail waits for it, for as long as --patience says,
and then goes on where it was.

The feed of all versions needs a container that retains them, and begins now or after
a position.` + addressHelp,
		Example: `  changefeed tail --db data --container restaurants --from beginning --follow=false
  changefeed tail docstore:data#orders --mode all --after '"42"' --range -1FF
  changefeed tail https://127.0.0.1:8081/shop/orders --from now --ca data/tls/localhost.pem
  changefeed tail --db data --container restaurants --from 15m --meta | jq '{lsn, key}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			// A flag of this type accepts a value only after =. Otherwise the next word would be read as an address,
			// and the error would be about addresses.
			if len(args) == 1 && cmd.Flags().Changed("follow") && (args[0] == "true" || args[0] == "false") {
				return fmt.Errorf("--follow %s is two words: want --follow=%[1]s", args[0])
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.placeFlags.register(cmd)
	o.addPatience(cmd)
	o.selection.register(cmd)
	f := cmd.Flags()
	f.Var(&o.from, "from", "where to begin; also how long ago, such as 15m; for --mode all the default is now")
	f.StringVar(&o.after, "after", "", "begin after this `position` instead, as --meta shows it")
	f.Var(&o.mode, "mode", "latest version of each document, or all versions and deletes")
	f.BoolVar(&o.follow, "follow", true, "wait for more at the end of the feed")
	metaFlag(cmd, &o.form)
	o.report = addOutput(cmd, report.Text, report.JSON)
	f.IntVarP(&o.most, "max", "n", 0, "end after so many changes; 0 is no limit")
	cmd.MarkFlagsMutuallyExclusive("from", "after")
	return cmd
}

// run opens and follows the container.
func (o *tailOptions) run(cmd *cobra.Command, args []string) error {
	if o.most < 0 {
		return usage.Flag("max", strconv.Itoa(o.most), "0 or more")
	}
	if o.report.Form == report.JSON {
		o.form.Meta, o.form.Prefix = true, report.Prefix("change")
	}
	if o.mode.IsAll() {
		o.form.Meta = true
		if !cmd.Flags().Changed("from") {
			o.from.Value = feed.FromNow()
		}
		if !o.from.Value.IsNow() && o.after == "" {
			return usage.Flag("from", o.from.String(), "now with --mode all, or --after with a position")
		}
	}
	from := feed.Position{Start: o.from.Value}
	if o.after != "" {
		from = feed.At(o.after)
	}
	// A feed without changes writes nothing, so the end of a pipe must be noticed without a failing write.
	ctx, stop := terminal.WhileRead(cmd.Context())
	defer stop()
	return o.withContainer(cmd, args, func(c *place.Container) error {
		if err := c.Retains(o.mode.Value); err != nil {
			return err
		}
		pull := changefeed.PullOptions{ReadOptions: feed.ReadOptions{
			Mode: o.mode.Value, Key: o.key.Value,
			MaxItems: o.most,
		}, Follow: o.follow}
		return o.form.Follow(ctx, cmd.OutOrStdout(), c.Source, o.rng.Value(), from, pull)
	})
}
