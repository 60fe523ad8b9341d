// Command release prepares and checks the files of a release. GoReleaser builds them, as .goreleaser.yaml says.
//
//	go run -C tools/release . stage REPOSITORY DIR      collect what goes into archives and packages beside the binary
//	go run -C tools/release . check REPOSITORY VERSION  whether the sources are ready to be released as VERSION
//	go run -C tools/release . notes REPOSITORY VERSION  print the section of VERSION in the change log
//	go run -C tools/release . verify DIR PLATFORM...    open all files that GoReleaser has left in DIR
//
// docs/releasing.md describes a release. The program is a module of its own, so the library needs none of the modules
// that read packages.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

// commands are the commands by name, with the names of their arguments.
var commands = map[string]struct {
	arguments string
	run       func(ctx context.Context, args []string) error
}{
	"stage": {"REPOSITORY DIR", func(ctx context.Context, args []string) error { return stage(ctx, args[0], args[1]) }},
	"check": {"REPOSITORY VERSION", func(_ context.Context, args []string) error { return check(args[0], args[1]) }},
	"notes": {"REPOSITORY VERSION", func(_ context.Context, args []string) error {
		notes, err := notesOf(args[0], args[1])
		fmt.Print(notes)
		return err
	}},
	"verify": {"DIR PLATFORM...", func(ctx context.Context, args []string) error {
		return verify(ctx, args[0], args[1:])
	}},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run runs the command that the arguments name.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want a command: check, notes, stage or verify")
	}
	command, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("the command is %q: want check, notes, stage or verify", args[0])
	}
	wanted, isLong := strings.CutSuffix(command.arguments, " PLATFORM...")
	if n := len(strings.Fields(wanted)); len(args)-1 != n && (!isLong || len(args)-1 < n) {
		return fmt.Errorf("%s has %d arguments: want %s", args[0], len(args)-1, command.arguments)
	}
	return command.run(ctx, args[1:])
}
