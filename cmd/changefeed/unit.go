package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/instance"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
)

// Flags that run and relay share: both run an instance of a deployment unit, with different handlers.

// unitOptions are the flags of a command that runs an instance of a unit.
type unitOptions struct {
	instance.Settings
	from   arg.Start
	report *report.Report
	ui     uiOptions
	secret string // signs the requests to a webhook; empty means the secret of the environment
}

// unitFlags are the flags of a command that runs an instance of a unit. The command host reads them from a file.
type unitFlags interface {
	command() *cobra.Command
	// prepare checks the flags and the arguments of cmd, the result of command. prepare opens nothing.
	prepare(cmd *cobra.Command, args []string) (*prepared, error)
	unit() *unitOptions
}

// prepared is a unit, or an app of several units, whose settings are checked. Nothing is open yet.
type prepared struct {
	one    *instance.Instance // nil for an app
	name   string             // for people
	source string             // the monitored containers, for people
	places []string           // of the units: a host runs each of them once
	files  string             // content of an app's files; empty without files
	told   []string           // notices for the user about these files
	tell   func(format string, args ...any)
	once   bool
	settle func(in surroundings) // before check and run, if the process is a host
	show   func(on *ui.UI)       // before run
	check  func(ctx context.Context) error
	run    runner
}

// runner runs a unit until ctx ends.
type runner func(ctx context.Context) error

// surroundings are shared by all units of a host.
type surroundings struct {
	stores  *place.Opener
	signals []os.Signal
	exit    func()
}

// preparedOf returns the unit of an instance, without the runner.
func preparedOf(i *instance.Instance) *prepared {
	return &prepared{
		one: i, name: i.Name, source: i.Settings.Source, once: i.Once, check: i.Check,
		places: []string{i.Place()},
		show:   func(on *ui.UI) { i.UI = on },
		settle: func(in surroundings) {
			i.Stores, i.Signals, i.Exit = in.stores, in.signals, in.exit
			say := i.Say
			i.Say = func(text string) { say("unit " + i.Name + ": " + text) }
		},
	}
}

// unit implements [unitFlags].
func (o *unitOptions) unit() *unitOptions { return o }

// register adds the flags. Their defaults are those of the processor's options, written here so that the help shows
// them.
func (o *unitOptions) register(cmd *cobra.Command, concurrency int, concurrencyMeans string) {
	o.registerShared(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Source, "source", "", "`address` of the monitored container")
	f.StringVar(&o.Leases, "leases", "", "`address` of the lease container (default leases)")
	f.StringVar(&o.Name, "name", "", "`name` of the unit")
	f.StringVar(&o.Options.Variant, "variant", "", "`name` and version of the handler, which instances compare")
	f.Var(&o.from, "from", "where a new unit begins; also how long ago, as 15m (default beginning)")
	f.IntVar(&o.Options.MaxItems, "batch-size", 0, "changes in a batch, at most; 0 is a whole page")
	f.IntVar(&o.Options.MinLeases, "min-leases", 0, "least number of leases of the unit")
	f.BoolVar(&o.Options.ShareByLoad, "share-by-load", false, "share leases by their loads, not by their number")
	f.DurationVar(&o.Options.Poll, "poll", 5*time.Second, "longest pause between reads")
	f.DurationVar(&o.Options.Acquire, "acquire", 13*time.Second, "time between rounds of sharing leases")
	f.DurationVar(&o.Options.Renew, "renew", 17*time.Second, "time between renewals of idle leases")
	f.DurationVar(&o.Options.Expiration, "expiration", time.Minute,
		"silence after which others take leases")
	f.IntVar(&o.Options.Concurrency, "concurrency", concurrency, concurrencyMeans)
	_ = cmd.MarkFlagRequired("source") // fails only for an unknown flag
	_ = cmd.MarkFlagRequired("name")
}

// registerShared adds the flags that functions has too, where files of the app say the rest.
func (o *unitOptions) registerShared(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Create, "create-leases", false, "make the lease and letter containers if missing")
	f.StringVar(&o.Options.Instance, "instance", "", "`name` of this instance (default host and process)")
	f.IntVar(&o.Options.Weight, "weight", 1, "share of leases, beside other instances")
	f.DurationVar(&o.Options.Drain, "drain", 10*time.Second, "time for a batch in hand at the end")
	f.IntVar(&o.Options.OnFailure.MaxAttempts, "max-attempts", 0,
		"park a change that failed this often; 0 is never")
	f.DurationVar(&o.Options.OnFailure.MaxAge, "max-age", 0,
		"park a change that failed for this long; 0 is never")
	f.IntVar(&o.Options.OnFailure.MaxSetAside, "max-set-aside", 100,
		"failing keys of a lease beside others")
	f.StringVar(&o.Letters, "dead-letters", "", "park changes in the container of this `address or file`")
	f.BoolVar(&o.Options.OnFailure.HoldKeys, "hold", false, "park later changes of a parked change's key too")
	f.BoolVar(&o.Once, "once", false, "end when all changes are handled")
	o.report = addOutput(cmd, report.Text, report.JSON)
	o.ui.register(cmd)
	accountFlags(cmd, &o.Account)
}

// newInstance returns the instance that the flags describe.
func (o *unitOptions) newInstance(cmd *cobra.Command) (*instance.Instance, error) {
	o.Options.Start = o.from.Value
	o.setVoice(cmd)
	return instance.New(o.Settings)
}

// setVoice sets how the instance speaks and ends.
func (o *unitOptions) setVoice(cmd *cobra.Command) {
	o.Log = slog.New(logHandler(cmd, o.report, slog.LevelWarn))
	if o.report.Form != report.JSON {
		o.Say = func(text string) {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), terminal.Harmless(text))
		}
	}
	o.Exit = exitAtOnce
}

// logHandler logs to standard error, because standard output is for results, or for the program. The level is lower if
// the user has asked for more.
func logHandler(cmd *cobra.Command, r *report.Report, level slog.Level) slog.Handler {
	switch n, _ := cmd.Flags().GetCount(verboseFlag); { // fails only for an unknown flag
	case n > 1:
		level = slog.LevelDebug
	case n == 1:
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: withoutSecrets}
	if r.Form == report.JSON {
		return slog.NewJSONHandler(cmd.ErrOrStderr(), options)
	}
	return slog.NewTextHandler(cmd.ErrOrStderr(), options)
}

// withoutSecrets removes passwords and the like from the attributes of a log line, such as an error with the address of
// a broker. The message itself may be a line of the user's program.
func withoutSecrets(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.MessageKey {
		return a
	}
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(terminal.WithoutSecrets(v))
	case error:
		a.Value = slog.StringValue(terminal.WithoutSecrets(v.Error()))
	}
	return a
}
