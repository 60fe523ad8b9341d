package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/broker"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// The exit codes of the process, the same for every command.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitMissing     = 3
	exitRefused     = 4
	exitFound       = 5
	exitInterrupted = 130 // the shells' code for a process that SIGINT has ended
)

// exitCodes explains the codes in changefeed help exit-codes.
var exitCodes = []struct {
	code    int
	name    string // in the errors of -o json
	meaning string
}{
	{exitDone, "done", "The work is done. A command that runs until Ctrl-C, such as run, tail or serve, has ended in order."},
	{exitFailed, "failed", "The work has failed, or a part was left out, or a check of doctor has failed. A retry may help."},
	{exitUsage, "usage", "The command was called wrongly, and nothing was done. Correct the command line."},
	{exitMissing, "missing", "Something that you name does not exist: a store, database, container, document, unit, partition, letter, context, program or file."},
	{exitRefused, "refused", "An account or a server cannot be reached or refuses your key, or another process has the store open."},
	{exitFound, "found", "The work is done, and has found something: violations in a store, a fault of --fail-on, or a case that a program fails."},
	{exitInterrupted, "interrupted", "You have interrupted the work."},
}

// exitCodesTopic is changefeed help exit-codes.
func exitCodesTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("The exit codes are the same for every command. With -o json, an error has the name of its code:\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&text, "  %3d %-11s  %s\n", c.code, c.name, c.meaning)
	}
	text.WriteString("\nIf the reader of the output ends first, as in changefeed tail … | head, the code is 0. A command " +
		"that changes something,\nsuch as put, then completes the change and ends with 1.")
	return &cobra.Command{Use: "exit-codes", Short: "Meaning of the exit codes", Long: text.String()}
}

// codeName returns the name of an exit code.
func codeName(code int) string {
	for _, c := range exitCodes {
		if c.code == code {
			return c.name
		}
	}
	return ""
}

// printing are the commands that only print. If the reader of their output has seen enough, they are done. Other
// commands change something, and must say that nobody has read how far they have come.
var printing = []string{
	"changefeed", "changefeed bench", "changefeed check", "changefeed compare", "changefeed containers",
	"changefeed context list",
	"changefeed context show", "changefeed demo", "changefeed doctor", "changefeed dlq list", "changefeed dlq show",
	"changefeed export", "changefeed get", "changefeed leases", "changefeed leases explain",
	"changefeed leases history", "changefeed leases list", "changefeed leases snapshot", "changefeed leases watch",
	"changefeed query", "changefeed ranges", "changefeed tail", "changefeed validate", "changefeed version",
}

// isUnread reports whether a command that only prints has ended because nobody reads the output any more. A connection
// to an account may break with the same error.
func isUnread(cmd *cobra.Command, err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	if !errors.Is(err, syscall.EPIPE) || network {
		return false
	}
	name := cmd.CommandPath()
	return slices.Contains(printing, name) || strings.HasPrefix(name, "changefeed help") ||
		strings.HasPrefix(name, "changefeed completion")
}

// exitCode is the code for the end of a command. began: the command line was right, as far as that shows without the
// work.
func exitCode(ctx context.Context, err error, began bool) int {
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	_, wrong := errors.AsType[usage.Error](err)
	_, missing := errors.AsType[usage.Missing](err)
	_, found := errors.AsType[usage.Found](err)
	switch {
	case err == nil:
		return exitDone
	case began && ctx.Err() != nil:
		return exitInterrupted
	case found:
		return exitFound
	case place.SpeaksHTTPS(err):
		return exitRefused
	case missing, is(place.ErrNoContainer, place.ErrNoDatabase):
		return exitMissing
	case wrong, !began:
		return exitUsage
	case is(feed.ErrNotFound, docstore.ErrNotStore, fs.ErrNotExist, exec.ErrNotFound):
		return exitMissing
	case is(feed.ErrForbidden, docstore.ErrInUse, http.ErrSchemeMismatch, broker.ErrUnreachable),
		place.IsUnreachable(err):
		return exitRefused
	}
	return exitFailed
}
