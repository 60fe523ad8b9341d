// Virtual measures the processor in virtual time: how long instances wait for leases, and how many requests idle
// leases cost.
//
//	go run ./cmd/changefeed/internal/bench/virtual                         # all
//	go run ./cmd/changefeed/internal/bench/virtual rebalance_100 -o json
//
// The real code runs with its default intervals under a clock that jumps over every wait. So an hour takes seconds,
// and the figures are the same on every machine. The clock is that of Go's tests, which the released binary must not
// link, so these are not benchmarks of changefeed bench. The baselines are the published algorithms of the service's
// own processors.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/millrace/changefeed/cmd/changefeed/internal/bench"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// benchmarks returns all benchmarks in the order in which they run.
func benchmarks() []bench.Benchmark {
	return []bench.Benchmark{
		{
			Name:  "rebalance_100",
			About: "100 leases, from 1 instance to 2; in virtual time, against the service's own processors",
			Run:   rebalance100,
		},
		{
			Name:  "rebalance_1000",
			About: "1,000 leases, from 4 instances to 6; in virtual time, against the service's own processors",
			Run:   rebalance1000,
		},
		{
			Name: "takeover_300",
			About: "one of 4 instances with 300 leases dies without a goodbye; in virtual time, against the " +
				"service's own processors", Run: takeover300,
		},
		{Name: "takeover_2", About: "the same with one survivor", Run: takeover2},
		{
			Name: "create_1000",
			About: "1,000 leases created in a container that takes 100 writes a second; in virtual time, against " +
				"those writes alone", Run: create1000,
		},
		{
			Name: "idle_requests",
			About: "lease store requests for each idle lease and minute; in virtual time, against the service's own " +
				"processors", Run: idleRequests,
		},
	}
}

// run measures the benchmarks that a command line names.
func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := pflag.NewFlagSet("virtual", pflag.ContinueOnError)
	flags.SetOutput(log)
	flags.Usage = func() {
		fmt.Fprintf(log, "usage: virtual [NAME...] [-o text|json]\n\n%s\n%s", bench.Listed(benchmarks()),
			flags.FlagUsages())
	}
	form := flags.StringP("output", "o", "text", "form of the output: text or json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *form != "text" && *form != "json" {
		return usage.Flag("output", *form, "text or json")
	}
	chosen, err := bench.Choose(benchmarks(), flags.Args())
	if err != nil {
		return err
	}
	return bench.Measure(ctx, chosen, bench.Plan{
		Report: report.New(report.Form(*form), out), Log: log, Exit: func() { os.Exit(1) },
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "virtual:", err)
		os.Exit(1)
	}
}
