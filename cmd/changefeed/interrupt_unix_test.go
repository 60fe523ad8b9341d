//go:build unix

package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A second Ctrl-C ends the demo at once, and removes the directory in which the demo is still writing. A second SIGTERM
// counts as the first, because timeout(1) sends both to the same process.
func TestADemoThatIsInterruptedTwiceLeavesNothing(t *testing.T) {
	t.Parallel()
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: exitInterrupted, syscall.SIGTERM: exitDone} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			demo := exec.Command("changefeed", "demo", "--for", "1m")
			demo.Env = append(os.Environ(), "TMPDIR="+dir)
			var said bytes.Buffer
			demo.Stderr = &said
			out, err := demo.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := demo.Start(); err != nil {
				t.Fatal(err)
			}
			sent := 0
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if text := lines.Text(); sent == 0 && strings.Contains(text, "begin to write") ||
					sent == 1 && strings.Contains(text, "stopping early") {
					sent++
					_ = demo.Process.Signal(signal) // fails if the demo has ended, which the exit code shows
				}
			}
			_ = demo.Wait() // the exit code says more
			if code := demo.ProcessState.ExitCode(); code != want || sent != 2 {
				t.Errorf("after %d signals the exit code is %d, want %d: %s", sent, code, want, said.String())
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}
