package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
)

// TestServeMayBeStoppedWhileItOpensItsStore: the signal comes as soon as the process has locked the directory.
func TestServeMayBeStoppedWhileItOpensItsStore(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, generated(5000), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/outcode")
	cut := 0
	for range 3 {
		serve := exec.Command("changefeed", "serve", "--db", dir, "--http", "--listen", "127.0.0.1:0")
		var said bytes.Buffer
		serve.Stderr = &said
		if err := serve.Start(); err != nil {
			t.Fatal(err)
		}
		for !hasOpen(t, serve.Process.Pid, filepath.Join(dir, "LOCK")) {
			runtime.Gosched()
		}
		if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := serve.Wait(); err != nil {
			t.Errorf("%v: %s", err, said.String())
		}
		if strings.Contains(said.String(), "ended while the store was being opened") {
			cut++
		}
	}
	t.Logf("%d of 3 were ended while they opened the store", cut)
	command(t, "check", dir)
	if n := strings.Count(command(t, "export", "docstore:"+dir+"#orders"), "\n"); n != 5000 {
		t.Errorf("%d documents, want 5000", n)
	}
}

// hasOpen tells whether a process has a file open. It fails the test when the process has ended.
func hasOpen(t *testing.T, pid int, file string) bool {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || bytes.Contains(status, []byte(") Z ")) {
		t.Fatalf("the server has ended by itself: %v", err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == file {
			return true
		}
	}
	return false
}

// Standard input has a place, which whoever read from it before has moved.
func TestAnImportReadsOnWhereStandardInputIs(t *testing.T) {
	dir := t.TempDir()
	in, err := os.Create(filepath.Join(dir, "in.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	heading := "heading\n"
	if _, err := in.WriteString(heading + string(generated(3))); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Seek(int64(len(heading)), io.SeekStart); err != nil {
		t.Fatal(err)
	}
	load := exec.Command("changefeed", "import", "-", "docstore:"+filepath.Join(dir, "data")+"#c", "--pk", "/outcode")
	load.Stdin, load.Dir = in, dir
	if out, err := load.CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "imported 3 documents into c ") {
		t.Errorf("got %q, %v, want that 3 documents are imported", out, err)
	}
}

// An import of a pipe that is silent ends at a Ctrl-C: gently, and for that reason, not because a read has failed.
func TestAnImportOfASilentPipeCanBeInterrupted(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	load := exec.Command("changefeed", "import", "-", "docstore:"+data+"#c", "--pk", "/outcode")
	var said bytes.Buffer
	load.Stderr, load.Dir = &said, dir
	pipe, err := load.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	killer := time.AfterFunc(20*time.Second, func() { _ = load.Process.Kill() }) // has ended, unless the test fails
	defer killer.Stop()
	// More than a pipe holds: when all of it is written, the import has begun and reads.
	if _, err := pipe.Write(append([]byte("bad\n"), bytes.Repeat([]byte(" "), 200_000)...)); err != nil {
		t.Fatal(err)
	}
	if err := load.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := load.Wait(); load.ProcessState.ExitCode() != exitInterrupted ||
		!strings.Contains(said.String(), "interrupt signal received; done up to line 1,") {
		t.Errorf("got %v, said %q, want that it was interrupted after line 1", err, said.String())
	}
	pipe.Close()
	command(t, "check", data)
}

// Beside an input there may be no room for a mark. Then there is none.
func TestAnImportNeedsNoMark(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	t.Setenv(place.ConnectionVariable, "AccountEndpoint="+server.URL+"/;AccountKey="+server.Key+";")
	path := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(path, generated(10), 0o644); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	got := command(t, "import", fmt.Sprintf("/proc/self/fd/%d", in.Fd()), "cosmos:shop/orders", "--pk", "/outcode")
	if !strings.HasPrefix(got, "imported 10 documents ") {
		t.Errorf("got %q", got)
	}
}
