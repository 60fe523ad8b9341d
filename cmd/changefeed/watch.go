package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/pause"
)

// The command leases watch: the leases again and again.

// leastEvery is the shortest interval of leases watch.
const leastEvery = 100 * time.Millisecond

// watchOptions are the flags of leases watch.
type watchOptions struct {
	leasesOptions
	every  time.Duration
	rounds int
}

// leasesWatchCommand is the command leases watch.
func leasesWatchCommand() *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch [ADDRESS]",
		Short: "Show the leases again and again, until Ctrl-C",
		Long: `The leases, as changefeed leases shows them, every few seconds. On a terminal the tables stay in place; elsewhere each round
begins with a line with the time. With -o json each round writes the rows. The command ends at Ctrl-C, after --max
rounds, or with exit code 5 at a fault of --fail-on, such as

` + unit.FaultsAbout() + `

From the second round on, the first line of a unit that is behind says how many changes are handled a second, and when
the unit will have caught up at this pace; the rows of -o json say that of each lease.

If the leases cannot be read for a while, a line says so, and another line says when they can be read again. A store in
a directory is open only during the reads.`,
		Example: `  changefeed leases watch --db data
  changefeed leases watch http://127.0.0.1:8081/shop/leases --every 10s
  changefeed leases watch --db data -o json --fields lease,lag --max 10`,
		RunE: o.run,
	}
	o.register(cmd)
	cmd.Flags().DurationVar(&o.every, "every", 2*time.Second, "time between the rounds")
	cmd.Flags().IntVarP(&o.rounds, "max", "n", 0, "end after `N` rounds; 0 is no limit")
	return cmd
}

// run shows the leases round after round. The first round must succeed, because a mistake in the command line would be
// retried for ever.
func (o *watchOptions) run(cmd *cobra.Command, args []string) error {
	switch {
	case o.every < leastEvery:
		return usage.Flag("every", terminal.Exact(o.every), terminal.Exact(leastEvery)+" or more")
	case o.rounds < 0:
		return usage.Flag("max", fmt.Sprint(o.rounds), "0 or more")
	}
	ctx, stop := terminal.WhileRead(cmd.Context())
	defer stop()
	away := false
	for round := 1; ; round++ {
		err := o.withUnits(cmd, args, func(at place.Address, units []unit.Unit) error {
			if away {
				o.report.Notice("the leases can be read again")
			}
			away = false
			o.beginRound(round)
			return o.show(cmd, at, units)
		})
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case round == 1 || !place.MayPass(err):
			return err
		case !away:
			away = true
			o.report.Warn("the leases cannot be read: %v: trying again every %v", err, o.every)
		}
		if round == o.rounds || pause.For(ctx, o.every) != nil {
			return nil
		}
	}
}

// beginRound separates a round from the round before.
func (o *watchOptions) beginRound(round int) {
	if !o.report.ForPeople() {
		return
	}
	now := time.Now().UTC().Format(time.RFC3339)
	if terminal.Of(o.report.Out).InPlace {
		const clearScreen = "\x1b[H\x1b[2J"
		fmt.Fprintf(o.report.Out, "%sat %s, every %v\n\n", clearScreen, now, o.every)
		return
	}
	if round > 1 {
		fmt.Fprintln(o.report.Out)
	}
	fmt.Fprintf(o.report.Out, "at %s\n", now)
}
