package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
)

// The command leases delete. cmd/changefeed/internal/unit deletes.

// unitDeletion are the flags of leases delete.
type unitDeletion struct {
	placeFlags
	name   string
	source string
	sure   confirm.Flags
	report *report.Report
}

// leasesDeleteCommand is the command leases delete.
func leasesDeleteCommand() *cobra.Command {
	var o unitDeletion
	cmd := &cobra.Command{
		Use:   "delete [ADDRESS] --name NAME",
		Short: "Delete the leases of a unit with all positions",
		Long: `The next processor of the unit begins at the --from of that processor. This is refused while a processor
of the unit works. On a terminal the command asks first; elsewhere --yes is required.

If several units have the name, pass --name with the beginning of the document ids of your unit, up to the dot: the
error lists these beginnings.`,
		Example: `  changefeed leases delete --db data --name mailer
  changefeed leases delete cosmos:shop/leases --name mailer --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := o.containerAddress(cmd, args)
			if err != nil {
				return err
			}
			return o.withOpener(func(opener *place.Opener) error {
				units, err := surveyUnits(cmd.Context(), new(unit.Surveyor), opener, at, o.source)
				if err != nil {
					return err
				}
				return o.remove(cmd, units)
			})
		},
	}
	o.container = unit.DefaultContainer
	o.placeFlags.register(cmd)
	cmd.Flags().StringVar(&o.name, "name", "", "`name` of the deployment unit")
	cmd.Flags().StringVar(&o.source, "source", "",
		"`address` of the container that the unit reads, if the leases are elsewhere")
	_ = cmd.MarkFlagRequired("name") // fails only for an unknown flag
	o.sure.Register(cmd.Flags())
	o.report = output(cmd)
	return cmd
}

// remove deletes the records of the unit, if the user agrees, and reports how many leases were deleted.
func (o *unitDeletion) remove(cmd *cobra.Command, units []unit.Unit) error {
	gone, n, err := unit.Delete(cmd.Context(), o.name, units, func(u unit.Unit, leases int) (bool, error) {
		return o.sure.Ask(cmd.Context(), confirm.AtTerminal(cmd.Context(), cmd.ErrOrStderr()), confirm.Question{
			Text: fmt.Sprintf("Delete %s of unit %s on %s, with the positions?", terminal.Count(leases, "lease"),
				u.Processor, u.Container),
		})
	})
	if err != nil {
		return err
	}
	done := unit.Deleted{Processor: gone.Processor, Container: gone.Container, Leases: n, DryRun: o.sure.DryRun}
	return o.report.Object(done, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s unit %s on %s with %s\n", o.sure.Verb("deleted", "delete"),
			terminal.OneLine(gone.Processor), terminal.OneLine(gone.Container), terminal.Count(n, "lease"))
		return err
	})
}
