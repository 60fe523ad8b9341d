package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// The command leases. cmd/changefeed/internal/unit interprets leases, finds faults in them, and writes their table.

// leasesAbout is the description of the command leases.
const leasesAbout = `For each lease of each deployment unit: its owner, the time of the last write, the stored position,
how many changes come after the position, how long the oldest of them has waited, how often the batch in hand has
failed, and all faults. Notes name held keys (changefeed dlq), keys that are set aside because they fail, outages,
documents that are no leases, and keys without a lease.

The first line of a unit has the sums and, if known, the watermark: every change committed before this time is handled.
Changes of held keys count as unhandled.

The state of a lease is live, silent (the owner is late), expired, free, stopped (free, no instance runs), paused,
broken, splitting (being replaced) or retired.

The containers that the units read are looked for in the same store or, in an account, in the same database, and at
--source. A store and changefeed serve count changes exactly. Azure cannot: ~N is an estimate (a distance of LSNs, which counts
transactions), ≤N an upper bound (the number of a whole partition, which several leases share); a small lag is
counted. -v says the cost.`

// leasesOptions are the flags of the commands that show leases.
type leasesOptions struct {
	placeFlags
	name   string // of the only unit to show
	source string
	faults unit.Faults
	report *report.Report
	rows   *report.Rows // of all rounds, so that a table for programs has one heading
	survey unit.Surveyor
}

// register adds the flags.
func (o *leasesOptions) register(cmd *cobra.Command) {
	o.container = unit.DefaultContainer
	o.placeFlags.register(cmd)
	cmd.Flags().StringVar(&o.name, "name", "", "only the unit with this `name`")
	cmd.Flags().StringVar(&o.source, "source", "",
		"`address` of a container that units read, if the leases are elsewhere")
	cmd.Flags().Var(&o.faults, "fail-on", "end with exit code 5 if any of these is found, such as wait>2m,expired")
	registerIntended(cmd, &o.survey.Intended)
	o.report = outputRows(cmd, unit.Kinds()...)
}

// registerIntended adds the flag for names that look alike on purpose.
func registerIntended(cmd *cobra.Command, names *[]string) {
	cmd.Flags().StringSliceVar(names, "intended", nil,
		"`names` of units that look alike on purpose: no warning")
}

// withUnits calls f with the units of the lease container.
func (o *leasesOptions) withUnits(cmd *cobra.Command, args []string,
	f func(at place.Address, units []unit.Unit) error,
) error {
	at, err := o.containerAddress(cmd, args)
	if err != nil {
		return err
	}
	return o.withOpener(func(opener *place.Opener) error {
		units, err := surveyUnits(cmd.Context(), &o.survey, opener, at, o.source)
		switch {
		case errors.Is(err, feed.ErrBadRequest): // a container that cannot have leases
			return usage.Error{Err: err}
		case err != nil:
			return err
		}
		if o.name != "" {
			if units, err = unitsNamed(o.name, units); err != nil {
				return err
			}
		}
		return f(at, units)
	})
}

// unitsNamed returns the units with a name: there may be several, which read different containers.
func unitsNamed(name string, units []unit.Unit) (found []unit.Unit, err error) {
	var names []string
	for _, u := range units {
		if u.Processor == name {
			found = append(found, u)
		} else if u.Processor != "" && !slices.Contains(names, u.Processor) {
			names = append(names, u.Processor)
		}
	}
	if len(found) == 0 {
		return nil, unit.NoUnit(name, names)
	}
	return found, nil
}

// show writes the units, and returns an error if they have a fault that the user looks for.
func (o *leasesOptions) show(cmd *cobra.Command, at place.Address, units []unit.Unit) error {
	var err error
	if o.report.ForPeople() {
		err = unit.WriteTables(o.report.Out, at.Name(), units, terminal.Of(o.report.Out))
	} else {
		if o.rows == nil {
			o.rows = o.report.Rows()
		}
		err = unit.WriteRows(o.rows, units)
	}
	if n, _ := cmd.Flags().GetCount(verboseFlag); n > 0 { // fails only for an unknown flag
		o.sayCost(units)
	}
	if found := o.faults.Find(units); err == nil && found != "" {
		return usage.Found{Err: fmt.Errorf("--fail-on %s: %s", &o.faults, found)}
	}
	return err
}

// sayCost reports the cost of the estimates.
func (o *leasesOptions) sayCost(units []unit.Unit) {
	for _, u := range units {
		if cost := u.Estimate.Cost; u.Processor != "" {
			o.report.Notice("estimate of %s on %s: %s, %.2f RU", terminal.OneLine(u.Processor),
				terminal.OneLine(u.Container), terminal.Count(cost.Requests, "request"), cost.Charge)
		}
	}
}

// leasesCommand is the command leases.
func leasesCommand() *cobra.Command {
	var o leasesOptions
	cmd := &cobra.Command{
		Use:     "leases [ADDRESS]",
		GroupID: groupUnits,
		Short:   "Show who reads which range, the positions and the pending changes",
		Long:    leasesAbout,
		Example: `  changefeed leases --db data
  changefeed leases http://127.0.0.1:8081/shop/leases --fail-on expired,hole
  changefeed leases --db data -o json | jq 'select(.lag > 9)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := o.containerAddress(cmd, args); err != nil && len(args) > 0 && !place.IsAddress(args[0]) {
				return unknown(cmd, args)
			}
			return o.withUnits(cmd, args, func(at place.Address, units []unit.Unit) error {
				return o.show(cmd, at, units)
			})
		},
	}
	o.register(cmd)
	cmd.AddCommand(leasesListCommand(), leasesWatchCommand(), leasesPauseCommand(), leasesResumeCommand(),
		leasesResetCommand(), leasesSkipCommand(),
		leasesSnapshotCommand(), leasesRestoreCommand(), leasesHistoryCommand(),
		leasesGCCommand(), leasesDeleteCommand(), leasesExplainCommand())
	return cmd
}

// leasesListCommand is the command leases list: the command leases under a name for scripts.
func leasesListCommand() *cobra.Command {
	var o leasesOptions
	cmd := &cobra.Command{
		Use:   "list [ADDRESS]",
		Short: "Show the leases, as changefeed leases does",
		Long: `The same as changefeed leases, whose help explains the columns. With --fail-on the command is a check:
the exit code is 5 if the leases have any of these faults:

` + unit.FaultsAbout(),
		Example: `  changefeed leases list --db data
  changefeed leases list --db data --fail-on 'wait>2m,expired,hole' -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withUnits(cmd, args, func(at place.Address, units []unit.Unit) error {
				return o.show(cmd, at, units)
			})
		},
	}
	o.register(cmd)
	return cmd
}

// surveyUnits reads the units of a lease container; source is the address of another container that they may read.
func surveyUnits(ctx context.Context, s *unit.Surveyor, opener *place.Opener, at place.Address, source string) (
	[]unit.Unit, error,
) {
	if source == "" {
		return s.Survey(ctx, opener, at)
	}
	other, err := opener.Parse("--source", source)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	return s.Survey(ctx, opener, at, other)
}
