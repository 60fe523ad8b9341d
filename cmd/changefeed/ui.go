package main

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
)

// uiFlag is the flag with the address of the dashboard.
const uiFlag = "ui"

// uiOptions is the flag of a command that has a dashboard.
type uiOptions struct{ address string }

// register adds the flag.
func (o *uiOptions) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.address, uiFlag, "", "serve the dashboard, health and metrics at `host:port`")
}

// during serves the dashboard while a command runs. Without the flag there is none, and on is nil.
func (o *uiOptions) during(cmd *cobra.Command, r *report.Report, shown ui.Options, run func(on *ui.UI) error) (
	err error,
) {
	shown.Address, shown.Version = o.address, thisBuild().short()
	shown.Log = slog.New(logHandler(cmd, r, slog.LevelWarn))
	on, err := ui.Open(cmd.Context(), shown)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, on.Close(context.WithoutCancel(cmd.Context()))) }()
	if on != nil {
		r.Notice("dashboard at %s", on.URL())
	}
	return run(on)
}
