package fleettest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Pair is the recipe in two processes, which are killed and replaced.
type Pair struct {
	*testing.T
	between int // bytes
	Args    []string
	Running []*exec.Cmd
	Said    []*bytes.Buffer
	printed atomic.Int64 // bytes of output
}

// StartPair starts two processes of the recipe with arguments. Between two kills they write at least so many bytes, at
// random.
func StartPair(t *testing.T, between int, args ...string) *Pair {
	t.Helper()
	f := &Pair{T: t, between: between, Args: args}
	f.Start()
	f.Start()
	return f
}

// Start starts one more process.
func (f *Pair) Start() {
	f.Helper()
	cmd, said := exec.CommandContext(f.Context(), os.Args[0], f.Args...), &bytes.Buffer{}
	cmd.Env = append(os.Environ(), asRecipe+"=1")
	cmd.Stderr, cmd.Stdout = said, f
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	f.Running, f.Said = append(f.Running, cmd), append(f.Said, said)
}

// Kill kills the older process at a random moment after more output of it, and starts another process.
func (f *Pair) Kill() {
	f.Helper()
	f.await(rand.IntN(f.between))
	cmd := f.Running[0]
	if err := cmd.Process.Kill(); err != nil {
		f.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		f.Fatalf("the process ended before it was killed: %v\n%s", err, f.Said[0])
	}
	f.Running, f.Said = f.Running[1:], f.Said[1:]
	f.Start()
}

// Stop ends the processes in good order.
func (f *Pair) Stop() {
	f.Helper()
	for i, cmd := range f.Running {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			f.Error(err)
		}
		// A process that is still opening its parts ends with an error.
		if err := cmd.Wait(); err != nil && !strings.Contains(f.Said[i].String(), "interrupt signal received") {
			f.Errorf("%v\n%s", err, f.Said[i])
		}
	}
	f.Running, f.Said = nil, nil
}

// Until waits until a condition holds.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); pause(t.Context(), 5*time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("after 30 s: not %s", what)
		}
	}
}

// Write counts the output of the processes.
func (f *Pair) Write(p []byte) (int, error) {
	f.printed.Add(int64(len(p)))
	return len(p), nil
}

// await waits for more output of the processes: they work.
func (f *Pair) await(more int) {
	f.Helper()
	enough := f.printed.Load() + int64(more)
	Until(f.T, "more output", func() bool { return f.printed.Load() > enough })
}
