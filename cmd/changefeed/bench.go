package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/usage"
)

// figure is what one benchmark found.
type figure struct {
	Name     string   `json:"name"`
	Value    float64  `json:"value"`
	Unit     string   `json:"unit"`
	Baseline *float64 `json:"baseline"` // what it is compared with, in the same unit
	Ratio    *float64 `json:"ratio"`    // value to baseline
	Detail   string   `json:"detail"`

	Target string `json:"target"`
	OK     bool   `json:"ok"` // the target is met
}

// against compares a figure with what others reach.
func (f *figure) against(baseline float64) {
	f.Baseline, f.Ratio = new(baseline), new(f.Value/baseline)
}

// ratioOf wants the figure to be at least so large a part of its baseline.
func (f *figure) ratioOf(least float64) {
	f.Target, f.OK = fmt.Sprintf("ratio ≥ %g", least), *f.Ratio >= least
}

// atMost wants the figure to be no larger than a limit.
func (f *figure) atMost(limit float64) {
	f.Target, f.OK = fmt.Sprintf("≤ %g %s", limit, f.Unit), f.Value <= limit
}

// benchmark is one measurement, and what to know of it before it runs.
type benchmark struct {
	name, what string
	run        func(ctx context.Context, s *site) (figure, error)
}

// benchmarks lists all in the order in which they run. Those that follow each other may
// share what the site keeps for them.
func benchmarks() []benchmark {
	return []benchmark{
		{"durable_overwrite", "durable overwrites of 1 KB documents by 16 writers; against a plain file with the same grouping and fsync", durableOverwrite},
		{"feed_read", "reading a feed of 200,000 documents from the beginning; against a bare scan of the engine", feedRead},
		{"processor_backlog", "a processor with 4 leases works off the same 200,000; against feed_read", processorBacklog},
		{"write_to_handler", "from the acknowledgement of a write to the handler, at 200 writes a second", writeToHandler},
		{"rebalance_100", "100 leases, from 1 instance to 2; in virtual time, against the service's own processors", rebalance100},
		{"rebalance_1000", "1,000 leases, from 4 instances to 6; in virtual time, against the service's own processors", rebalance1000},
		{"takeover_300", "one of 4 instances with 300 leases dies without a goodbye; in virtual time, against the service's own processors", takeover300},
		{"takeover_2", "the same with one survivor", takeover2},
		{"create_1000", "1,000 leases created in a container that takes 100 writes a second; in virtual time, against those writes alone", create1000},
		{"idle_requests", "lease store requests for each idle lease and minute; in virtual time, against the service's own processors", idleRequests},
		{"idle_1000", "heap and processor time of 1,000 idle leases", idle1000},
		{"serve_upsert", "upserts over HTTP, durable, with group commit; this and the next against net/http echoing as many bytes", served("serve-upsert", serveDocs, 8000, echoBody, upsertOne)},
		{"serve_upsert_nosync", "the same, acknowledged before they are on the disk", served("serve-nosync", serveDocs, 14_000, echoBody, upsertOne, "--no-sync")},
		{"serve_read", "point reads over HTTP", served("serve-read", serveDocs, 17_000, echoPage, readOne)},
		{"serve_query", "queries by id and partition key over HTTP, 20,000 documents", served("serve-query", serveDocs, 8000, echoPage, queryOne)},
		{"serve_query_200k", "the same, 200,000 documents", served("serve-query-200k", serveMore, 8000, echoPage, queryOne)},
		{"serve_batch", "atomic batches of 10 upserts over HTTP, durable", served("serve-batch", serveDocs, 2500, echoBatch, batchOfTen)},
		{"serve_feed", "a change feed of 100,000 documents over HTTP from the beginning, pages of 1,000", serveFeed},
		{"serve_follow", "from the acknowledgement of a write to a reader that waits (long poll), at 200 writes a second", serveFollow},
		{"attack_connections", "point reads over HTTP while 10,000 connections without a key are held; against the same without an attack", besieged("attack-connections", attackConnections)},
		{"attack_queries", "the same while 16 connections send hostile queries and pages of 4 MB are read slowly", besieged("attack-queries", attackQueries)},
		{"serve_start", "from the start of a server to its first answer", serveStart},
		{"serve_memory", "the server's memory with 20,000 documents, after a load", serveMemory},
	}
}

// benchOptions are the flags of bench.
type benchOptions struct {
	dir    string
	output *choice
}

func benchCommand() *cobra.Command {
	var o benchOptions
	var names strings.Builder
	for _, b := range benchmarks() {
		fmt.Fprintf(&names, "  %-19s  %s\n", b.name, b.what)
	}
	cmd := &cobra.Command{
		Use:   "bench [NAME...]",
		Short: "Measure the store and the processor on this machine",
		Long: `Measure the store and the processor on this machine.

Where a figure has a baseline that can be measured here, both are measured in turns in
the same run and their medians compared; the other baselines are the published
algorithms of the service's own processors. Each takes up to a minute. The
benchmarks:

` + names.String() + `
Those in virtual time run the real code with its default intervals under a clock that
jumps over every wait, so an hour takes seconds, and their figures are the same on
every machine.`,
		Example: `  changefeed bench
  changefeed bench feed_read processor_backlog -o json`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	for _, b := range benchmarks() {
		cmd.ValidArgs = append(cmd.ValidArgs, b.name)
	}
	cmd.Flags().StringVarP(&o.dir, "dir", "d", "", "`directory` for the data, on the disk to measure; it is removed again (default the system's)")
	o.output = output(cmd)
	return cmd
}

func (o *benchOptions) run(cmd *cobra.Command, names []string) error {
	chosen := benchmarks()
	for _, name := range names {
		if !slices.Contains(cmd.ValidArgs, name) {
			return usage.Error{Err: fmt.Errorf("there is no benchmark %q: want some of %s", name, strings.Join(cmd.ValidArgs, ", "))}
		}
	}
	if len(names) > 0 {
		chosen = slices.DeleteFunc(chosen, func(b benchmark) bool { return !slices.Contains(names, b.name) })
	}
	dir, err := os.MkdirTemp(o.dir, "changefeed-bench-")
	if err != nil {
		return fmt.Errorf("make directory for the data: %w", err)
	}
	defer os.RemoveAll(dir)
	s := &site{dir: dir, log: cmd.ErrOrStderr()}
	defer s.close()
	return o.measure(cmd, s, chosen)
}

func (o *benchOptions) measure(cmd *cobra.Command, s *site, chosen []benchmark) error {
	var all []figure
	for i, b := range chosen {
		text := fmt.Sprintf("%d/%d %s: %s", i+1, len(chosen), b.name, b.what)
		fmt.Fprintln(s.log, terminal.Wrap(text, 0, terminal.Of(s.log).Room(), 4))
		f, err := b.run(cmd.Context(), s)
		if cmd.Context().Err() != nil { // what came out is no measurement
			return cmp.Or(o.conclude(cmd, all), errInterrupted)
		}
		if err != nil {
			return fmt.Errorf("measure %s: %w", b.name, err)
		}
		f.Name = b.name
		all = append(all, f)
		if o.output.value == "json" {
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(f); err != nil {
				return err
			}
		}
	}
	return o.conclude(cmd, all)
}

var errInterrupted = errors.New("interrupted")

// conclude writes the table, unless each figure was written when it was there.
func (o *benchOptions) conclude(cmd *cobra.Command, all []figure) error {
	if o.output.value == "json" || len(all) == 0 {
		return nil
	}
	return writeFigures(cmd.OutOrStdout(), all, terminal.Of(cmd.OutOrStdout()).Room())
}

// writeFigures writes a table with a bar for each figure. What there is no room for is
// left out of it: the bars, then the targets, which the lines below have then.
func writeFigures(w io.Writer, all []figure, width int) error {
	table, targets := figureTable(all, true, true), true
	tooWide := func() bool {
		return width > 0 && slices.ContainsFunc(strings.Split(table, "\n"), func(line string) bool { return utf8.RuneCountInString(line) > width })
	}
	if tooWide() {
		table = figureTable(all, false, true)
	}
	if tooWide() {
		table, targets = figureTable(all, false, false), false
	}
	if _, err := fmt.Fprintln(w, table); err != nil {
		return err
	}
	for _, f := range all {
		text := f.Name + ": " + f.Detail
		if !targets {
			text += "; target " + f.Target
		}
		if _, err := fmt.Fprintln(w, terminal.Wrap(text, 0, width, 2)); err != nil {
			return err
		}
	}
	return nil
}

func figureTable(all []figure, bars, targets bool) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, value, baseline, ratio, bar, target, verdict string) {
		cells := []string{name, value, baseline, ratio}
		if bars {
			cells = append(cells, bar)
		}
		if targets {
			cells = append(cells, target)
		}
		fmt.Fprintln(t, strings.Join(append(cells, verdict), "\t"))
	}
	row("NAME", "VALUE", "BASELINE", "RATIO", "", "TARGET", "")
	for _, f := range all {
		baseline, ratio, bar, verdict := "-", "-", "", "ok"
		if f.Baseline != nil {
			baseline, ratio, bar = amount(*f.Baseline), fmt.Sprintf("%.3g", *f.Ratio), barOf(*f.Ratio)
		}
		if !f.OK {
			verdict = "MISSED"
		}
		row(f.Name, amount(f.Value)+" "+f.Unit, baseline, ratio, bar, f.Target, verdict)
	}
	_ = t.Flush() // writes to memory
	return b.String()
}

const figureBar = 20 // the width of a bar for a figure as large as its baseline

// barOf draws a figure beside its baseline, which is the whole width.
func barOf(ratio float64) string {
	full := min(figureBar, max(0, int(ratio*figureBar+0.5)))
	return strings.Repeat("█", full) + strings.Repeat("░", figureBar-full)
}

// amount writes a number with about four digits.
func amount(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.2fM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// site is where benchmarks work. It keeps what several of them need.
type site struct {
	dir     string
	log     io.Writer
	library *library
	feed    float64 // the rate of feed_read, when that has run
}

func (s *site) close() {
	if s.library != nil {
		s.library.close()
	}
}

// say tells how a benchmark gets on.
func (s *site) say(format string, args ...any) {
	fmt.Fprintln(s.log, terminal.Wrap(fmt.Sprintf("    "+format, args...), 0, terminal.Of(s.log).Room(), 6))
}

// complain tells what an instance reports, which none should.
func (s *site) complain(instance string, err error) { s.say("%s: %v", instance, err) }

// median is the middle one of some values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// inTurns measures two things in turns, so that what else the machine does hits both
// alike, and returns the medians.
func (s *site) inTurns(ctx context.Context, rounds int, unit string, a, b func() (float64, error)) (medianA, medianB float64, err error) {
	var as, bs []float64
	for n := range rounds {
		x, err := a()
		if err != nil {
			return 0, 0, err
		}
		y, err := b()
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return 0, 0, err
		}
		as, bs = append(as, x), append(bs, y)
		s.say("round %d of %d: %s %s, baseline %s", n+1, rounds, amount(x), unit, amount(y))
	}
	return median(as), median(bs), nil
}

// crowd runs n goroutines until they return or a time is over, and counts what they did,
// unless parent ends first.
func crowd(parent context.Context, n int, d time.Duration, work func(ctx context.Context, worker int) error) (perSecond float64, err error) {
	ctx, cancel := context.WithTimeout(parent, d)
	defer cancel()
	counts, errs := make([]int, n), make([]error, n)
	var working sync.WaitGroup
	begun := time.Now()
	for i := range n {
		working.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = work(context.WithoutCancel(ctx), i)
				counts[i]++
			}
		})
	}
	working.Wait()
	if parent.Err() != nil {
		return 0, context.Cause(parent)
	}
	spent := time.Since(begun)
	total := 0
	for i, count := range counts {
		if errs[i] != nil {
			return 0, errs[i]
		}
		total += count
	}
	return float64(total) / spent.Seconds(), nil
}
