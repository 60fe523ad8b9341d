//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestASecondInterruptEndsAllAtOnce has a program that ignores signals, and something that
// it has started: both have the output open as long as they live.
func TestASecondInterruptEndsAllAtOnce(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, generated(1), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/outcode")
	run := exec.Command("changefeed", "run", "--source", "docstore:"+dir+"#orders", "--name", "mailer", "--create-leases",
		"--from", "beginning", "--drain", "2m", "--grace", "1m", "--", "sh", "-c", "trap '' INT TERM; sleep 300 & echo begun; wait; sleep 300")
	output, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Process.Kill() }) // has ended, unless the test failed
	if _, err := io.ReadFull(output, make([]byte, len("begun\n"))); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for _, want := range []string{
		"changefeed run: ending: the batch of -FF has 2m0s to finish (--drain); Ctrl-C again ends at once",
		"changefeed run: ended at once; its leases are free in 1m0s, and the batches of -FF come again",
	} {
		if err := run.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("said %q, want %q", lines.Text(), want)
		}
	}
	if rest, err := io.ReadAll(output); err != nil || len(rest) > 0 { // ends when nobody has it open
		t.Errorf("got %q, %v, want the end of the output", rest, err)
	}
	exit, ok := errors.AsType[*exec.ExitError](run.Wait())
	if !ok || exit.ExitCode() != exitInterrupted {
		t.Errorf("got %v, want exit code %d", exit, exitInterrupted)
	}
}

// TestABatchThatIsCutIsTold at the end of a run that a Ctrl-C has ended.
func TestABatchThatIsCutIsTold(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, generated(1), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/outcode")
	run := exec.Command("changefeed", "run", "--source", "docstore:"+dir+"#orders", "--name", "mailer", "--create-leases",
		"--from", "beginning", "--drain", "200ms", "--grace", "100ms", "--", "sh", "-c", "echo begun; exec sleep 300")
	output, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	run.Stderr = &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(output, make([]byte, len("begun\n"))); err != nil {
		t.Fatal(err)
	}
	if err := run.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err != nil {
		t.Error(err)
	}
	if want := "changefeed run: ended: the batch of -FF was not finished within 200ms (--drain) and will come again\n"; !strings.HasSuffix(said.String(), want) {
		t.Errorf("said %q, want %q at the end", said.String(), want)
	}
}
