package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// Help, and completion in shells.

// helpCommand is the command help. Unlike cobra's own, this command fails for an unknown command. Otherwise a script
// that asks for help about a misspelled command would succeed.
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

// narrowHelp writes the help of a command in lines of at most 80 columns, whatever the output is, because help is
// often read in narrow windows and copied into documents.
func narrowHelp(plain func(*cobra.Command, []string), cmd *cobra.Command, args []string) {
	to := cmd.OutOrStdout()
	// Cobra writes help directly to the output, so the output is replaced meanwhile.
	var text bytes.Buffer
	cmd.SetOut(&text)
	plain(cmd, args)
	cmd.SetOut(to)
	_, _ = io.WriteString(to, terminal.Reflow(text.String(), terminal.Narrow)) // if this fails, there is no reader
}

// unknown returns an error for arguments that should be the name of a command, and suggests a command.
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

// complete sets how a shell completes the flags and arguments of a command. By default cobra offers files everywhere,
// which is right for only a few of them.
func complete(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && cmd.Name() != "import" && cmd.Name() != "run" {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		// With no values and no files, the shell offers nothing.
		values := []string{}
		if v, ok := f.Value.(interface{ Words() []string }); ok {
			values = v.Words()
		}
		name, _ := pflag.UnquoteUsage(f)
		if strings.HasPrefix(name, "file") || name == "directory" {
			return
		}
		// fails only for an unknown flag
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	})
}
