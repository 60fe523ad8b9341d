package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A mutant is killed only by a test that fails, crashes or does not end. A failed build, a missing test and an
// interrupted run are distinguished from this, because each of them would otherwise count as a kill without proving
// anything about the suite.

// The limits of a run of tests. They are generous, because a test that is late on a busy machine must not count as a
// kill.
const (
	namedLimit = 3 * time.Minute // for the tests that an entry names
	suiteLimit = 15 * time.Minute
	grace      = 20 * time.Second // for a test binary to end by itself at its limit
	mostMemory = 8 << 20          // kilobytes of address space, because a mutant may allocate without end
)

const timedOut = "panic: test timed out"

const simulation = "internal/proof/sim"

var (
	// the packages that the simulation covers
	simulated  = []string{".", "docstore", "internal/cosmosdb/leasedoc", "internal/cosmosdb/epk"}
	suiteFlags = map[string][]string{
		simulation: {"-seeds", "50"},
		"docstore": {"-rapid.shrinktime=1s", "-rapid.nofailfile"}, // the failure of a history is enough
	}
)

// The outcomes of a trial.
const (
	killed   = "killed"
	survived = "survived"
	excused  = "excused" // survived, with a reason
	fits     = "builds"  // with -build
	broken   = "broken"  // invalid: the text is not found, the build fails, or the tests do not exist
)

// result is the outcome of a mutant.
type result struct {
	Table   string  `json:"table"`
	Name    string  `json:"name"`
	Package string  `json:"package"`
	In      string  `json:"in"`
	Breaks  string  `json:"breaks"`
	Outcome string  `json:"outcome"`
	By      string  `json:"by,omitempty"`     // the test that found it
	Hung    bool    `json:"hung,omitempty"`   // found because the test did not end
	Reason  string  `json:"reason,omitempty"` // why the mutant may survive, or the fault of an entry
	Seconds float64 `json:"seconds"`
}

// trial is a mutant on its bench.
type trial struct {
	ctx context.Context
	mutant
	root, dir string
	bench     *bench // nil before the trial has a bench
	number    int    // number of the mutant in the build; 0 for a mutant alone
	onlyNamed bool
	onlyBuild bool
	limit     time.Duration // replaces the usual limits
}

// step is some tests of a package.
type step struct {
	pkg, filter string
	limit       time.Duration
}

// tryMutant runs tests over the mutant until a test fails.
func (t *trial) tryMutant(ctx context.Context) result {
	began := time.Now()
	defer func() { _ = os.RemoveAll(t.dir) }()
	r := result{Table: t.table, Name: t.name, Package: t.pkg, In: t.decl, Breaks: t.breaks, Outcome: survived}
	if err := t.runTests(ctx, &r); err != nil {
		r.Outcome, r.Reason = broken, err.Error()
	}
	r.Seconds = time.Since(began).Seconds()
	return r
}

// runTests builds the mutant and runs the tests. It builds a mutant with a reason to survive too, because its entry
// must fit the code. The first failure ends the trial, because a single failure is enough.
func (t *trial) runTests(ctx context.Context, r *result) error {
	if t.bench == nil {
		t.bench = t.ownBench()
	}
	if t.bench.fault != nil {
		return t.bench.fault
	}
	if t.onlyBuild {
		r.Outcome = fits
		return nil
	}
	if t.survives != "" { // the build has succeeded
		r.Outcome, r.Reason = excused, t.survives
		return nil
	}
	for _, s := range t.listSteps() {
		failure, err := t.runStep(ctx, s)
		if err != nil {
			return err
		}
		if failure != "" {
			r.Outcome, r.By, r.Hung = killed, failedTest(failure), strings.Contains(failure, timedOut)
			return nil
		}
	}
	return nil
}

// listSteps returns the tests that the entry names first, because they usually find the mutant within seconds, then the
// rest of the suites, the shorter suite first.
func (t *trial) listSteps() (all []step) {
	named := map[string][]string{}
	for _, b := range t.by {
		if named[b.pkg] == nil {
			all = append(all, step{pkg: b.pkg, limit: namedLimit})
		}
		named[b.pkg] = append(named[b.pkg], b.name)
	}
	exactly := func(pkg string) string { return "^(" + strings.Join(named[pkg], "|") + ")$" }
	for i := range all {
		all[i].filter = "-test.run=" + exactly(all[i].pkg)
	}
	if t.onlyNamed {
		return all
	}
	all = append(all, step{t.pkg, "-test.skip=" + exactly(t.pkg), suiteLimit})
	if slices.Contains(simulated, t.pkg) {
		all = append(all, step{simulation, "-test.skip=" + exactly(simulation), suiteLimit})
	}
	return all
}

// runStep runs a step and returns the output of a failure.
func (t *trial) runStep(ctx context.Context, s step) (failure string, err error) {
	binary, err := t.bench.testBinary(s.pkg)
	if err != nil {
		return "", err
	}
	if t.limit > 0 {
		s.limit = t.limit
	}
	timed, cancel := context.WithTimeout(ctx, s.limit+grace)
	defer cancel()
	// A shell limits its own memory and then becomes the test, so at the time limit the test itself is killed, not
	// its parent.
	args := append([]string{
		"-c", fmt.Sprintf(`ulimit -v %d 2>/dev/null; exec "$0" "$@"`, mostMemory), binary, s.filter,
		"-test.failfast", "-test.timeout=" + s.limit.String(),
	}, suiteFlags[s.pkg]...)
	cmd := exec.CommandContext(timed, "sh", args...)
	cmd.Dir = filepath.Join(t.root, s.pkg)
	// A killed test cannot clean up. Its files are on the bench, and are removed with the bench.
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", chosenBy, t.number),
		"TMPDIR="+filepath.Join(t.bench.dir, "tmp"))
	cmd.WaitDelay = grace
	text, err := cmd.CombinedOutput()
	output := string(text)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case timed.Err() != nil:
		// A test that never ends has found the mutant, because some defects show only in this way.
		return output + timedOut, nil
	case err != nil:
		return fmt.Sprintf("%s\n%v", output, err), nil
	// A renamed test matches no test, which the testing package treats as a pass. The entry would then look like a
	// survivor.
	case strings.HasPrefix(s.filter, "-test.run") && strings.Contains(output, "no tests to run"):
		return "", fmt.Errorf("no such test in %s: %s", s.pkg, s.filter)
	}
	return "", nil
}

var (
	failLine    = regexp.MustCompile(`--- FAIL: (\S+)`)
	runningTest = regexp.MustCompile(`running tests:\n\t(\S+)`)
	tracedTest  = regexp.MustCompile(`\.(Test\w+)\(`)
)

// failedTest returns the name of the first test that failed, including its subtest.
func failedTest(output string) (name string) {
	for _, m := range failLine.FindAllStringSubmatch(output, -1) {
		if name == "" || strings.HasPrefix(m[1], name+"/") {
			name = m[1]
		}
	}
	// Without a line FAIL the binary has died: by its own time limit, which lists the running tests, or by a panic,
	// whose trace contains the test.
	for _, pattern := range []*regexp.Regexp{runningTest, tracedTest} {
		if m := pattern.FindStringSubmatch(output); name == "" && m != nil {
			name = m[1]
		}
	}
	if name == "" {
		return "a crash"
	}
	return name
}
