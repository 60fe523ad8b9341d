package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/changefeed/cmd/changefeed/internal/manual"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// checkArguments compares the number of arguments of a command with its usage line, such as backup DIR|ADDRESS TO. A
// name in brackets may be missing, and the last name may have several values.
func checkArguments(cmd *cobra.Command, args []string) error {
	names := argumentNames(cmd)
	required := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name[0] == '[' })
	if len(args) < len(required) {
		return usage.Error{Err: fmt.Errorf("%s is missing: want %s %s",
			strings.TrimSuffix(required[len(args)], "..."), cmd.CommandPath(), strings.Join(names, " "))}
	}
	severalLast := len(names) > 0 && strings.Contains(names[len(names)-1], "...")
	switch {
	case len(args) <= len(names) || severalLast:
		return nil
	case len(names) == 0 && cmd.Flags().Lookup("listen") != nil && strings.Contains(args[0], ":"):
		return usage.Error{Err: fmt.Errorf("%s takes no argument: want %s in --listen", cmd.Name(), args[0])}
	case len(names) == 0:
		return usage.Error{Err: fmt.Errorf("%s takes no argument: leave %q out", cmd.Name(), args[0])}
	}
	text := fmt.Sprintf("there are %d arguments: want %s", len(args), strings.Join(names, " "))
	if f := cmd.Flags().Lookup("name"); f != nil && !f.Changed && f.Annotations[manual.RequiredNote] != nil {
		text += ", and the name of the unit in --name"
	}
	return usage.Error{Err: errors.New(text)}
}

// argumentNames returns the names of the arguments in the usage line of a command, without flags and their values.
func argumentNames(cmd *cobra.Command) (names []string) {
	words := strings.Fields(cmd.Use)
	for i := 1; i < len(words); i++ {
		switch {
		case strings.HasPrefix(strings.TrimLeft(words[i], "["), "--"):
			i++ // the value of the flag
		case words[i] != "[flags]":
			names = append(names, words[i])
		}
	}
	return names
}

// The annotations in which cobra keeps the rules about several flags.
const (
	togetherNote  = "cobra_annotation_required_if_others_set"
	exclusiveNote = "cobra_annotation_mutually_exclusive"
)

// checkFlags checks which flags are there, and which are there together. The library checks the same afterwards, but
// the library's errors do not name correct flags.
func checkFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case err != nil:
		case !f.Changed && f.Annotations[manual.RequiredNote] != nil:
			err = usage.Error{Err: fmt.Errorf("--%s is missing: want %s%s", f.Name, wantedOf(cmd, f),
				usageWithAddress(cmd))}
		case f.Changed:
			err = errors.Join(checkNotEmpty(cmd, f), checkTogether(cmd, f), checkExclusive(cmd, f))
		}
	})
	return err
}

// usageWithAddress returns the usage of a command for the error about a missing flag, if the address is missing too:
// otherwise the user would meet one mistake after the other.
func usageWithAddress(cmd *cobra.Command) string {
	flags := cmd.Flags()
	if flags.NArg() > 0 || flags.Changed("db") || flags.Changed("container") || !strings.Contains(cmd.Use, "[ADDRESS") {
		return ""
	}
	return "; usage: " + strings.TrimSuffix(cmd.UseLine(), " [flags]")
}

// checkNotEmpty refuses an empty value, as from a variable that is not set: the command would otherwise use another
// store, key or condition than the user wants. --context= is no context.
func checkNotEmpty(cmd *cobra.Command, f *pflag.Flag) error {
	isEmpty := f.Value.String() == ""
	if several, ok := f.Value.(pflag.SliceValue); ok {
		isEmpty = len(several.GetSlice()) == 0 || slices.Contains(several.GetSlice(), "")
	} else if f.Value.Type() != "string" { // the type refuses a wrong text itself
		return nil
	}
	// serve has refuseEmpty. Without --ca a connection is refused rather than insecure.
	if !isEmpty || f.Name == contextFlag || f.Name == "ca" || cmd.Name() == "serve" {
		return nil
	}
	want := wantedOf(cmd, f)
	if f.Annotations[manual.RequiredNote] == nil {
		want += ", or leave --" + f.Name + " out"
	}
	return usage.Error{Err: fmt.Errorf("--%s is empty: want %s", f.Name, want)}
}

// checkTogether refuses a flag without the flags that it needs.
func checkTogether(cmd *cobra.Command, f *pflag.Flag) error {
	var missing []string
	for _, group := range f.Annotations[togetherNote] {
		for name := range strings.FieldsSeq(group) {
			if !cmd.Flags().Changed(name) {
				missing = append(missing, "--"+name)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return usage.Error{Err: fmt.Errorf("%s: want %s beside it", given(f), strings.Join(missing, ", "))}
}

// checkExclusive refuses a flag beside a flag that contradicts it.
func checkExclusive(cmd *cobra.Command, f *pflag.Flag) error {
	for _, group := range f.Annotations[exclusiveNote] {
		for name := range strings.FieldsSeq(group) {
			if name != f.Name && cmd.Flags().Changed(name) {
				return usage.Error{Err: fmt.Errorf("%s, and %s: want one of the two", given(f),
					given(cmd.Flags().Lookup(name)))}
			}
		}
	}
	return nil
}

// given returns the text of a flag on the command line.
func given(f *pflag.Flag) string {
	if f.NoOptDefVal != "" {
		return "--" + f.Name + " is set"
	}
	return "--" + f.Name + " is " + f.Value.String()
}
