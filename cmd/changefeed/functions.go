package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/functions"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/trigger/function"
)

// The command functions: an Azure Functions app with a custom handler. trigger/function reads the app and keeps its
// program, and cmd/changefeed/internal/functions runs the processors.

// functionsOptions are the flags of functions.
type functionsOptions struct {
	unitOptions
	only  []string
	check bool
	grace time.Duration
}

// functionsCommand is the command functions.
func functionsCommand() *cobra.Command {
	cmd := (&functionsOptions{}).command()
	untilStdinFlag(cmd)
	return cmd
}

// command implements [unitFlags].
func (o *functionsOptions) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "functions DIR [flags]",
		GroupID: groupFeed,
		Short:   "Run the Cosmos DB triggers of an Azure Functions app",
		Long: `DIR is an Azure Functions app with a custom handler: DIR has host.json, and a directory with
function.json for each function. Each function with a cosmosDBTrigger runs as a processor, on the leases that the
function has in Azure, and all share a single program, the custom handler. Settings of the app are environment
variables, as in Azure; local.settings.json adds to them. Each setting is obeyed or refused. docs/functions.md has the
list, and the differences.

Functions with other triggers do not run. A failed batch comes again; with --dead-letters, a change that has failed
maxRetryCount + 1 times (or --max-attempts) is parked. A single function that cannot run ends all.`,
		Example: `  changefeed functions . --check
  changefeed functions /srv/app --function Copies \
    --dead-letters cosmos:shop/letters`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	o.registerShared(cmd)
	f.StringArrayVar(&o.only, "function", nil, "`name` of a function to run; may be repeated (default all)")
	f.BoolVar(&o.check, "check", false, "show the plan, and run nothing")
	f.DurationVar(&o.grace, "grace", function.DefaultGrace, "SIGTERM to SIGKILL; less than --drain")
	return cmd
}

// run runs the functions until they are stopped.
func (o *functionsOptions) run(cmd *cobra.Command, dir string) error {
	app, err := o.readApp(dir)
	if err != nil {
		return o.explainMistakes(dir, err)
	}
	for _, notice := range app.Notices {
		o.report.Notice("%s", notice)
	}
	switch err := functions.CheckAny(app, o.only...); {
	case err != nil:
		return err
	case o.check:
		return o.showPlans(functions.Plans(app))
	}
	o.setVoice(cmd)
	s := o.appSettings(cmd)
	return o.ui.during(cmd, o.report, ui.Options{Name: filepath.Base(dir)}, func(on *ui.UI) error {
		s.UI = on
		on.Expect(len(functions.Plans(app)))
		return functions.Run(cmd.Context(), app, s)
	})
}

// readApp checks the flags, and reads an app.
func (o *functionsOptions) readApp(dir string) (*function.App, error) {
	switch {
	case dir == "": // as from an empty variable: this would mean the working directory
		return nil, usage.Error{Err: errors.New("DIR is empty: want the directory of an Azure Functions app")}
	case o.Options.Drain <= 0:
		return nil, usage.Flag("drain", terminal.Exact(o.Options.Drain), "a positive duration")
	case o.grace <= 0 || o.grace >= o.Options.Drain:
		return nil, usage.Flag("grace", terminal.Exact(o.grace), fmt.Sprintf("more than 0s and less than --drain (%s)",
			terminal.Exact(o.Options.Drain)))
	}
	app, err := function.ReadApp(dir, function.ReadOptions{Environ: os.Environ(), Only: o.only})
	if err == nil && o.Letters != "" && !place.IsAddress(o.Letters) && len(app.Functions) > 1 {
		err = usage.Flag("dead-letters", o.Letters, fmt.Sprintf("the address of a container, because %s run, and a file "+
			"is for one; or --function", terminal.Count(len(app.Functions), "function")))
	}
	return app, err
}

// appSettings returns the settings of an app in the flags.
func (o *functionsOptions) appSettings(cmd *cobra.Command) functions.Settings {
	return functions.Settings{
		Options: o.Options, Grace: o.grace, Letters: o.Letters, Create: o.Create, Once: o.Once, Account: o.Account,
		Log: o.Log, FunctionLog: slog.New(logHandler(cmd, o.report, slog.LevelInfo)), Say: o.Say, Exit: o.Exit,
	}
}

// prepare implements [unitFlags]: the unit of a host is a whole app.
func (o *functionsOptions) prepare(cmd *cobra.Command, args []string) (*prepared, error) {
	app, err := o.readApp(args[0])
	if err != nil {
		return nil, wrongValues(functions.Mistakes(err))
	}
	o.setVoice(cmd)
	s := o.appSettings(cmd)
	p := &prepared{name: filepath.Base(args[0]), once: o.Once, files: filesOf(app)}
	p.told, p.tell = app.Notices, o.report.Notice
	for _, plan := range functions.Plans(app) {
		p.places = append(p.places, plan.Unit())
		p.source = strings.TrimPrefix(p.source+", "+plan.Source.Database+"/"+plan.Source.Container, ", ")
	}
	p.settle = func(in surroundings) { s.Stores, s.Signals, s.Exit = in.stores, in.signals, in.exit }
	p.show = func(on *ui.UI) { s.UI = on }
	p.check = func(ctx context.Context) error { return functions.Check(ctx, app, s) }
	p.run = func(ctx context.Context) error { return functions.Run(ctx, app, s) }
	return p, nil
}

// filesOf returns a text that changes with every change of the files of an app, without readable keys.
func filesOf(app *function.App) string {
	plans, _ := json.Marshal(functions.Plans(app)) // they always marshal
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(plans, "%q", app.Environ)))
}

// explainMistakes writes the mistakes of an app, a line each.
func (o *functionsOptions) explainMistakes(dir string, err error) error {
	mistakes := functions.Mistakes(err)
	for _, mistake := range mistakes {
		if len(mistakes) == 1 {
			return mistake
		}
		o.report.Warn("%v", mistake)
	}
	return usage.Error{Err: fmt.Errorf("%s: %d settings cannot be obeyed", dir, len(mistakes))}
}

// showPlans writes the plans of an app's functions.
func (o *functionsOptions) showPlans(plans []functions.Plan) error {
	rows := o.report.Rows()
	for _, p := range plans {
		var err error
		if o.report.ForPeople() {
			err = p.WriteText(o.report.Out)
		} else {
			err = rows.Add(p)
		}
		if err != nil {
			return err
		}
	}
	if o.report.ForPeople() {
		return nil
	}
	return rows.Flush()
}
