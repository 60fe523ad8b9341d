// Package bench contains the benchmarks of changefeed bench. They measure the store, the processor and the server on
// a machine. If a baseline can be measured, figures are compared with this baseline. Benchmarks in virtual time,
// whose figures are the same on every machine, are in the program in the directory virtual.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/scratch"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/spelling"
)

// Figures, and how they are measured: baseline and subject take turns, and their medians are compared. So other work
// on the machine affects both alike, and a single slow round affects neither.

// Figure is the result of a benchmark.
type Figure struct {
	Name     string   `json:"name" about:"of the benchmark"`
	Value    float64  `json:"value" about:"the figure"`
	Unit     string   `json:"unit" about:"of value and baseline"`
	Baseline *float64 `json:"baseline" about:"the figure to compare with; null if there is none"`
	Ratio    *float64 `json:"ratio" about:"value divided by baseline"`
	Detail   string   `json:"detail" about:"how the figure was measured"`

	Target string `json:"target" about:"the goal of the figure"`
	OK     bool   `json:"ok" about:"the target was reached"`
}

// ReportedAs implements [report.Value].
func (Figure) ReportedAs() string { return "figure" }

// FigureKind describes the lines of changefeed bench.
var FigureKind = report.Kind{Name: "figure", About: "The result of a benchmark: bench.", Of: Figure{}}

// Against compares the figure with a baseline.
func (f *Figure) Against(baseline float64) {
	f.Baseline, f.Ratio = new(baseline), new(f.Value/baseline)
}

// ratioOf sets the target: the figure must be at least this part of its baseline.
func (f *Figure) ratioOf(least float64) {
	f.Target, f.OK = fmt.Sprintf("ratio ≥ %g", least), *f.Ratio >= least
}

// AtMost sets the target: the figure must be at most limit.
func (f *Figure) AtMost(limit float64) {
	f.Target, f.OK = fmt.Sprintf("≤ %g %s", limit, f.Unit), f.Value <= limit
}

// A Benchmark is a measurement with a name.
type Benchmark struct {
	Name  string
	About string // the subject and its baseline, for the help
	Run   func(ctx context.Context, s *Site) (Figure, error)
}

// Names returns the names of benchmarks.
func Names(all []Benchmark) (list []string) {
	for _, b := range all {
		list = append(list, b.Name)
	}
	return list
}

// Listed returns a list of benchmarks for a help, each on a line.
func Listed(all []Benchmark) string {
	var text strings.Builder
	for _, b := range all {
		fmt.Fprintf(&text, "  %-20s  %s\n", b.Name, b.About)
	}
	return text.String()
}

// Choose returns the benchmarks with the given names, or all benchmarks if there are no names. A name that is not a
// benchmark's selects all benchmarks that begin with this name: outbox selects outbox_commit and others. An unknown
// name is a usage error, which lists the known names.
func Choose(all []Benchmark, wanted []string) ([]Benchmark, error) {
	names := Names(all)
	var chosen []string
	for _, name := range wanted {
		group := []string{name}
		if !slices.Contains(names, name) {
			group = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
				return !strings.HasPrefix(n, name+"_")
			})
		}
		if len(group) == 0 {
			text := fmt.Sprintf("there is no benchmark %q: want some of %s", name, strings.Join(names, ", "))
			if near := spelling.Nearest(name, names); len(near) > 0 {
				text = fmt.Sprintf("there is no benchmark %q: do you mean %s?", name, strings.Join(near, " or "))
			}
			return nil, usage.Error{Err: errors.New(text)}
		}
		chosen = append(chosen, group...)
	}
	// The benchmarks run in the order of all, whatever the order of the names, because neighbours share a store,
	// which is filled for the first of them.
	if len(wanted) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(b Benchmark) bool { return !slices.Contains(chosen, b.Name) }), nil
}

// A Plan says where and how benchmarks are measured.
type Plan struct {
	// the data is in a new directory below, which is removed; empty means the system's directory for temporary files
	Dir     string
	Against string         // file of another build, which becomes the baseline; see [Rivalled]
	Binary  string         // file of this build, for benchmarks that run as a whole against another build
	Load    time.Duration  // duration of the mixed load of serve_memory
	Program []string       // command of trigger_program and trigger_latency; empty is a program in Go
	Report  *report.Report // receives each figure immediately, unless it is for people
	Log     io.Writer      // receives the progress
	Exit    func()         // ends the process, after a second interrupt
}

// Rivalled returns the benchmarks that load a server in a separate process: two servers can take turns of seconds.
// For the other benchmarks, two builds take turns in running the whole benchmark.
func Rivalled() []Benchmark {
	return slices.DeleteFunc(All(), func(b Benchmark) bool { return !b.hasRival() })
}

func (b Benchmark) hasRival() bool {
	return strings.HasPrefix(b.Name, "serve_") && !slices.Contains([]string{
		"serve_follow", "serve_start",
		"serve_memory",
	}, b.Name)
}

// Measure runs benchmarks in their order. If ctx ends, the error is [ErrInterrupted].
func Measure(ctx context.Context, chosen []Benchmark, p Plan) (err error) {
	dir, err := scratch.Make(p.Dir, "changefeed-bench-", p.Exit)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, dir.Remove()) }()
	s := &Site{Plan: p, dir: dir.Path}
	defer s.close()
	var all []Figure
	rows := p.Report.Rows()
	conclude := func() error {
		if !p.Report.ForPeople() {
			return rows.Flush()
		}
		if len(all) == 0 {
			return nil
		}
		return writeFigures(p.Report.Out, all, terminal.Of(p.Report.Out).Room())
	}
	for i, b := range chosen {
		text := fmt.Sprintf("%d/%d %s: %s", i+1, len(chosen), b.Name, b.About)
		fmt.Fprintln(p.Log, terminal.Wrap(text, 0, terminal.Of(p.Log).Room(), 4))
		run := b.Run
		if p.Against != "" && !b.hasRival() {
			run = func(ctx context.Context, s *Site) (Figure, error) { return compareBuilds(ctx, s, b) }
		}
		f, err := run(ctx, s)
		if ctx.Err() != nil { // the figure of an incomplete benchmark is no measurement
			return cmp.Or(conclude(), fmt.Errorf("%w: %s is not measured, and the figures before it are whole",
				ErrInterrupted, b.Name))
		}
		if err != nil { // the figures so far are still shown
			return errors.Join(fmt.Errorf("measure %s: %w", b.Name, err), conclude())
		}
		f.Name = b.Name
		all = append(all, f)
		if !p.Report.ForPeople() {
			if err := rows.Add(f); err != nil {
				return err
			}
		}
	}
	return conclude()
}

// ErrInterrupted means that a measurement was interrupted. The figure of an incomplete measurement would be wrong.
var ErrInterrupted = errors.New("interrupted")

// A Site is the place where benchmarks run. A Site keeps the stores that several of them need.
type Site struct {
	Plan
	dir     string
	library *library
	large   *large
}

// close closes the stores; Measure removes their files.
func (s *Site) close() {
	if s.library != nil {
		s.library.close()
	}
	if s.large != nil {
		_ = s.large.db.Close() // the directory is removed next
	}
}

// reportProgress reports the progress of a benchmark.
func (s *Site) reportProgress(format string, args ...any) {
	fmt.Fprintln(s.Log, terminal.Wrap(fmt.Sprintf("    "+format, args...), 0, terminal.Of(s.Log).Room(), 6))
}

// Complain writes an error that an instance reports; instances should report none.
func (s *Site) Complain(instance string, err error) { s.reportProgress("%s: %v", instance, err) }

// median returns the middle value. A single slow round would change a mean. The number of rounds is odd, so the
// median is a measured round.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// inTurns measures two subjects in turns and returns their medians.
func (s *Site) inTurns(ctx context.Context, rounds int, unit string, a, b func() (float64, error)) (medianA,
	medianB float64, err error,
) {
	as, bs, err := s.measureInTurns(ctx, rounds, unit, a, b)
	if err != nil {
		return 0, 0, err
	}
	return median(as), median(bs), nil
}

// compareInTurns measures a server and its baseline in turns. If the baseline is another build, the ratio is the median
// of the rounds' ratios: if the machine gets slower from round to round, both sides of a round are affected alike.
func (s *Site) compareInTurns(ctx context.Context, f *Figure, rounds int, own, base func() (float64, error)) error {
	values, baselines, err := s.measureInTurns(ctx, rounds, f.Unit, own, base)
	if err != nil {
		return err
	}
	f.Value = median(values)
	f.Against(median(baselines))
	if s.Plan.Against != "" {
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = values[i] / baselines[i]
		}
		*f.Ratio = median(ratios)
	}
	return nil
}

// measureInTurns measures two subjects in turns, so other work on the machine affects both alike.
func (s *Site) measureInTurns(ctx context.Context, rounds int, unit string, a, b func() (float64, error)) (as,
	bs []float64, err error,
) {
	for n := range rounds {
		x, err := a()
		if err != nil {
			return nil, nil, err
		}
		y, err := b()
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, nil, err
		}
		as, bs = append(as, x), append(bs, y)
		s.reportProgress("round %d of %d: %s %s, baseline %s", n+1, rounds, amount(x), unit, amount(y))
	}
	return as, bs, nil
}

// crowd runs work in n goroutines, again and again until the time is over, and returns the rate per second. crowd
// fails if parent ends first. Work that has begun is finished, and its result and time are counted.
func crowd(parent context.Context, n int, d time.Duration,
	work func(ctx context.Context, worker int) error,
) (perSecond float64, err error) {
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
