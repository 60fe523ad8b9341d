package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
)

// The command leases history: who has steered a unit, when, how and why.

// leasesHistoryCommand is the command leases history.
func leasesHistoryCommand() *cobra.Command {
	var o steerOptions
	cmd := &cobra.Command{
		Use:   "history [ADDRESS] --name NAME",
		Short: "Show who has paused, resumed, reset or restored a unit, and why",
		Long: `The last 100 actions, the newest last; with -o json the positions of each lease are named, too. The times are UTC, by
the clock of the store that has the leases. The history is a document among the leases, which processors ignore, and is
deleted with the unit (changefeed leases delete).`,
		Example: `  changefeed leases history --db data --name mailer
  changefeed leases history --db data --name mailer -o csv --fields at,action`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withUnit(cmd, args, func(u *admin.Unit, of string) error {
				entries, err := u.History(cmd.Context())
				if err != nil {
					return explainSteering(err)
				}
				if o.report.ForPeople() {
					return unit.WriteHistory(o.report.Out, of, entries)
				}
				return unit.WriteActions(o.report.Rows(), entries)
			})
		},
	}
	o.registerUnit(cmd)
	o.report = outputRows(cmd, unit.ActionKind)
	return cmd
}
