// Command long runs longer versions of the tests in go test: simulations, kills, damages, models, fuzz targets and a
// mixed load. A run continues the previous run, because state, corpora and log are kept in a directory.
//
//	go run ./tools/long [-for 20m] [-dir .long] [JOB…]
//	go run ./tools/long -summary
//
// A job is done in pieces. The next piece belongs to the job with the smallest part of its goal done, so an
// interrupted run has done some work of every job. You may shorten the name of a job: fuzz means all fuzz targets.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	limit := flag.Duration("for", 0, "stop after this time; 0 runs all jobs to their ends")
	dir := flag.String("dir", ".long", "where state, corpora and log are kept")
	summary := flag.Bool("summary", false, "only print what has been run so far")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := newRunner(*dir, os.Stdout)
	if err == nil && !*summary {
		err = r.run(ctx, *limit, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "long:", err)
		os.Exit(2)
	}
	fmt.Print(r.state.summary(r.jobs))
	if r.failed {
		os.Exit(1)
	}
}

// runner runs pieces of jobs and records them.
type runner struct {
	dir    string // absolute
	out    io.Writer
	jobs   []job
	state  *state
	failed bool
}

func newRunner(dir string, out io.Writer) (*runner, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	jobs, err := allJobs(".")
	if err != nil {
		return nil, err
	}
	s, err := loadState(dir)
	return &runner{dir: dir, out: out, jobs: jobs, state: s}, err
}

// run runs pieces until all chosen jobs are done or the time is over. A failure ends its job only if the failure
// would repeat at once. Other jobs continue with other seeds, which may show another failure.
func (r *runner) run(ctx context.Context, limit time.Duration, names []string) error {
	jobs := chosen(r.jobs, names)
	if len(jobs) == 0 {
		return fmt.Errorf("no job is called %s", strings.Join(names, " or "))
	}
	b := &builder{dir: filepath.Join(r.dir, "bin"), built: map[string]bool{}}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	end := time.Now().Add(limit)
	for ctx.Err() == nil && (limit == 0 || time.Now().Before(end)) {
		jobs = slices.DeleteFunc(jobs, func(j job) bool { return r.state.Jobs[j.name].Done >= j.goal })
		if len(jobs) == 0 {
			return nil
		}
		left := time.Duration(0)
		if limit > 0 {
			left = time.Until(end)
		}
		j := r.state.next(jobs)
		ok, err := r.piece(ctx, b, j, left)
		if err != nil {
			return err
		}
		if !ok && j.again {
			jobs = slices.DeleteFunc(jobs, func(other job) bool { return other.name == j.name })
		}
	}
	return nil
}

// piece runs a piece of a job and reports whether that succeeded. An interrupted piece does not count, because its
// progress is unknown.
func (r *runner) piece(ctx context.Context, b *builder, j job, left time.Duration) (bool, error) {
	done := r.state.Jobs[j.name].Done
	n := j.piece(done, left)
	if err := b.build(ctx, j); err != nil {
		return false, cmp.Or(context.Cause(ctx), err)
	}
	began := time.Now()
	out, err := b.command(ctx, j, done, n, filepath.Join(r.dir, "corpus")).CombinedOutput()
	if ctx.Err() != nil {
		fmt.Fprintf(r.out, "%s: interrupted, this piece does not count\n", j.name)
		return true, nil
	}
	took := time.Since(began)
	file := filepath.Join(r.dir, "output-"+j.name+".txt") // of the last successful piece
	if err != nil {
		r.failed = true
		file = filepath.Join(r.dir, fmt.Sprintf("failure-%s-%d.txt", j.name, done+1))
		fmt.Fprintf(r.out, "%s: %v; what it said is in %s\n", j.name, err, file)
	}
	line := r.state.note(j, n, took, err)
	fmt.Fprintln(r.out, line)
	return err == nil, errors.Join(os.WriteFile(file, out, 0o644), r.state.save(r.dir, line))
}

// chosen returns the jobs whose names begin with one of names, or all jobs if there are no names.
func chosen(jobs []job, names []string) []job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j job) bool {
		return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool {
			return strings.HasPrefix(j.name, name)
		})
	})
}
