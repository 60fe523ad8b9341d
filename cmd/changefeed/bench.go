package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/bench"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	dir, against, program string
	load                  time.Duration
	report                *report.Report
}

// benchCommand is the command bench. The benchmarks themselves are in cmd/changefeed/internal/bench.
func benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:     "bench [NAME...]",
		GroupID: groupTools,
		Short:   "Measure the store and the processor on this machine",
		Long: `If a figure has a baseline that can be measured here, both are measured in turns and their medians are
compared. Most benchmarks take up to a minute. changefeed help benchmarks describes them:

` + strings.Join(bench.Names(bench.All()), ", ") + `

With --against, another build of changefeed is the baseline. The servers of both builds are measured in turns of
seconds. Other benchmarks are run as a whole by both builds in turns, which takes minutes.`,
		Example: `  changefeed bench
  changefeed bench feed_read processor_backlog -o json
  changefeed bench serve_upsert_nosync --against ./changefeed-before
  changefeed bench serve_memory --load 10m`,
		ValidArgs: bench.Names(bench.All()),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := o.chooseBenchmarks(args)
			if err != nil {
				return err
			}
			if err := o.checkFlags(chosen); err != nil {
				return err
			}
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			return bench.Measure(cmd.Context(), chosen, bench.Plan{
				Dir: o.dir, Against: o.against, Load: o.load, Binary: binary, Program: strings.Fields(o.program),
				Report: o.report, Log: cmd.ErrOrStderr(), Exit: exitAtOnce,
			})
		},
	}
	cmd.Flags().StringVarP(&o.dir, "dir", "d", "",
		"`directory` for data on the disk to measure (default the system's)")
	cmd.Flags().StringVar(&o.against, "against", "",
		"binary `file` of another build; without NAME, its servers")
	cmd.Flags().DurationVar(&o.load, "load", 0,
		"how long serve_memory has requests of all kinds at once")
	cmd.Flags().StringVar(&o.program, "program", "", "`command` of a program for trigger_*, in place of the Go program")
	o.report = outputRows(cmd, bench.FigureKind)
	return cmd
}

// checkFlags refuses another build that cannot be started, and a load that no chosen benchmark has, before a store is
// filled.
func (o *benchOptions) checkFlags(chosen []bench.Benchmark) error {
	switch {
	case o.load < 0:
		return usage.Flag("load", terminal.Exact(o.load), "a positive duration")
	case o.load > 0 && !slices.Contains(bench.Names(chosen), "serve_memory"):
		return usage.Flag("load", terminal.Exact(o.load), "serve_memory among the benchmarks, because no other has a load")
	case o.program != "" && (o.against != "" || !bench.HavePrograms(chosen)):
		return usage.Flag("program", o.program, "trigger_program or trigger_latency among the benchmarks, and no --against")
	}
	if o.against == "" {
		return nil
	}
	path, err := exec.LookPath(o.against)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return usage.Missing{Err: fmt.Errorf("--against is %s: there is no such file: want the binary of another "+
			"build of changefeed", o.against)}
	case err != nil:
		return usage.Flag("against", o.against, "the binary of another build of changefeed")
	}
	o.against = path
	return nil
}

// chooseBenchmarks returns the benchmarks with the given names. Without names, these are all benchmarks or, if another
// build is measured, those that measure that build as quickly as this build.
func (o *benchOptions) chooseBenchmarks(names []string) ([]bench.Benchmark, error) {
	if o.against != "" && len(names) == 0 {
		return bench.Rivalled(), nil
	}
	return bench.Choose(bench.All(), names)
}

// echoCommand serves the baseline of the server's benchmarks in a separate process, so its processor time does not
// count as that of the load generator. The command is hidden, because only benchmarks use it.
func echoCommand() *cobra.Command {
	return &cobra.Command{
		Use:    bench.EchoName,
		Short:  "Serve the baseline of the benchmarks",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return bench.ServeEcho(cmd.Context(), cmd.OutOrStdout()) },
	}
}
