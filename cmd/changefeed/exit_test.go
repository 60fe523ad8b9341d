package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestEachEndHasItsExitCode(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		name string
		err  error
		ctx  context.Context
		late bool // not before the work has begun
		code int
	}{
		{"done", nil, t.Context(), true, exitDone},
		{"ended in order", nil, ended, true, exitDone},
		{"a change, and the reader has gone", fmt.Errorf("write: %w", syscall.EPIPE), t.Context(), true, exitFailed},
		{"any failure", errors.New("disk is full"), t.Context(), true, exitFailed},
		{"any failure before the work", errors.New("unknown flag"), t.Context(), false, exitUsage},
		{"a flag that is found wrong late", usage.Flag("pk", "x", "y"), t.Context(), true, exitUsage},
		{"interrupted", context.Canceled, ended, true, exitInterrupted},
		{"interrupted in the middle of a write", errors.New("write: closed"), ended, true, exitInterrupted},
		{"no container", fmt.Errorf("a: %w", place.ErrNoContainer), t.Context(), true, exitMissing},
		{"no database", fmt.Errorf("a: %w", place.ErrNoDatabase), t.Context(), true, exitMissing},
		{"no item", feed.ErrNotFound, t.Context(), true, exitMissing},
		{"no store", docstore.ErrNotStore, t.Context(), true, exitMissing},
		{"no file", &fs.PathError{Op: "open", Path: "a", Err: fs.ErrNotExist}, t.Context(), true, exitMissing},
		{"no unit, by a flag", usage.Missing{Err: usage.Flag("name", "x", "y")}, t.Context(), true, exitMissing},
		{"nobody listens", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, t.Context(), true, exitRefused},
		{"no host", &net.DNSError{Err: "no such host", IsNotFound: true}, t.Context(), true, exitRefused},
		{"a port of our own", &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}, t.Context(), true, exitFailed},
		{"another process has it", docstore.ErrInUse, t.Context(), true, exitRefused},
		{"not allowed", fmt.Errorf("read: %w", feed.ErrForbidden), t.Context(), true, exitRefused},
		{"violations", usage.Found{Err: docstore.ErrCorrupt}, t.Context(), true, exitFound},
		{"a store that cannot be opened", docstore.ErrCorrupt, t.Context(), true, exitFailed},
	} {
		if got := exitCode(c.ctx, c.err, c.late); got != c.code {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.code)
		}
	}
}

// A server that speaks https is not reached by http, whatever the command makes of its refusal.
func TestAServerThatSpeaksHTTPSIsNotReached(t *testing.T) {
	err := usage.Error{Err: errors.New("GET /: 400: Client sent an HTTP request to an HTTPS server")}
	if code := exitCode(t.Context(), err, true); code != exitRefused {
		t.Errorf("exit code %d, want %d", code, exitRefused)
	}
}

// A command that only prints is done when its reader has seen enough. A connection that breaks is no such reader.
func TestOnlyCommandsThatPrintMayLoseTheirReader(t *testing.T) {
	gone := fmt.Errorf("write: %w", syscall.EPIPE)
	broken := fmt.Errorf("ask account: %w", &net.OpError{Op: "write", Err: syscall.EPIPE})
	for line, want := range map[string]bool{
		"tail": true, "query": true, "dlq list": true, "context show": true, "leases": true, "leases snapshot": true,
		"leases history": true, "leases explain": true, "leases gc": false,
		"leases delete": false, "put": false, "delete": false, "drop": false, "create": false, "import": false,
		"dlq drop": false, "dlq retry": false, "leases pause": false, "leases restore": false, "context add": false,
		"context rm": false, "backup": false, "split": false, "run": false, "relay": false,
	} {
		cmd, args, err := rootCommand(new(bool)).Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if got := isUnread(cmd, gone); got != want {
			t.Errorf("%s: done without a reader: %v, want %v", line, got, want)
		}
		if isUnread(cmd, broken) {
			t.Errorf("%s: a broken connection was taken for the output", line)
		}
	}
	root := rootCommand(new(bool))
	for _, name := range printing {
		if cmd, _, err := root.Find(strings.Fields(name)[1:]); err != nil || cmd.CommandPath() != name {
			t.Errorf("there is no command %s", name)
		}
	}
}

func TestHelpExplainsEachExitCode(t *testing.T) {
	out, _, err := call(t, "help", "exit-codes")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []int{exitDone, exitFailed, exitUsage, exitMissing, exitRefused, exitFound, exitInterrupted} {
		if !strings.Contains(out, fmt.Sprintf("\n  %3d %s ", code, codeName(code))) {
			t.Errorf("exit code %d is not in\n%s", code, out)
		}
	}
}

func TestPutWritesAllDocumentsAlsoWithoutAReader(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(`[{"id":"1"},{"id":"2"},{"id":"3"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "create", "--db", dir, "--container", "c", "--pk", "/id")
	reader, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	code := execute(t.Context(), []string{"put", "--db", dir, "--container", "c", file, "-o", "json"}, out, &errs)
	if code != exitFailed || !strings.Contains(errs.String(), "3 documents written, but not the report about it") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	got := command(t, "query", "--db", dir, "--container", "c", "SELECT VALUE COUNT(1) FROM c", "-o", "json")
	if got != "3\n" {
		t.Errorf("got %s documents, want 3", got)
	}
}

// What a server says, or a name in a store, may be made to control the terminal of who reads it.
func TestAFailureControlsNoTerminal(t *testing.T) {
	var errs bytes.Buffer
	root := rootCommand(new(bool))
	root.SetErr(&errs)
	writeFailure(root, errors.New("said \x1b]0;title\a\u202e at https://ann:secret@host/"), exitFailed, false)
	if got := errs.String(); strings.ContainsAny(got, "\x1b\a\u202e") || strings.Contains(got, "secret") ||
		!strings.Contains(got, "title") {
		t.Errorf("got %q", got)
	}
}
