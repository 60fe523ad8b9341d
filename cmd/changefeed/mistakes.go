package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/changefeed/cmd/changefeed/internal/manual"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/spelling"
)

// Errors about command lines: unknown commands, unknown flags, and values that a flag does not accept. Each error names
// a correct command, flag or value.

// renamed are the flags that had another name before. An empty command means all commands.
var renamed = []struct{ command, old, now string }{
	{"serve", "key", "--account-key"},
	{"serve", "key-file", "--cert-key"},
	{"split", "range", "the argument ID"},
	{"demo", "dir", "--db"},
	{"demo", "d", "--db"},
	{"leases", "delete", "changefeed leases delete --name NAME"},
	{"", "patience", "--wait"},
	{"", "max-items", "--batch-size"},
}

// flagError returns an error about the flags of a command, with correct flags.
func flagError(cmd *cobra.Command, err error) error {
	if unknownFlag, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlagError(cmd, unknownFlag)
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usage.Error{Err: fmt.Errorf("--%s has no value: want %s", bare.GetFlag().Name,
			wantedOf(cmd, bare.GetFlag()))}
	}
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	value := cmp.Or(wrong.GetValue(), "empty")
	want := wantedInstead(value, wrong.Unwrap())
	return usage.Error{Err: fmt.Errorf("--%s is %s: %s", wrong.GetFlag().Name, value, want)}
}

// wantedInstead returns the error of the type of a flag without the value, which the error may repeat. The errors of
// simple types only repeat the value, so the values that the type accepts replace them.
func wantedInstead(value string, cause error) string {
	number, ok := errors.AsType[*strconv.NumError](cause)
	switch {
	case ok && number.Func == "ParseBool":
		return "want true or false"
	case ok:
		return "want a whole number"
	case strings.HasPrefix(cause.Error(), "time: "):
		return "want a duration such as 90s or 1h30m"
	}
	text := cause.Error()
	if _, want, ok := strings.Cut(text, strconv.Quote(value)+": want "); ok {
		return "want " + want
	}
	return text
}

// wantedOf returns the purpose of a flag.
func wantedOf(cmd *cobra.Command, f *pflag.Flag) string {
	placeholder, about := manual.Placeholder(f)
	if f.Name == "name" {
		if units := unitsOf(cmd); len(units) > 0 {
			if cmd.Flags().Lookup("create-leases") != nil { // the command also begins a unit
				units = append(units, "a new one")
			}
			return "one of " + strings.Join(units, ", ")
		}
	}
	// The description goes on from the name of the value, as in DIR, the directory of a store; others are sentences.
	if noun, _, _ := strings.Cut(about, " "); placeholder == "DIR" || strings.EqualFold(noun, placeholder) {
		return placeholder + ", the " + about
	}
	return placeholder
}

// unknownFlagError returns the error of a flag that does not exist: the new name of the flag, or a similar name.
func unknownFlagError(cmd *cobra.Command, wrong *pflag.NotExistError) error {
	name := wrong.GetSpecifiedName()
	given := "--" + name
	if wrong.GetSpecifiedShortnames() != "" {
		given = "-" + name
	}
	for _, r := range renamed {
		if r.old == name && (r.command == "" || r.command == cmd.Name()) && isKnown(cmd, r.now) {
			return usage.Error{Err: fmt.Errorf("%s is %s now", given, r.now)}
		}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	text := "there is no flag " + given
	if near := spelling.Nearest(name, names); len(near) > 0 && given != "-"+name {
		text += ": do you mean --" + strings.Join(near, " or --") + "?"
	}
	return usage.Error{Err: errors.New(text)}
}

// isKnown reports whether the new name of a flag belongs to a command, or is no flag at all.
func isKnown(cmd *cobra.Command, now string) bool {
	name, isFlag := strings.CutPrefix(now, "--")
	return !isFlag || cmd.Flags().Lookup(name) != nil
}

// unknown returns an error for arguments that should be the name of a command, and suggests a command.
func unknown(parent *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("there is no command %q", args[0])
	if near := spelling.Nearest(args[0], namesBelow(parent)); len(near) > 0 {
		text += ": do you mean " + strings.Join(near, " or ") + "?"
	}
	return usage.Error{Err: errors.New(text)}
}

// blameCommand returns the error of an unknown command in place of an error about the flags of the command above: if a
// command is misspelled, the flags are unknown too, but they are not the mistake. An address is no misspelled command.
func blameCommand(cmd *cobra.Command, args []string, err error) error {
	if !cmd.HasAvailableSubCommands() {
		return err
	}
	words := slices.DeleteFunc(strings.Fields(cmd.CommandPath())[1:], func(word string) bool {
		if len(args) > 0 && args[0] == word {
			args = args[1:]
			return true
		}
		return false
	})
	if len(words) > 0 || len(args) == 0 || strings.HasPrefix(args[0], "-") || place.IsAddress(args[0]) {
		return err
	}
	return unknown(cmd, args)
}
