package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/bench"
	"github.com/millrace/changefeed/cmd/changefeed/internal/manual"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
)

// The groups of commands in the help of the root. Each command names its group in the field GroupID.
const (
	groupData  = "data"
	groupFeed  = "feed"
	groupUnits = "units"
	groupStore = "store"
	groupTools = "tools"
)

// groups are the groups in the order of the help.
var groups = []*cobra.Group{
	{ID: groupData, Title: "Data"},
	{ID: groupFeed, Title: "Feed"},
	{ID: groupUnits, Title: "Units"},
	{ID: groupStore, Title: "Store"},
	{ID: groupTools, Title: "Tools"},
}

// docsAddress is where a user of the binary finds the pages that a help names.
const docsAddress = "https://github.com/millrace/changefeed/tree/main/docs"

// writeHelp writes the help of a command.
func writeHelp(cmd *cobra.Command, _ []string) {
	_, _ = io.WriteString(cmd.OutOrStdout(), pageOf(cmd).Text()) // if this fails, there is no reader
}

// pageOf returns the help page of a command.
func pageOf(cmd *cobra.Command) manual.Page {
	p := manual.Page{
		Name: cmd.CommandPath(), Summary: cmd.Short + ".", Examples: strings.Trim(cmd.Example, "\n"), About: cmd.Long,
	}
	if !cmd.IsAdditionalHelpTopicCommand() {
		cmd.InitDefaultHelpFlag()
		p.Usage, p.Flags = usageOf(cmd), manual.Flags(cmd.LocalFlags(), cmd.InheritedFlags())
	}
	if strings.Contains(p.Text(), "docs/") {
		p.About += "\nThe pages in docs are at " + docsAddress
	}
	for _, g := range append(cmd.Groups(), &cobra.Group{Title: "Commands"}) {
		s := manual.Section{Title: g.Title}
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.GroupID == g.ID {
				s.Rows = append(s.Rows, manual.Row{Term: c.Name(), About: c.Short})
			}
		}
		if len(s.Rows) > 0 {
			p.Commands = append(p.Commands, s)
		}
	}
	for _, c := range cmd.Commands() {
		if c.IsAdditionalHelpTopicCommand() {
			p.Topics = append(p.Topics, manual.Row{Term: c.Name(), About: c.Short})
		}
	}
	return p
}

// usageOf returns the forms of a command. A command with subcommands is followed by a subcommand, unless the arguments
// show that the command does something by itself.
func usageOf(cmd *cobra.Command) string {
	if !cmd.HasAvailableSubCommands() {
		return cmd.UseLine()
	}
	if below := cmd.CommandPath() + " COMMAND [flags]"; !strings.Contains(cmd.Use, " ") {
		return below
	}
	return cmd.UseLine() + "\n  " + cmd.CommandPath() + " COMMAND [flags]"
}

// helpCommand is the command help. Unlike cobra's own, this command fails for an unknown command. Otherwise a script
// that asks for help about a misspelled command would succeed.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND...]",
		GroupID: groupTools,
		Short:   "Explain a command or a topic",
		Example: `  changefeed help tail
  changefeed help dlq retry
  changefeed help addresses`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			found, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return namesBelow(found), cobra.ShellCompDirectiveNoFileComp
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

// namesBelow returns the names of the commands and topics below a command.
func namesBelow(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// helpOfParent is the work of a command that only has subcommands.
func helpOfParent(cmd *cobra.Command, args []string) error {
	if err := unknown(cmd, args); err != nil {
		return err
	}
	return cmd.Help()
}

// completionCommand is the command completion, with a command below it for each shell. cobra's own has other help, and
// accepts the name of any shell.
func completionCommand() *cobra.Command {
	all := &cobra.Command{
		Use:     "completion",
		GroupID: groupTools,
		Short:   "Write the completions for a shell",
		Long: `A shell that has read them completes commands, flags and values with TAB, also the names of containers,
units, partitions and letters. In bash, quoted words need the package bash-completion.`,
		Example: `  source <(changefeed completion bash)
  changefeed completion fish | source`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOfParent,
	}
	for _, shell := range []struct {
		name, example string
		write         func(root *cobra.Command, w io.Writer) error
	}{
		{"bash", `  source <(changefeed completion bash)
  changefeed completion bash >/etc/bash_completion.d/changefeed`, func(root *cobra.Command, w io.Writer) error {
			return writeBashCompletion(root, w)
		}},
		{"zsh", `  source <(changefeed completion zsh)
  changefeed completion zsh >"${fpath[1]}/_changefeed"`, (*cobra.Command).GenZshCompletion},
		{"fish", `  changefeed completion fish | source
  changefeed completion fish >~/.config/fish/completions/changefeed.fish`, func(root *cobra.Command, w io.Writer) error {
			return root.GenFishCompletion(w, true)
		}},
		{
			"powershell", `  changefeed completion powershell | Out-String | Invoke-Expression`,
			(*cobra.Command).GenPowerShellCompletionWithDesc,
		},
	} {
		all.AddCommand(&cobra.Command{
			Use:   shell.name,
			Short: "Write the completions for " + shell.name,
			Long: `The first example is for this shell alone. To have completions in every shell, write them into a file
that the shell reads at the start.`,
			Example: shell.example,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return shell.write(cmd.Root(), cmd.OutOrStdout())
			},
		})
	}
	return all
}

// writeBashCompletion writes cobra's completions for bash, which need functions of the package bash-completion. In a
// shell without the package they work too, except that words with quoted blanks are taken for several.
func writeBashCompletion(root *cobra.Command, w io.Writer) error {
	var script strings.Builder
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return err
	}
	const packaged = `    _get_comp_words_by_ref "$@" cur prev words cword
`
	text := strings.Replace(script.String(), packaged, `    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    `+packaged+`        return
    fi
    local line=${COMP_LINE:0:COMP_POINT}
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cword=$((${#words[@]} - 1))
    cur=${words[cword]} prev=${words[cword - 1]}
`, 1)
	_, err := io.WriteString(w, text)
	return err
}

// addressesTopic is changefeed help addresses.
func addressesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "addresses",
		Short: "How to name a container or a store, and which key is used",
		Long: `An ADDRESS names a container, in any of these forms:

  docstore:DIR#container                in the store in a directory
  docstore:DIR#database/container       in another database than "default"
  cosmos:DATABASE/container             in the account of --endpoint
  https://HOST:PORT/DATABASE/container  in an account, or on changefeed serve
  DATABASE/container or container       in the account or store of a context: see changefeed help context
                                        (of dlq after --container)

--db DIR --container NAME is the short form of a docstore address.

A directory can be open in a single process only. If changefeed serve has the directory open, use the address of the
server. backup and check work on a whole store: they take the directory, or the address of changefeed serve without a
path, such as http://127.0.0.1:8081.

An account needs a key. changefeed uses the first of

  --account-key        other users of this machine can see it
  --connection-string  text with endpoint and key
  $` + place.ConnectionVariable + `
  $` + place.KeyVariable + `          for the account of --endpoint or $` + place.EndpointVariable + `
  $` + place.ServerKeyVariable + `      for a loopback address, and an endpoint of your settings

A key is sent only to the endpoint with which you gave the key; -v says which key is used. A context has a key of its
own. Without a key the emulator's well-known key is used for a loopback address, and the Microsoft Entra ID identity of
this machine for any other. If a server made its own certificate, --ca names the file with the certificate.`,
	}
}

// benchmarksTopic is changefeed help benchmarks.
func benchmarksTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "benchmarks",
		Short: "The benchmarks of changefeed bench",
		Long:  bench.Listed(bench.All()),
	}
}

// describeFlags prepares the flags of a command for the help and for shells.
func describeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(manual.Describe)
}
