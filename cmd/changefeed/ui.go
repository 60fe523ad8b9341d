package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// uiFlag is the flag with the address of the dashboard, and uiWriteFlag the flag that lets people act there.
const (
	uiFlag      = "ui"
	uiWriteFlag = "ui-write"
)

// uiOptions are the flags of a command that has a dashboard.
type uiOptions struct {
	address string
	write   bool
}

// register adds the flags.
func (o *uiOptions) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.address, uiFlag, "", "serve the dashboard, health and metrics at `host:port`")
	cmd.Flags().BoolVar(&o.write, uiWriteFlag, false,
		"allow steering and editing at --ui without a key")
}

// during serves the dashboard while a command runs. Without the flag there is none, and on is nil.
func (o *uiOptions) during(cmd *cobra.Command, r *report.Report, shown ui.Options, run func(on *ui.UI) error) (
	err error,
) {
	if o.write && o.address == "" {
		return usage.Error{Err: errors.New("--ui-write is set without --ui: want the address of the dashboard too, such as " +
			"--ui 127.0.0.1:8090")}
	}
	shown.Address, shown.Write, shown.Version = o.address, o.write, thisBuild().short()
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
