package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const kills = 20

// isProgram is the environment variable that makes the test binary the program.
const isProgram = "RECIPE_IS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(isProgram) == "" {
		os.Exit(m.Run())
	}
	main()
}

// fleet is the program in two processes, which are killed and replaced.
type fleet struct {
	*testing.T
	args    []string
	running []*exec.Cmd
	said    []*bytes.Buffer
}

func newFleet(t *testing.T, args ...string) *fleet {
	t.Helper()
	f := &fleet{T: t, args: args}
	f.start()
	f.start()
	return f
}

func (f *fleet) start() {
	f.Helper()
	cmd, said := exec.CommandContext(f.Context(), os.Args[0], f.args...), &bytes.Buffer{}
	cmd.Env = append(os.Environ(), isProgram+"=1")
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	f.running, f.said = append(f.running, cmd), append(f.said, said)
}

// kill kills the older process at a random moment while the lines of a unit grow, and starts another process.
func (f *fleet) kill(dir, unit string) {
	f.Helper()
	enough := size(f.T, dir, unit) + int64(rand.IntN(1500))
	until(f.T, "enough is handled", func() bool { return size(f.T, dir, unit) > enough })
	cmd := f.running[0]
	if err := cmd.Process.Kill(); err != nil {
		f.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		f.Fatalf("the process ended before it was killed: %v\n%s", err, f.said[0])
	}
	f.running, f.said = f.running[1:], f.said[1:]
	f.start()
}

// stop ends the processes in good order.
func (f *fleet) stop() {
	f.Helper()
	for i, cmd := range f.running {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			f.Error(err)
		}
		// A process that is still opening its parts ends with an error.
		if err := cmd.Wait(); err != nil && !strings.Contains(f.said[i].String(), "interrupt signal received") {
			f.Errorf("%v\n%s", err, f.said[i])
		}
	}
	f.running, f.said = nil, nil
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("after 30 s: not %s", what)
		}
	}
}

// handled reads the lines of a unit, without what came again.
func handled(t *testing.T, dir, unit string) (lines []string, again int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, unit+".txt"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !seen[line] {
			lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), unit+" "))
		} else {
			again++
		}
		seen[line] = true
	}
	return lines, again
}

// size returns how much a unit has written.
func size(t *testing.T, dir, unit string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, unit+".txt"))
	if err != nil {
		return 0
	}
	return info.Size()
}
