// Command go runs the emulator suite of the Go SDK, unmodified, against this server: it
// builds changefeed, serves a new store on the addresses compiled into the
// suite, runs it twice in random order with the race detector, and counts.
//
//	make conformance-go
//
// It ends with a line such as "43 passed, 0 failed", and with status 1 unless every test
// passed each time. Ports 8081 and 8903 of 127.0.0.1 must be free.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	suite     = "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	gateway   = "127.0.0.1:8081" // as the suite has it
	dedicated = "127.0.0.1:8903"

	startLimit = 10 * time.Second
	stopLimit  = 10 * time.Second
	runLimit   = 10 * time.Minute
)

func main() {
	count := flag.Int("count", 2, "how often each test runs")
	race := flag.Bool("race", true, "run the suite with the race detector")
	only := flag.String("run", "", "run the tests whose names match, not all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *count, *race, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance-go:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, count int, race bool, only string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	groups, err := emulatorTests(ctx, only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "conformance-go")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := serve(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r := runner{server: s, count: count, race: race, passes: map[string]int{}}
	return r.judge(ctx, groups)
}

// emulatorTests are the names of the tests that need a server, in groups that each have a
// process. A test that sets the SDK's global log listener has one each time, because the
// SDK does so without a lock, while clients of earlier tests may still log.
func emulatorTests(ctx context.Context, only string) (groups [][]string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", suite).Output()
	if err != nil {
		return nil, fmt.Errorf("find the suite: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "emulator_*_test.go"))
	if err != nil {
		return nil, err
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var together []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		alone := bytes.Contains(b, []byte("SetListener("))
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(b, -1) {
			switch name := string(m[1]); {
			case !match.Match(m[1]):
			case alone:
				groups = append(groups, []string{name})
			default:
				together = append(together, name)
			}
		}
	}
	if len(together) > 0 {
		groups = append(groups, together)
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("no test of %d files matches %q", len(files), only)
	}
	return groups, nil
}

// server is changefeed serve at work.
type server struct {
	cmd         *exec.Cmd
	certificate string
}

// serve builds and starts the server, and waits until it says that it listens.
func serve(ctx context.Context, dir string) (*server, error) {
	binary := filepath.Join(dir, "changefeed")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/changefeed")
	build.Dir, build.Stderr = filepath.Join("..", ".."), os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build changefeed: %w", err)
	}
	cmd := exec.CommandContext(ctx, binary, "serve", "--db", filepath.Join(dir, "store"), "--listen", gateway,
		// as the emulator that the suite is for
		"--dedicated-gateway", dedicated, "--insecure-aad", "--consistency", "Strong", "-o", "json")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start changefeed serve: %w", err)
	}
	s := &server{cmd: cmd}
	if err := s.hear(out); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// hear reads the line that the server prints when it listens.
func (s *server) hear(out io.Reader) error {
	if pipe, ok := out.(*os.File); ok {
		if err := pipe.SetReadDeadline(time.Now().Add(startLimit)); err != nil {
			return err
		}
	}
	text, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("wait %v for changefeed serve to listen: %w", startLimit, err)
	}
	var said struct {
		Certificate string `json:"certificate"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return fmt.Errorf("changefeed serve said %q: want one line of JSON: %w", text, err)
	}
	s.certificate = said.Certificate
	return nil
}

func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("changefeed serve: %w", err)
	}
	return nil
}

// event is one line of go test -json.
type event struct {
	Action, Test, Output string
}

// runner runs tests and counts how often each passed.
type runner struct {
	server *server
	count  int
	race   bool
	passes map[string]int
}

// judge runs all groups and tells how many tests passed each time.
func (r *runner) judge(ctx context.Context, groups [][]string) error {
	var errs []error
	for _, g := range groups {
		if len(g) > 1 {
			errs = append(errs, r.run(ctx, g, r.count))
			continue
		}
		for range r.count {
			errs = append(errs, r.run(ctx, g, 1))
		}
	}
	tests := slices.Sorted(slices.Values(slices.Concat(groups...)))
	failed := 0
	for _, t := range tests {
		if r.passes[t] != r.count {
			failed++
			fmt.Printf("%s passed %d of %d times\n", t, r.passes[t], r.count)
		}
	}
	fmt.Printf("%d passed, %d failed\n", len(tests)-failed, failed)
	if failed > 0 {
		errs = append(errs, errors.New("not all tests passed"))
	}
	return errors.Join(errs...)
}

// run runs tests in one process, so many times.
func (r *runner) run(ctx context.Context, tests []string, count int) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", fmt.Sprintf("-count=%d", count), "-shuffle=on",
		fmt.Sprintf("-race=%t", r.race), "-run", "^("+strings.Join(tests, "|")+")$", suite)
	cmd.Env = append(os.Environ(), "EMULATOR=1", "SSL_CERT_FILE="+r.server.certificate)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	err = r.tally(out)
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// tally counts the passes of each test and prints the output of those that fail.
func (r *runner) tally(out io.Reader) error {
	said := map[string]*strings.Builder{}
	for dec := json.NewDecoder(out); ; {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		top, _, _ := strings.Cut(e.Test, "/")
		if said[top] == nil {
			said[top] = &strings.Builder{}
		}
		switch {
		case e.Action == "output":
			said[top].WriteString(e.Output)
		case e.Test != top:
		case e.Action == "pass":
			r.passes[top]++
			said[top].Reset()
		case e.Action == "fail":
			fmt.Print(said[top])
			said[top].Reset()
		}
	}
}
