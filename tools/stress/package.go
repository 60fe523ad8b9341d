package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slowTest is the duration from which a test runs in fewer rounds.
const slowTest = 1.0 // seconds

// testPackage is a package with tests.
type testPackage struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
}

// list returns the packages with tests that match patterns, in the order of the go tool.
func list(ctx context.Context, patterns []string) ([]testPackage, error) {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	out, err := output(exec.CommandContext(ctx, "go",
		append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...))
	if err != nil {
		return nil, err
	}
	var found []testPackage
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p testPackage
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			found = append(found, p)
		}
	}
	return found, nil
}

// output runs a command. Its error includes the command's output, because only the output explains a failed build.
func output(c *exec.Cmd) ([]byte, error) {
	out, err := c.Output()
	if ended := new(exec.ExitError); errors.As(err, &ended) {
		return nil, fmt.Errorf("%s: %w\n%s%s", c, err, out, ended.Stderr)
	}
	return out, err
}

// stress builds the tests of a package, runs them once without loops and then in rounds while the loops run. The
// tests are built once, because go test would build in each round while the loops run.
func (p testPackage) stress(ctx context.Context, o options, binary string) (*report, error) {
	if _, err := output(exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, p.ImportPath)); err != nil {
		return nil, err
	}
	r := &report{name: p.ImportPath, failed: map[string]int{}}
	slow := ""
	if o.slow < o.rounds {
		out, err := p.run(ctx, o, binary, "-test.v")
		if err != nil {
			r.note(ctx, "in peace", out, err)
		}
		slow = r.slow(out)
	}
	defer busy(o.loops)()
	for r.rounds < o.rounds && ctx.Err() == nil {
		skip := ""
		if r.rounds >= o.slow {
			skip = slow
		}
		began := time.Now()
		out, err := p.run(ctx, o, binary, "-test.skip", skip)
		if ctx.Err() != nil {
			break
		}
		r.rounds++
		fmt.Printf("%s round %d: %.0fs\n", p.ImportPath, r.rounds, time.Since(began).Seconds())
		if err != nil {
			r.note(ctx, fmt.Sprintf("round %d", r.rounds), out, err)
		}
	}
	return r, nil
}

// run runs the test binary in the directory of its package, in random order. On an interrupt the binary ends by
// itself, and removes its temporary directories.
func (p testPackage) run(ctx context.Context, o options, binary string, args ...string) ([]byte, error) {
	// As in go test: without paniconexit0, a test that ends the process with 0 would pass.
	args = append(args, "-test.run", o.run, "-test.shuffle=on", "-test.paniconexit0", "-test.timeout", o.limit.String())
	c := exec.CommandContext(ctx, binary, args...)
	c.Dir = p.Dir
	c.Env = append(os.Environ(), "PWD="+p.Dir)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	return c.CombinedOutput()
}

// report counts the failures of a package.
type report struct {
	name      string
	slowTests int
	rounds    int
	failed    map[string]int // by test; for a run that died, by its last words
}

var (
	timing  = regexp.MustCompile(`(?m)^--- (?:PASS|FAIL): (\S+) \((\d+\.\d+)s\)$`)
	failing = regexp.MustCompile(`(?m)^--- FAIL: (\S+) `)
	dying   = regexp.MustCompile(`(?m)^(?:panic|fatal error|SIG[A-Z]+).*$`)
)

// slow returns a pattern that matches the long tests in the output of a run.
func (r *report) slow(out []byte) string {
	var names []string
	for _, m := range timing.FindAllSubmatch(out, -1) {
		seconds, _ := strconv.ParseFloat(string(m[2]), 64) // cannot fail: the pattern matches only digits
		if seconds >= slowTest {
			names = append(names, string(m[1]))
		}
	}
	r.slowTests = len(names)
	if len(names) == 0 {
		return ""
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// note counts the failures of a run and prints its output, which is stored nowhere else.
func (r *report) note(ctx context.Context, when string, out []byte, err error) {
	if ctx.Err() != nil {
		return
	}
	// A run that died names no test. Its last words are used instead, so two deaths with the same cause count as the
	// same kind.
	found := failing.FindAllSubmatch(out, -1)
	for _, m := range found {
		r.failed[string(m[1])]++
	}
	if dead := dying.Find(out); dead != nil || len(found) == 0 {
		r.failed[strings.TrimSpace(fmt.Sprintf("%v %s", err, dead))]++
	}
	fmt.Printf("== %s, %s: %v\n%s\n", r.name, when, err, out)
}

func (r *report) failures() (n int) {
	for _, k := range r.failed {
		n += k
	}
	return n
}

func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-50s %2d tests of a second or more, %2d rounds, %d failures", r.name, r.slowTests, r.rounds,
		r.failures())
	for _, name := range slices.Sorted(maps.Keys(r.failed)) {
		fmt.Fprintf(&b, "\n    %d × %s", r.failed[name], name)
	}
	return b.String()
}
