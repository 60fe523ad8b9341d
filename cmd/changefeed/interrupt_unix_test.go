//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
)

// A second Ctrl-C ends the demo at once, and removes the directory in which the demo is still writing. A second SIGTERM
// counts as the first, because timeout(1) sends both to the same process. SIGHUP is what a closed window sends.
func TestADemoThatIsInterruptedTwiceLeavesNothing(t *testing.T) {
	t.Parallel()
	for signal, want := range map[syscall.Signal]int{
		syscall.SIGINT: exitInterrupted, syscall.SIGTERM: exitDone, syscall.SIGHUP: exitDone,
	} {
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
			if err := startHeeding(demo, signal); err != nil {
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

// startHeeding starts a command that does not ignore a signal: a command of a process under nohup(1) ignores SIGHUP.
func startHeeding(cmd *exec.Cmd, signal os.Signal) error {
	heard := make(chan os.Signal, 1)
	ossignal.Notify(heard, signal)
	defer ossignal.Stop(heard)
	return cmd.Start()
}

// nohup(1) starts a command with SIGHUP ignored, so that the command outlives its terminal.
func TestACommandUnderNohupIgnoresAClosedWindow(t *testing.T) {
	said, err := exec.Command("sh", "-c", `trap "" HUP; exec terminations`).Output()
	if want := "[terminated]\n"; string(said) != want || err != nil {
		t.Errorf("got %q, %v, want %q", said, err, want)
	}
}

// A named pipe without a writer blocks whoever opens it. The input is opened before the store, which is none here.
func TestAnInterruptEndsTheOpeningOfAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, args := range [][]string{
		{"put", "--db", "none", "--container", "c", path},
		{"import", path, "--db", "none", "--container", "c", "--rejects", "none"},
		{"query", "--db", "none", "--container", "c", "--file", path},
		{"leases", "restore", path, "--db", "none", "--name", "mailer"},
	} {
		var errs bytes.Buffer
		if code := execute(ctx, args, io.Discard, &errs); code != exitInterrupted {
			t.Errorf("%s: exit code %d, want %d: %s", args[0], code, exitInterrupted, errs.String())
		}
	}
}

// A limit of no byte in a file stands for a disk that is full.
func TestADiskWithoutRoomLeavesTheContexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	t.Setenv(contexts.FileVariable, path)
	command(t, "context", "add", "a", "--db", "d")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command("sh", "-c",
		`ulimit -f 0; trap "" XFSZ; exec changefeed context add b --db d`).CombinedOutput()
	if err == nil || !strings.Contains(string(said), "write contexts: write "+path) {
		t.Errorf("got %v, %s", err, said)
	}
	if after, err := os.ReadFile(path); string(after) != string(before) || err != nil {
		t.Errorf("the contexts are %q, %v, want %q", after, err, before)
	}
	if left, err := filepath.Glob(path + "?*"); len(left) != 0 || err != nil {
		t.Errorf("left are %v, %v", left, err)
	}
}
