package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/fleet"
	"github.com/millrace/changefeed/cmd/changefeed/internal/hostfile"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The command host: the units of a file, in one process. hosted.go makes the units, and internal/fleet runs them.

// hostOptions are the flags of host.
type hostOptions struct {
	report *report.Report
	ui     uiOptions
}

// hostCommand is the command host.
func hostCommand() *cobra.Command {
	var o hostOptions
	cmd := &cobra.Command{
		Use:     "host FILE",
		GroupID: groupFeed,
		Short:   "Run the units that a file describes, in one process",
		Long: `FILE is YAML. Each unit has a handler, which is program, webhook, functions or relay, and options with the names
of the flags of changefeed run, functions or relay. docs/host.md describes the file, and the command validate checks it.

Before anything starts, the file, the containers and the rights are checked. A unit that fails later is started again
after a pause, and the others go on. SIGHUP reads the file again: units that have changed drain and start anew, and a
file with a mistake changes nothing. SIGTERM or Ctrl-C ends all units, as with run.`,
		Example: `  changefeed validate host.yaml
  changefeed host host.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.report = addOutput(cmd, report.Text, report.JSON)
	o.ui.register(cmd)
	untilStdinFlag(cmd)
	return cmd
}

// run runs the units until they are stopped, or until all have ended by themselves.
func (o *hostOptions) run(cmd *cobra.Command, path string) (err error) {
	hangups := followHangups() // a SIGHUP during the start is for the units, too
	defer signal.Stop(hangups)
	stores := place.NewOpener(place.Settings{})
	defer func() { err = cmp.Or(err, stores.Close()) }()
	return o.ui.during(cmd, o.report, ui.Options{Name: filepath.Base(path)}, func(on *ui.UI) error {
		h := newHosting(cmd, path, o.report.Form, stores)
		h.ui = on
		return o.runUnits(cmd, h, hangups)
	})
}

// runUnits runs the units of the file.
func (o *hostOptions) runUnits(cmd *cobra.Command, h *hosting, hangups <-chan os.Signal) error {
	units, err := h.readUnits()
	if err != nil {
		return err
	}
	if err := h.checkUnits(cmd.Context(), units); err != nil {
		return err
	}
	// Without a reader, a program would end at the first write, and the batch would be redelivered for ever.
	ctx, stop := terminal.WhileRead(cmd.Context())
	defer stop()
	log := slog.New(logHandler(cmd, o.report, slog.LevelWarn))
	running := fleet.New(log)
	h.ui.Expect(len(units))
	running.Exchange(ctx, h.fleetMembers(units))
	defer h.reloadAt(ctx, hangups, running, log)()
	if err = running.Wait(); errors.Is(context.Cause(ctx), syscall.EPIPE) && err == nil {
		return errUnread
	}
	return err
}

// followHangups returns the signals SIGHUP from now on, which end other commands. If the process is to ignore SIGHUP,
// as under nohup, this stays so.
func followHangups() chan os.Signal {
	hangups := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Reset(syscall.SIGHUP)
		signal.Notify(hangups, syscall.SIGHUP)
	}
	return hangups
}

// reloadAt reads the file again at each signal, until the caller calls stop.
func (h *hosting) reloadAt(ctx context.Context, hangups <-chan os.Signal, running *fleet.Fleet, log *slog.Logger) (
	stop func(),
) {
	over := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-hangups:
				h.reloadFile(ctx, running, log)
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		waiting.Wait()
	}
}

// reloadFile exchanges the running units for those of the file. If the file has a mistake, the units go on as they are.
func (h *hosting) reloadFile(ctx context.Context, running *fleet.Fleet, log *slog.Logger) {
	units, err := h.readUnits()
	if err == nil {
		err = h.checkUnits(ctx, units)
	}
	if err != nil {
		log.Error("file is not taken over: the units go on as they are", "file", h.path, "error", place.Plain(err))
		return
	}
	log.Info("file is taken over", "file", h.path)
	running.Exchange(ctx, h.fleetMembers(units))
}

// validateCommand is the command validate.
func validateCommand() *cobra.Command {
	var isOffline, isSchema bool
	var r *report.Report
	cmd := &cobra.Command{
		Use:     "validate [FILE]",
		GroupID: groupFeed,
		Short:   "Check the file of host, the containers and the rights",
		Long: `All mistakes of the file are shown, each with the line. Then the containers are opened and the rights are
tested, as the command host does before it starts. Nothing is made and no batch is handled. --offline checks the file
alone.

With --schema, the JSON Schema of the file is written, for editors.`,
		Example: `  changefeed validate host.yaml
  changefeed validate --schema > host.schema.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case isSchema && (len(args) > 0 || isOffline):
				return usage.Error{Err: errors.New("--schema is set beside FILE or --offline: want it alone")}
			case isSchema:
				schema, err := hostfile.Schema(hostKinds())
				if err == nil {
					_, err = cmd.OutOrStdout().Write(schema)
				}
				return err
			case len(args) == 0:
				return usage.Error{Err: errors.New("FILE is missing: want a file of units in YAML")}
			}
			return validate(cmd, args[0], isOffline, r)
		},
	}
	cmd.Flags().BoolVar(&isOffline, "offline", false, "check the file, and not the containers and rights")
	cmd.Flags().BoolVar(&isSchema, "schema", false, "write the JSON Schema of the file")
	r = outputRows(cmd, hostedKind)
	return cmd
}

// hosted is a unit of a file, for people and programs.
type hosted struct {
	Unit    string       `json:"unit" about:"the name of the unit"`
	Line    int          `json:"line" about:"of the unit in the file"`
	Handler string       `json:"handler" about:"program, webhook, functions or relay, with the value"`
	Source  string       `json:"source" about:"the address of the monitored container; of an app, all monitored containers"`
	OK      bool         `json:"ok" about:"the unit can start"`
	Error   report.Known `json:"error" about:"why the unit cannot run, with the place in the file; null if the unit can"`
}

// ReportedAs implements [report.Value].
func (hosted) ReportedAs() string { return "hosted_unit" }

var hostedKind = report.Kind{Name: "hosted_unit", About: "A unit of the file of a host: validate.", Of: hosted{}}

// validate checks a file, and reports its units.
func validate(cmd *cobra.Command, path string, isOffline bool, r *report.Report) (err error) {
	stores := place.NewOpener(place.Settings{})
	defer func() { err = cmp.Or(err, stores.Close()) }()
	h := newHosting(cmd, path, report.Text, stores)
	units, err := h.readUnits()
	if err != nil {
		return err
	}
	var failures []error
	var table [][]string
	rows := r.Rows()
	for _, u := range units {
		row := hosted{u.name, u.Line, u.describeHandler(), u.prepared.source, true, ""}
		verdict := "ok"
		if !isOffline {
			if err := h.checkUnit(cmd.Context(), u); err != nil {
				failures = append(failures, err)
				row.OK, row.Error, verdict = false, report.Known(place.Plain(err)), "FAIL"
			}
		}
		table = append(table, []string{verdict, fmt.Sprintf("%s:%d", path, u.Line), u.name, row.Handler, row.Source})
		if !r.ForPeople() {
			if err := rows.Add(row); err != nil {
				return err
			}
		}
	}
	if r.ForPeople() {
		text := terminal.Table(append([][]string{{"", "PLACE", "UNIT", "HANDLER", "SOURCE"}}, table...),
			terminal.Of(r.Out).Room())
		_, err = fmt.Fprint(r.Out, text)
	} else {
		err = rows.Flush()
	}
	return cmp.Or(err, errors.Join(failures...))
}
