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
	"time"
)

// TestASecondInterruptEndsAllAtOnce has a program that ignores signals, and something that
// it has started: both have the output open as long as they live.
func TestASecondInterruptEndsAllAtOnce(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, generated(1), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/outcode")
	run := exec.Command("changefeed", "run", "--source", "docstore:"+dir+"#orders", "--name", "mailer",
		"--create-leases",
		"--from", "beginning", "--drain", "2m", "--grace", "1m", "--", "sh", "-c",
		"trap '' INT TERM; sleep 300 & echo begun; wait; sleep 300")
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
	run := exec.Command("changefeed", "run", "--source", "docstore:"+dir+"#orders", "--name", "mailer",
		"--create-leases",
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
	if want := "changefeed run: ended: the batch of -FF was not finished within 200ms (--drain) and will " +
		"come again\n"; !strings.HasSuffix(said.String(), want) {
		t.Errorf("said %q, want %q at the end", said.String(), want)
	}
}

// A demo in a directory of its own leaves nothing behind, and names no directory that is gone.
func TestADemoThatIsInterruptedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	demo := exec.Command("changefeed", "demo", "--for", "1m")
	demo.Env = append(os.Environ(), "TMPDIR="+dir)
	var said bytes.Buffer
	demo.Stderr = &said
	output, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = demo.Process.Kill() }) // has ended, unless the test failed
	lines := bufio.NewReader(output)
	for begun := false; !begun; { // before, there is nothing to judge
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err, &said)
		}
		begun = strings.Contains(line, "clerks begin to write")
	}
	if err := demo.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err := errors.Join(err, demo.Wait()); err != nil || strings.Contains(string(rest), dir) {
		t.Errorf("got %v and %s%s", err, rest, &said)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A command that waits for something else than its context can be ended all the same.
func TestASecondInterruptEndsWhatDoesNotListen(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "in.ndjson")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	load := exec.Command("changefeed", "containers", "http://127.0.0.1:1", "--ca", pipe)
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- load.Wait() }()
	silent, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the command to open it
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// More than the pipe holds: once all of that is written, the command waits for the rest of the certificate.
	if _, err := silent.WriteString(strings.Repeat("a", 1<<17)); err != nil {
		t.Fatal(err)
	}
	// nothing shows that the first one was taken
	again, late := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for {
		select {
		case err := <-ended:
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
				t.Errorf("got %v, want the end by the signal", err)
			}
			return
		case <-late:
			t.Error("the command does not end")
			_ = load.Process.Kill() // may have ended just now
			<-ended
			return
		case <-again.C:
			_ = load.Process.Signal(syscall.SIGINT) // the same
		}
	}
}
