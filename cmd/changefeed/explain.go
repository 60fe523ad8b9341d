package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
)

// The command leases explain. cmd/changefeed/internal/unit writes the sentences that package admin
// finds.

// leasesExplainCommand is the command leases explain.
func leasesExplainCommand() *cobra.Command {
	var o steerOptions
	cmd := &cobra.Command{
		Use:   "explain [ADDRESS] --name NAME",
		Short: "Explain the leases of a unit in sentences, with the next steps",
		Long: `For each lease, or for the lease of --lease: the owner and until when, the position and the changes after
the position, who has paused or reset the lease and why, the missing parts of a split, keys that are held or set aside,
since when changes fail, and overlaps and holes beside the range. Each explanation ends with the next steps. The times
are UTC, by the clock of the store.`,
		Example: `  changefeed leases explain --db data --name mailer
  changefeed leases explain cosmos:shop/leases --name mailer --lease 05C1-0BF3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := o.containerAddress(cmd, args)
			if err != nil {
				return err
			}
			return o.withOpener(func(opener *place.Opener) error {
				source, store, err := o.open(cmd.Context(), opener, at)
				if err != nil {
					return err
				}
				found, err := admin.Open(source.Source, store, o.settings()).Explain(cmd.Context(), "")
				if err != nil {
					return err
				}
				all, err := unit.Explanations(source.Address.Name(), o.commands, found, o.lease)
				if err != nil {
					return err
				}
				if o.report.ForPeople() {
					return unit.WriteExplanations(o.report.Out, all)
				}
				rows := o.report.Rows()
				for _, x := range all {
					if err := rows.Add(x); err != nil {
						return err
					}
				}
				return rows.Flush()
			})
		},
	}
	o.registerUnit(cmd)
	o.registerLease(cmd)
	o.report = outputRows(cmd, unit.ExplanationKind)
	return cmd
}
