package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
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
	last   int
	once   bool
	form   changeline.Form
	most   int
	report *report.Report
}

// followFlag is the name of a flag that changes nothing, because tail follows unless --once is set.
const followFlag = "follow"

// tailCommand is the command tail.
func tailCommand() *cobra.Command {
	o := tailOptions{from: arg.Start{Value: feed.FromBeginning()}}
	cmd := &cobra.Command{
		Use:     "tail [ADDRESS]",
		GroupID: groupFeed,
		Short:   "Follow the change feed of a container",
		Long: `Each change is a line of JSON: the document, with the system properties. No lease is read or written.
tail ends at Ctrl-C, or with --once at the end of the feed.

With --meta, with -o json and with --mode all, a line is an object that contains the document:

  lsn, time      the commit: changes with the same lsn were committed together
  op             upsert; or create, replace, delete
  id, key        of the document
  range          part of the feed that contains the change
  expired        the time to live has deleted the document
  document       none for a delete
  previous       the version before, if the container keeps old versions, and previous_lsn
  next           position after the change, for --after; at the end of a page

-n N writes the oldest N changes. --last N writes the newest N, and then follows: for that tail first reads the whole
feed. If an account goes away, tail waits as long as --wait says, and then goes on.

--mode all needs a container that retains all versions, and begins now or after a position.`,
		Example: `  changefeed tail --db data --container restaurants --once
  changefeed tail http://127.0.0.1:8081/shop/orders --last 10
  changefeed tail docstore:data#orders --mode all --after '"42"' --range -1FF
  changefeed tail --db data --container restaurants --from 15m --meta | jq .key`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed(followFlag) && slices.Contains(args, "false") {
				return usage.Error{Err: errors.New("--follow false is --once now")}
			}
			return checkArguments(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.placeFlags.register(cmd)
	o.addPatience(cmd)
	o.selection.register(cmd)
	f := cmd.Flags()
	f.Var(&o.from, "from", "where to begin; also how long ago, such as 15m (default beginning; now with --mode all)")
	f.StringVar(&o.after, "after", "", "begin after this `position`, as in the output of --meta")
	f.IntVar(&o.last, "last", 0, "begin `N` changes before the end; reads the whole feed first")
	f.Var(&o.mode, "mode", "latest version of documents, or all versions and deletes")
	f.BoolVar(&o.once, "once", false, "end at the end of the feed")
	f.BoolP(followFlag, "f", true, "wait for more at the end of the feed (default)")
	_ = f.MarkHidden(followFlag) // for the fingers of people who know tail(1)
	metaFlag(cmd, &o.form)
	o.report = addOutput(cmd, report.Text, report.JSON)
	f.IntVarP(&o.most, "max", "n", 0, "end after `N` changes; 0 is no limit")
	cmd.MarkFlagsMutuallyExclusive("from", "after", "last")
	cmd.MarkFlagsMutuallyExclusive("last", "max")
	return cmd
}

// run opens and follows the container.
func (o *tailOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.checkFlags(cmd); err != nil {
		return err
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
		if err := cmp.Or(c.Retains(o.mode.Value), items.CheckPrefix(c, o.key.Value)); err != nil {
			return err
		}
		if known, ok := c.Source.(feed.Sequencer); ok && o.after != "" {
			if _, ok := known.TokenLSN(o.after); !ok {
				return usage.Flag("after", o.after, `a position as --meta shows it, such as '"42"'`)
			}
		}
		pull := changefeed.PullOptions{ReadOptions: feed.ReadOptions{
			Mode: o.mode.Value, Key: o.key.Value,
			MaxItems: o.most,
		}, Follow: !o.once}
		if o.last > 0 {
			return o.blame(o.form.FollowLast(ctx, cmd.OutOrStdout(), c.Source, o.rng.Value(), o.last, pull))
		}
		err := o.form.Follow(ctx, cmd.OutOrStdout(), c.Source, o.rng.Value(), from, pull)
		if o.after != "" && errors.Is(err, feed.ErrAhead) {
			err = fmt.Errorf("--after is %s: %w", o.after, err)
		}
		return o.blame(err)
	})
}

// checkFlags refuses invalid values of flags.
func (o *tailOptions) checkFlags(cmd *cobra.Command) error {
	follow, _ := cmd.Flags().GetBool(followFlag) // there is such a flag
	switch {
	case !follow:
		return usage.Error{Err: errors.New("--follow=false is --once now")}
	case o.once && cmd.Flags().Changed(followFlag):
		return usage.Error{Err: errors.New("--once and --follow are set: want one of the two")}
	case o.most < 0:
		return usage.Flag("max", strconv.Itoa(o.most), "0 or more")
	case o.last < 0, o.last == 0 && cmd.Flags().Changed("last"):
		return usage.Flag("last", strconv.Itoa(o.last), "1 or more")
	case o.last > 0 && o.mode.IsAll():
		return usage.Flag("last", strconv.Itoa(o.last), "--mode latest: all versions have no beginning to read from")
	}
	return nil
}
