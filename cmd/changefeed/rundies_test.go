//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// TestAProgramDiesWithItsProcessor kills the processor the hard way.
func TestAProgramDiesWithItsProcessor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can do that")
	}
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, generated(1), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/outcode")
	run := exec.Command("changefeed", "run", "--source", "docstore:"+dir+"#orders", "--name", "mailer",
		"--create-leases",
		"--from", "beginning", "--", "sh", "-c", "echo begun; exec sleep 60")
	killWhenBegun(t, run)
}

// killWhenBegun starts a processor, kills it when its program has printed begun, and expects the program to end.
func killWhenBegun(t *testing.T, run *exec.Cmd) {
	t.Helper()
	output, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("begun\n"))
	_, err = io.ReadFull(output, said)
	if kerr := run.Process.Kill(); err != nil || kerr != nil {
		t.Fatal(err, kerr)
	}
	if rest, err := io.ReadAll(output); err != nil || len(rest) > 0 { // ends when the program has
		t.Errorf("got %q, %v, want the end of the output", rest, err)
	}
	_ = run.Wait() // killed, as wanted
}
