package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// job is a test whose amount of work can be set by flags.
type job struct {
	name string
	dir  string // directory of the package
	test string // name of the test or fuzz target
	unit string // unit of goal and size
	goal int
	size int // size of a piece; 0 means all of the rest, for a load that must be a single piece
	// again means that a failure repeats at once, because a fuzz target keeps its failing input. The job must then
	// wait until the code has changed.
	again bool
	args  func(done, n int) []string
}

const queriesOfSeed = 6 // queries per seed in the test of resumed queries

// counted are the jobs other than fuzz targets. A piece continues with the next seeds, because the same seeds would
// find the same failures.
var counted = []job{
	{
		name: "sim", dir: "internal/proof/sim", test: "TestPromisesHoldUnderFaults", unit: "seeds", goal: 10_000,
		size: 100,
		args: func(done, n int) []string { return flags("seeds", n, "from", done+1) },
	},
	{
		name: "crash", dir: "docstore", test: "TestAcknowledgedWritesSurviveKill", unit: "kills", goal: 500, size: 25,
		args: func(_, n int) []string { return flags("crash.rounds", n) },
	},
	{
		name: "damage", dir: "docstore", test: "TestNoDamageIsSilent", unit: "damages", goal: 10_000, size: 500,
		args: func(done, n int) []string { return flags("damage.n", n, "damage.from", done+1) },
	},
	{
		name: "resume", dir: "cosmosrest", test: "TestResumedQueriesGiveEachRowOnce", unit: "queries", goal: 30_000,
		size: 1200,
		args: func(done, n int) []string { return flags("resume.queries", n, "resume.seed", done/queriesOfSeed+1) },
	},
	{
		name: "model", dir: "docstore", test: "TestStoreEqualsModel", unit: "histories", goal: 20_000, size: 500,
		args: func(_, n int) []string { return flags("model.runs", n) },
	},
	{
		name: "linear", dir: "cosmosrest", test: "TestConditionalWritesAreLinearizable", unit: "histories",
		goal: 10_000, size: 1000,
		args: func(done, n int) []string { return flags("linear.seeds", n, "linear.from", done) },
	},
	{
		name: "differ", dir: "cosmosrest/internal/sql", test: "TestQueriesAgreeWithTheObviousEvaluator",
		unit: "queries", goal: 200_000, size: 5000,
		args: func(done, n int) []string { return flags("differ.runs", n, "differ.seed", done+1) },
	},
	{
		name: "load", dir: "tools/long", test: "TestAMixedLoadMissesNothing", unit: "minutes", goal: 30,
		args: func(_, n int) []string {
			return []string{"-load.for", fmt.Sprintf("%dm", n), "-load.rate", "1000", "-test.v"}
		},
	},
}

// strangers are the fuzz targets whose input comes from outside. They share half an hour. Each other target has two
// minutes, because its input comes from our own code.
var strangers = []string{
	"FuzzServer", "FuzzUnmarshal", "FuzzPosition", "FuzzCredential", "FuzzParse", "FuzzDocument", "FuzzPatch",
	"FuzzQuery", "FuzzReaders", "FuzzPage", "FuzzContinuation", "FuzzBatch", "FuzzOperations", "FuzzFeed", "FuzzRecord",
	"FuzzLogFile",
}

const (
	strangersTime = 30 * 60 // seconds
	otherTime     = 2 * 60
	fuzzPiece     = 60
)

// flags returns pairs of names and values as flags.
func flags(pairs ...any) (args []string) {
	for i := 0; i < len(pairs); i += 2 {
		args = append(args, fmt.Sprintf("-%v=%v", pairs[i], pairs[i+1]))
	}
	return args
}

// allJobs returns the counted jobs and a job for every fuzz target below root, so a new target needs no entry.
func allJobs(root string) ([]job, error) {
	targets, err := fuzzTargets(root)
	if err != nil {
		return nil, err
	}
	jobs := slices.Clone(counted)
	for _, t := range targets {
		goal := otherTime
		if slices.Contains(strangers, t.test) {
			goal = max(otherTime, (strangersTime+len(strangers)-1)/len(strangers))
		}
		jobs = append(jobs, job{
			name: "fuzz-" + strings.ReplaceAll(t.dir, "/", "-") + "-" + t.test, dir: t.dir, test: t.test,
			unit: "seconds", goal: goal, size: fuzzPiece, again: true,
			args: func(_, n int) []string { return flags("test.fuzztime", strconv.Itoa(n)+"s") },
		})
	}
	return jobs, nil
}

type fuzzTarget struct{ dir, test string }

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// fuzzTargets finds the fuzz targets in the source files, so a new target need not be listed.
func fuzzTargets(root string) (found []fuzzTarget, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
			dir, _ := filepath.Rel(root, filepath.Dir(path)) // cannot fail: path is below root
			found = append(found, fuzzTarget{filepath.ToSlash(dir), string(m[1])})
		}
		return err
	})
	return found, err
}

// piece returns how much work to do next. If the unit is a time, the result is at most the time left.
func (j job) piece(done int, left time.Duration) int {
	n := j.goal - done
	if j.size > 0 {
		n = min(n, j.size)
	}
	// The result is at least a single unit. Otherwise the job would be chosen repeatedly for the rest of the time.
	if left > 0 && j.unit == "minutes" {
		n = max(1, min(n, int(left/time.Minute)))
	}
	if left > 0 && j.unit == "seconds" {
		n = max(1, min(n, int(left/time.Second)))
	}
	return n
}

func (j job) fuzzes() bool { return strings.HasPrefix(j.test, "Fuzz") }

// builder builds each test binary once per run.
type builder struct {
	dir   string
	built map[string]bool
}

// binary returns the file of a job. A fuzz target has its own binary, because that binary records which code an input
// reaches.
func (b *builder) binary(j job) string {
	name := strings.ReplaceAll(j.dir, "/", "-")
	if j.fuzzes() {
		name += "-fuzz"
	}
	return filepath.Join(b.dir, name)
}

func (b *builder) build(ctx context.Context, j job) error {
	file := b.binary(j)
	if b.built[file] {
		return nil
	}
	args := []string{"test", "-c", "-o", file}
	if j.fuzzes() {
		args = append(args, "-fuzz", "^"+j.test+"$")
	}
	if out, err := exec.CommandContext(ctx, "go", append(args, "./"+j.dir)...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", j.dir, err, out)
	}
	b.built[file] = true
	return nil
}

// command returns the command that runs a piece, in the directory of the job's package. The tests have no timeout,
// because the time of a piece is not known.
func (b *builder) command(ctx context.Context, j job, done, n int, corpus string) *exec.Cmd {
	args := []string{"-test.timeout=0", "-test.paniconexit0"}
	if j.fuzzes() {
		args = append(args, "-test.run=^$", "-test.fuzz=^"+j.test+"$", "-test.fuzzcachedir="+filepath.Join(corpus,
			j.dir))
	} else {
		args = append(args, "-test.run=^"+j.test+"$")
	}
	c := exec.CommandContext(ctx, b.binary(j), append(args, j.args(done, n)...)...)
	c.Dir = j.dir
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	return c
}
