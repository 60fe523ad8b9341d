package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/instance"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/deadletters"
)

// Flags that run and relay share: both run an instance of a deployment unit, with different handlers.

// unitOptions are the flags of a command that runs an instance of a unit.
type unitOptions struct {
	instance.Settings
	from   arg.Start
	report *report.Report
}

// register adds the flags. Their defaults are those of the processor's options, written here so that the help shows
// them.
func (o *unitOptions) register(cmd *cobra.Command, concurrency int, concurrencyMeans string) {
	f := cmd.Flags()
	f.StringVar(&o.Source, "source", "", "`address` of the monitored container")
	f.StringVar(&o.Leases, "leases", "", "`address` of the lease container (default leases, beside the source)")
	f.BoolVar(&o.Create, "create-leases", false,
		"make the lease container, and that of --dead-letters, if there is none")
	f.StringVar(&o.Name, "name", "", "`name` of the deployment unit: processes with the same name share the work")
	f.StringVar(&o.Options.Instance, "instance", "", "`name` of this instance in the leases (default the host's)")
	f.Var(&o.from, "from",
		"where a new unit begins (default now); for an existing unit the same or none, any other is refused")
	f.IntVar(&o.Options.MaxItems, "max-items", 0, "changes in a batch, at most; 0 is as many as a page has")
	f.IntVar(&o.Options.MinLeases, "min-leases", 0, "cut partitions, so that a new unit has at least so many leases")
	f.DurationVar(&o.Options.Poll, "poll", 5*time.Second,
		"longest pause between reads of a quiet range that must be polled")
	f.DurationVar(&o.Options.Acquire, "acquire", 13*time.Second,
		"time between two rounds of sharing the leases among the instances")
	f.DurationVar(&o.Options.Renew, "renew", 17*time.Second, "time between two renewals of an idle lease")
	f.DurationVar(&o.Options.Expiration, "expiration", time.Minute,
		"how long an instance may be silent before others take its leases")
	f.DurationVar(&o.Options.Drain, "drain", 10*time.Second,
		"how long a batch in hand may go on when its lease is given away or the processor stops")
	f.IntVar(&o.Options.Concurrency, "concurrency", concurrency, concurrencyMeans)
	f.IntVar(&o.Options.OnFailure.MaxAttempts, "max-attempts", 0,
		"after so many failures of a batch look for the change that fails, and park it; 0 tries for ever")
	f.DurationVar(&o.Options.OnFailure.MaxAge, "max-age", 0,
		"the same for a change that has failed for so long, in an outage too; 0 is no limit")
	f.IntVar(&o.Options.OnFailure.MaxSetAside, "max-set-aside", 100,
		"how many partition keys of a lease may fail or hang while the others go on, however many changes are behind "+
			"them; 1 to 1000")
	f.StringVar(&o.Letters, "dead-letters", "",
		"park changes in the container of this `ADDRESS`, partitioned by "+deadletters.KeyPath+", or in a FILE of this process alone")
	f.BoolVar(&o.Options.OnFailure.HoldKeys, "hold", false,
		"park later changes of the partition key of a parked change too, so that their order is kept")
	f.BoolVar(&o.Once, "once", false, "end when all changes are handled, instead of waiting for more")
	o.report = addOutput(cmd, report.Text, report.JSON)
	accountFlags(cmd, &o.Account)
	_ = cmd.MarkFlagRequired("source") // fails only for an unknown flag
	_ = cmd.MarkFlagRequired("name")
}

// newInstance returns the instance that the flags describe.
func (o *unitOptions) newInstance(cmd *cobra.Command) (*instance.Instance, error) {
	o.Options.Start = o.from.Value
	o.Log = slog.New(o.logHandler(cmd))
	if o.report.Form != report.JSON {
		o.Say = func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), text) }
	}
	o.Exit = exitAtOnce
	return instance.New(o.Settings)
}

// logHandler logs to standard error, because standard output is for results, or for the program.
func (o *unitOptions) logHandler(cmd *cobra.Command) slog.Handler {
	level := slog.LevelWarn
	switch n, _ := cmd.Flags().GetCount(verboseFlag); { // fails only for an unknown flag
	case n > 1:
		level = slog.LevelDebug
	case n == 1:
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if o.report.Form == report.JSON {
		return slog.NewJSONHandler(cmd.ErrOrStderr(), options)
	}
	return slog.NewTextHandler(cmd.ErrOrStderr(), options)
}
