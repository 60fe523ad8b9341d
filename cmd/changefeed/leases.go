package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// The command leases. cmd/changefeed/internal/unit interprets leases, finds faults in them, and writes their table.

// leasesAbout is the description of the command leases.
const leasesAbout = `For each lease of each deployment unit: its owner, when it was last written, the stored position, how many changes come
after the position, how long the oldest of them has waited, how often the batch in hand has failed, and anything that
is wrong. Notes name partition keys that are held (changefeed dlq) or set aside because they fail, outages, documents
that are no leases, and ranges of keys that no lease covers.

The state of a lease is live, silent (its owner is late), expired, free, stopped (free, and no instance of the unit
runs), paused, broken, splitting or retired.

The containers that the units read are looked for in the same store or, in an account, in the same database, and at
--source. A store and changefeed serve count changes exactly. Azure cannot: ~N is an estimate (a distance of LSNs, which counts
transactions), and ≤N is an upper bound (the number of a whole partition, which several leases share).

--delete removes the leases of a unit with all positions, so that its next processor begins anew at its own --from. If a
processor of the unit works, this is refused. On a terminal it asks first; elsewhere --yes is required.`

// leasesCommand is the command leases.
func leasesCommand() *cobra.Command {
	o := placeFlags{container: unit.DefaultContainer}
	var out *report.Report
	var doomed deletedUnit
	var source string
	cmd := &cobra.Command{
		Use:     "leases [ADDRESS]",
		GroupID: groupUnits,
		Short:   "Show who reads which range, up to where, and what is still to come",
		Long:    leasesAbout,
		Example: `  changefeed leases --db data
  changefeed leases http://127.0.0.1:8081/shop/leases
  changefeed leases --db data -o json | jq 'select(.lag > 9)'
  changefeed leases --db data --delete mailer --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := doomed.check(cmd); err != nil {
				return err
			}
			at, err := o.containerAddress(cmd, args)
			if err != nil {
				return err
			}
			return o.withOpener(func(opener *place.Opener) error {
				units, err := surveyUnits(cmd.Context(), opener, at, source)
				switch {
				// The command has guessed the name leases, so the error says why there may be no such container.
				case errors.Is(err, place.ErrNoContainer) && o.db != "" && !cmd.Flags().Changed("container"):
					return fmt.Errorf("%w; processors make no lease container by themselves", err)
				case errors.Is(err, feed.ErrBadRequest): // a container that cannot have leases
					return usage.Error{Err: err}
				case err != nil:
					return err
				case doomed.name != "":
					return doomed.remove(cmd, out, units)
				case !out.ForPeople():
					return unit.WriteRows(out.Rows(), units)
				}
				return unit.WriteTables(cmd.OutOrStdout(), at.Name(), units, terminal.Of(cmd.OutOrStdout()))
			})
		},
	}
	o.register(cmd)
	cmd.Flags().StringVar(&source, "source", "",
		"`address` of a container that units read, if it is elsewhere than the leases")
	out = outputRows(cmd, unit.Kinds()...)
	doomed.register(cmd)
	cmd.AddCommand(leasesPauseCommand(), leasesResumeCommand(), leasesResetCommand(), leasesSnapshotCommand(),
		leasesRestoreCommand())
	return cmd
}

// surveyUnits reads the units of a lease container; source is the address of another container that they may read.
func surveyUnits(ctx context.Context, opener *place.Opener, at place.Address, source string) ([]unit.Unit, error) {
	if source == "" {
		return unit.Survey(ctx, opener, at)
	}
	other, err := opener.Parse("--source", source)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	return unit.Survey(ctx, opener, at, other)
}

// deletedUnit is the unit that --delete names.
type deletedUnit struct {
	confirm.Flags
	name string
}

// register adds the flags.
func (d *deletedUnit) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.name, "delete", "", "delete all records of the unit of this `name`")
	d.Register(cmd.Flags())
}

// check refuses an empty name, as of a variable that is not set, and the other flags without a unit to delete.
func (d *deletedUnit) check(cmd *cobra.Command) error {
	switch given := cmd.Flags().Changed; {
	case given("delete") && d.name == "":
		return usage.Flag("delete", "empty", "the name of a unit")
	case d.name == "" && (given("yes") || given("dry-run")):
		return usage.Error{Err: errors.New("--delete is missing: want the name of a unit with --yes or --dry-run")}
	}
	return nil
}

// remove deletes the records of the unit, if the user agrees, and reports how many leases were deleted.
func (d *deletedUnit) remove(cmd *cobra.Command, out *report.Report, units []unit.Unit) error {
	gone, n, err := unit.Delete(cmd.Context(), d.name, units, func(u unit.Unit, leases int) (bool, error) {
		return d.Ask(cmd.Context(), confirm.AtTerminal(cmd.Context(), cmd.ErrOrStderr()), confirm.Question{
			Text: fmt.Sprintf("Delete %s of unit %s on %s, with the positions?", terminal.Count(leases, "lease"),
				u.Processor, u.Container),
		})
	})
	if err != nil {
		return err
	}
	done := unit.Deleted{Processor: gone.Processor, Container: gone.Container, Leases: n, DryRun: d.DryRun}
	return out.Object(done, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s %s on %s, leases: %d\n", d.Verb("deleted", "delete"),
			terminal.OneLine(gone.Processor), terminal.OneLine(gone.Container), n)
		return err
	})
}
