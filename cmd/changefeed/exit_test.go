package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
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
		{"the reader has gone", fmt.Errorf("write: %w", syscall.EPIPE), t.Context(), true, exitDone},
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
