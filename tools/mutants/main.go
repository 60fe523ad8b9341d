// Mutants plants defects, each in a separate trial, and reports which of them the tests find. A test suite that no
// defect can fail proves nothing, and only planting defects shows which suites are such.
//
// The tables contain the mutants. A mutant names a declaration, quotes some of its lines, gives the lines that
// replace them, and describes the damage to a user. The compiler gets a mutant as an overlay, so the work tree stays
// unchanged. The tests that the entry names run first, then the package's other tests, then the simulation. If the
// build fails, this is a fault of the table, not a kill.
//
//	go run ./tools/mutants                        # all
//	go run ./tools/mutants -table root            # one table
//	go run ./tools/mutants -by checkpoint-lost    # one mutant, only the tests that its entry names
//	go run ./tools/mutants -part 3/10             # every tenth, beginning with the fourth
//	go run ./tools/mutants -build                 # whether all entries fit the code and build; no test runs
//
// The exit code is 1 if a mutant survives without a reason, or if a table has a fault.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// tables is the directory of the tables, below the top of the module.
const tables = "tools/mutants/tables"

// options are the flags.
type options struct {
	table, part, output string
	jobs                int
	onlyNamed           bool
	onlyBuild           bool
	limit               time.Duration
	names               []string
	root                string // the top directory of the module
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var o options
	flag.StringVar(&o.table, "table", "", "only the mutants of this `table`")
	flag.StringVar(&o.part, "part", "", "only a part, `K/N`: every N-th mutant, counted from K, which is below N")
	flag.StringVar(&o.output, "o", "text", "`text` or json, an object a line")
	flag.IntVar(&o.jobs, "j", 2, "how `many` at a time")
	flag.BoolVar(&o.onlyNamed, "by", false, "run only the tests that the entries name")
	flag.BoolVar(&o.onlyBuild, "build", false, "build the mutants, and run no tests")
	flag.DurationVar(&o.limit, "limit", 0,
		"the `time` that a run of tests may take, instead of 3m for named tests and 15m for suites")
	flag.Parse()
	o.names = flag.Args()
	clean, err := o.tryChosen(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	if !clean {
		os.Exit(1)
	}
}

// tryChosen tries the chosen mutants, and reports whether all are killed or excused.
func (o options) tryChosen(ctx context.Context, w io.Writer) (clean bool, err error) {
	if o.root == "" {
		if o.root, err = top(); err != nil {
			return false, err
		}
	}
	all, err := load(filepath.Join(o.root, tables), o.table)
	if err != nil {
		return false, err
	}
	chosen, err := o.chooseMutants(all)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Results are printed as they come, because a run of all mutants takes hours. All trials are prepared before the
	// first runs, because only then the shared builds are known.
	p := printer{w: w, json: o.output == "json", of: len(chosen), count: map[string]int{}}
	o.tryAll(ctx, o.prepareTrials(ctx, chosen, dir), p.printResult)
	if !p.json {
		fmt.Fprintln(w, p.formatSummary())
	}
	return p.count[survived]+p.count[broken] == 0 && ctx.Err() == nil, ctx.Err()
}

// chooseMutants returns the named mutants, or a part of all mutants. Parts interleave, because neighbours in a table
// take similar times, so every part takes about the same time.
func (o options) chooseMutants(all []mutant) (chosen []mutant, err error) {
	for _, name := range o.names {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.name == name }) {
			return nil, fmt.Errorf("no mutant %s", name)
		}
	}
	first, every := 0, 1
	if o.part != "" {
		if _, err := fmt.Sscanf(o.part, "%d/%d", &first, &every); err != nil || first < 0 || first >= every {
			return nil, fmt.Errorf("no part: %q", o.part)
		}
	}
	if len(o.names) > 0 {
		all = slices.DeleteFunc(all, func(m mutant) bool { return !slices.Contains(o.names, m.name) })
	}
	for i := first; i < len(all); i += every {
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// tryAll runs several trials at a time and reports the results in turn.
func (o options) tryAll(ctx context.Context, trials []*trial, report func(result)) {
	var (
		workers sync.WaitGroup
		next    atomic.Int64
		one     sync.Mutex
	)
	for range o.jobs {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(trials) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				r := trials[i].tryMutant(ctx)
				// An interrupted trial has no result: such a trial has neither found the mutant nor let it pass.
				if ctx.Err() == nil {
					one.Lock()
					report(r)
					one.Unlock()
				}
			}
		})
	}
	workers.Wait()
}

// printer writes results as they come, and counts them for the last line.
type printer struct {
	w     io.Writer
	json  bool
	of    int
	done  int
	count map[string]int
}

// printResult writes and counts a result.
func (p *printer) printResult(r result) {
	p.done++
	p.count[r.Outcome]++
	if p.json {
		text, _ := json.Marshal(r)
		fmt.Fprintf(p.w, "%s\n", text)
		return
	}
	outcome := r.Outcome
	switch {
	case outcome == fits:
		return
	case r.Hung:
		outcome = "killed  by the hang of " + r.By
	case r.By != "":
		outcome = "killed  by " + r.By
	case outcome == survived:
		outcome = "SURVIVED in " + r.In
	}
	fmt.Fprintf(p.w, "%*d/%d %s  %.1fs  %s/%s: %s\n", len(strconv.Itoa(p.of)), p.done, p.of, outcome, r.Seconds,
		r.Table, r.Name, r.Breaks)
	if r.Reason != "" {
		fmt.Fprintf(p.w, "\t%s\n", strings.ReplaceAll(r.Reason, "\n", "\n\t"))
	}
}

// formatSummary returns the last line.
func (p *printer) formatSummary() string {
	if n := p.count[fits]; n > 0 {
		return fmt.Sprintf("%d build, %d broken", n, p.count[broken])
	}
	line := fmt.Sprintf("%d killed, %d survived", p.count[killed], p.count[survived]+p.count[excused])
	if n := p.count[excused]; n > 0 {
		line += fmt.Sprintf(" (%d with a reason)", n)
	}
	if n := p.count[broken]; n > 0 {
		line += fmt.Sprintf(", %d broken", n)
	}
	return line
}

// top returns the directory of go.mod, at or above the present directory, so the command can be run from a package
// too.
func top() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = up
	}
	return "", err
}
