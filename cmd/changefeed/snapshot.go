package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The commands leases snapshot and restore: the positions of a unit in a file.

// leasesSnapshotCommand is the command leases snapshot.
func leasesSnapshotCommand() *cobra.Command {
	var o steerOptions
	cmd := &cobra.Command{
		Use:   "snapshot [ADDRESS] --name NAME",
		Short: "Write the positions of a unit",
		Long: `The snapshot is JSON for changefeed leases restore: the position of each lease, before which all changes are handled.
Units of processors for .NET and Java are read too. Nothing is changed, and the instances go on.`,
		Example: `  changefeed leases snapshot cosmos:shop/leases --name mailer > mailer.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withUnit(cmd, args, func(u *admin.Unit, _ string) error {
				s, err := u.Snapshot(cmd.Context())
				if err != nil {
					return explainSteering(err)
				}
				_, err = s.WriteTo(cmd.OutOrStdout())
				return err
			})
		},
	}
	o.registerUnit(cmd)
	o.report = addOutput(cmd, report.Text, report.JSON)
	return cmd
}

// leasesRestoreCommand is the command leases restore.
func leasesRestoreCommand() *cobra.Command {
	var o steerOptions
	cmd := &cobra.Command{
		Use:   "restore FILE|- [ADDRESS] --name NAME",
		Short: "Give a unit the positions of a snapshot",
		Long: `Changes since the snapshot are delivered again. Partitions may have been split or merged since. A unit
without leases is made if you set --source. So a unit of .NET or Java continues as a unit of this processor: stop the
other processors, take a snapshot, and restore it under another name.

On a terminal the command asks first; elsewhere --yes is required.`,
		Example: `  changefeed leases restore before.json --db data --name mailer
  changefeed leases restore mailer.json --db data --name mailer2 \
    --source docstore:data#orders`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := readSnapshot(cmd, args[0])
			if err != nil {
				return err
			}
			return o.withUnit(cmd, args[1:], func(u *admin.Unit, of string) error {
				question := fmt.Sprintf("Give %s the positions of %s, %s?", of, s.Taken.Format(time.RFC3339),
					terminal.Count(len(s.Leases), "lease"))
				return o.steerSure(cmd, u, question, func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
					return u.Restore(ctx, s)
				})
			})
		},
	}
	o.registerSteps(cmd)
	return cmd
}

// readSnapshot reads a file, or standard input.
func readSnapshot(cmd *cobra.Command, name string) (s *admin.Snapshot, err error) {
	var from io.Reader = terminal.Input(cmd.Context())
	if name != "-" {
		f, err := terminal.Open(cmd.Context(), name)
		if err != nil {
			return nil, usage.Path("FILE", name, err)
		}
		defer f.Close()
		from = f
	}
	if s, err = admin.ReadSnapshot(from); err != nil {
		return nil, usage.Error{Err: fmt.Errorf("FILE is %s: %w", name, err)}
	}
	return s, nil
}
