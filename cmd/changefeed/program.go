package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/trigger/contract"
	"github.com/millrace/changefeed/trigger/contract/contracttest"
)

// The command program: tools for authors of programs that speak the contract of run --long-lived.

// programCommand is the command program.
func programCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "program",
		GroupID: groupTools,
		Short:   "Test programs and libraries that handle batches",
		Long:    `A program of run --long-lived, or a library for another language, speaks the contract that docs/program.md describes.`,
		Example: `  changefeed program test -- node steered.mjs`,
		Args:    func(cmd *cobra.Command, args []string) error { return unknown(cmd, args) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(programTestCommand(), programSteeredCommand())
	return cmd
}

// programTest are the flags of program test.
type programTest struct {
	options contracttest.Options
	report  *report.Report
}

// programTestCommand is the command program test.
func programTestCommand() *cobra.Command {
	var o programTest
	cmd := &cobra.Command{
		Use:   "test [flags] -- COMMAND [ARG...]",
		Short: "Test whether a program keeps the contract of run --long-lived",
		Long: `The suite plays the processor: it starts the program anew for each case, sends batches, and compares the
answers. The documents of the batches are instructions that the program must obey: docs/program.md has the list. A
library for another language is complete when a program with that library passes.

A line for each case: ok, FAIL with the reason, or skip. If a case fails, the exit code is 5.`,
		Example: `  changefeed program test -- node steered.mjs
  changefeed program test --case "keeps the order of a lease" -v -- ./steered`,
		Args: func(cmd *cobra.Command, args []string) error { return programArgs(cmd, args, false) },
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.options.Only, "case", nil, "`name` of a case to run; may be repeated (default all)")
	f.DurationVar(&o.options.Patience, "timeout", 10*time.Second, "how long each step may take, such as a start")
	o.report = output(cmd)
	return cmd
}

// run runs the suite.
func (o *programTest) run(cmd *cobra.Command, command []string) error {
	if o.options.Patience <= 0 {
		return usage.Flag("timeout", terminal.Exact(o.options.Patience), "more than 0, such as 10s")
	}
	for _, name := range o.options.Only {
		if names := contracttest.Names(); !slices.Contains(names, name) {
			return usage.Flag("case", strconv.Quote(name), "the name of a case, such as "+strconv.Quote(names[0]))
		}
	}
	if n, _ := cmd.Flags().GetCount(verboseFlag); n > 0 {
		o.options.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	}
	rows := o.report.Rows()
	var unwritten error
	total := 0
	failed, err := contracttest.Test(cmd.Context(), command, o.options, func(r contracttest.Result) {
		total++
		if o.report.ForPeople() {
			text := terminal.Wrap(terminal.Harmless(r.String()), 0, terminal.Of(o.report.Out).Room(), len("FAIL "))
			_, err := fmt.Fprintln(o.report.Out, text)
			unwritten = errors.Join(unwritten, err)
			return
		}
		unwritten = errors.Join(unwritten, rows.Add(caseOf(r)))
	})
	switch {
	case err != nil:
		return wrongCommand(command, err)
	case unwritten != nil:
		return unwritten
	case failed > 0:
		return usage.Found{Err: fmt.Errorf("%s of %d failed", terminal.Count(failed, "case"), total)}
	}
	return nil
}

// programCase is the result of a case.
type programCase struct {
	Name    string  `json:"name" about:"of the case"`
	Verdict string  `json:"verdict" about:"ok, fail or skip"`
	Reason  *string `json:"reason" about:"why the case has failed or was skipped"`
	Seconds float64 `json:"seconds" about:"with the start of the program"`
}

// ReportedAs implements [report.Value].
func (programCase) ReportedAs() string { return "program_case" }

// caseOf returns the result of a case for programs.
func caseOf(r contracttest.Result) programCase {
	c := programCase{Name: r.Name, Verdict: "ok", Seconds: r.Took.Seconds()}
	switch {
	case r.Err != nil:
		text := r.Err.Error()
		c.Verdict, c.Reason = "fail", &text
	case r.Skipped != "":
		c.Verdict, c.Reason = "skip", &r.Skipped
	}
	return c
}

// programSteeredCommand is a program of the contract in Go, which the tests and benchmarks start.
func programSteeredCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "steered",
		Short:  "A program that passes the suite",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, out, err := contract.Pipes()
			if err != nil {
				return usage.Error{Err: err}
			}
			printLine := func(text string) { fmt.Fprintln(cmd.OutOrStdout(), text) }
			handler := contracttest.Handler(os.Exit, printLine)
			return contract.Serve(cmd.Context(), in, out, handler, handler.WithAbilities(contract.ProgramOptions{
				Client: "go " + thisBuild().Version, Batches: 64, Heartbeat: 5 * time.Second,
			}))
		},
	}
}

var programKind = report.Kind{
	Name: "program_case", About: "A case of the suite for programs: program test.", Of: programCase{},
}
