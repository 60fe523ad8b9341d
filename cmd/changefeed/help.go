package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/changefeed/internal/host/terminal"
	"github.com/millrace/changefeed/internal/host/usage"
)

// Help, and the completion of shells.

// helpCommand is the command help. Unlike cobra's own, it fails for an unknown command: a
// script that asks for help about a misspelled one would succeed otherwise.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range root.Commands() {
				names = append(names, c.Name())
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = unknown(found, rest)
			}
			if err != nil {
				return err
			}
			return found.Help()
		},
	}
}

// narrowHelp writes the help of a command in lines of at most 80 columns, wherever it goes,
// because help is often read in narrow windows and copied into documents.
func narrowHelp(plain func(*cobra.Command, []string), cmd *cobra.Command, args []string) {
	to := cmd.OutOrStdout()
	// Cobra writes help straight to the output, so that is replaced while it does.
	var text bytes.Buffer
	cmd.SetOut(&text)
	plain(cmd, args)
	cmd.SetOut(to)
	_, _ = io.WriteString(to, terminal.Reflow(text.String(), terminal.Narrow)) // nobody reads it then
}

// unknown refuses arguments that should have been the name of a command, and suggests one.
func unknown(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("there is no command %q", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		text += ": do you mean " + strings.Join(near, " or ") + "?"
	}
	return usage.Error{Err: errors.New(text)}
}

// complete sets how a shell completes the flags and arguments of a command. By default
// cobra offers files for everything, which is right for few of them.
func complete(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && cmd.Name() != "import" && cmd.Name() != "run" {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		// No values and no files is an answer too: a shell then offers nothing.
		values := []string{}
		if v, ok := f.Value.(interface{ Words() []string }); ok {
			values = v.Words()
		}
		name, _ := pflag.UnquoteUsage(f)
		if strings.HasPrefix(name, "file") || name == "directory" {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
	})
}
