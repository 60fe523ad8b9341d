package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/manual"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// The command line as a whole.

// commands returns the commands in the order of the help, the most important first.
func commands() []*cobra.Command {
	return []*cobra.Command{
		importCommand(),
		exportCommand(),
		copyCommand(),
		compareCommand(),
		containersCommand(),
		createCommand(),
		dropCommand(),
		getCommand(),
		putCommand(),
		deleteCommand(),
		queryCommand(),
		tailCommand(),
		runCommand(),
		functionsCommand(),
		relayCommand(),
		hostCommand(),
		validateCommand(),
		leasesCommand(),
		dlqCommand(),
		serveCommand(),
		backupCommand(),
		checkCommand(),
		doctorCommand(),
		rangesCommand(),
		splitCommand(),
		mergeCommand(),
		programCommand(),
		demoCommand(),
		benchCommand(),
		contextCommand(),
		versionCommand(),
		completionCommand(),
		manCommand(),
		healthCommand(),
		echoCommand(),
	}
}

// keepOrder keeps our order of the commands in the help. The setting is global, and tests run commands side by side.
var keepOrder = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

// rootCommand is the whole binary. rootCommand sets began when a command was called correctly and begins its work.
// Any failure before is a usage error.
func rootCommand(began *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "changefeed",
		Short: "The change feed processor for Azure Cosmos DB, and the store to try it on",
		Long: `A store is a directory that one process at a time has open. It holds containers of JSON documents, and each
container has a change feed. Under changefeed serve, any number of processes use a store like an account of Azure Cosmos
DB.`,
		Example: `  changefeed import r.ndjson --db data --container restaurants --pk /outcode
  changefeed tail --db data --container restaurants --once --last 3
  changefeed serve --db data --http
  changefeed run --source http://127.0.0.1:8081/default/restaurants \
    --name mailer --create-leases -- ./mail.sh`,
		Version:       thisBuild().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          func(root *cobra.Command, args []string) error { return unknown(root, args) },
		RunE:          func(root *cobra.Command, _ []string) error { return root.Help() },
	}
	globalFlags(root)
	root.SetFlagErrorFunc(flagError)
	keepOrder()
	root.AddGroup(groups...)
	root.SetHelpFunc(writeHelp)
	root.AddCommand(commands()...)
	help := helpCommand(root)
	root.SetHelpCommand(help)
	root.AddCommand(help)
	for _, c := range root.Commands() {
		prepare(c, began)
	}
	root.PersistentFlags().VisitAll(manual.Describe)
	root.AddCommand(addressesTopic(), benchmarksTopic(), brokersTopic(), environmentTopic(), exitCodesTopic(),
		jsonTopic())
	return root
}

// prepare makes a command and all subcommands check their arguments and flags, and set began when they begin.
func prepare(c *cobra.Command, began *bool) {
	if c.Args == nil {
		c.Args = checkArguments
	}
	then := c.PreRunE
	c.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := checkFlags(cmd); err != nil || then == nil {
			return err
		}
		return then(cmd, args)
	}
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := prepareReport(cmd); err != nil {
			return err
		}
		*began = true
		return run(cmd, args)
	}
	describeFlags(c)
	complete(c)
	for _, below := range c.Commands() {
		prepare(below, began)
	}
}

// execute runs a command line and returns the exit code. If the output has no reader any more, this is not a failure,
// because head(1) ends a pipe like this.
func execute(ctx context.Context, args []string, out, errs io.Writer) int {
	began := false
	root := rootCommand(&began)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !began {
		err = blameCommand(cmd, args, err)
	}
	if isUnread(cmd, err) {
		err = nil
	}
	code := exitCode(ctx, err, began)
	if code == exitInterrupted && errors.Is(err, fs.ErrClosed) { // the input was closed to end the read
		err = errors.New("interrupted")
	}
	if code != exitDone {
		writeFailure(cmd, err, code, wantsJSON(args))
	}
	return code
}

// describeFailure returns the error of a command for programs.
func describeFailure(cmd *cobra.Command, err error, code int) report.Failure {
	f := report.Failure{
		Error: strings.TrimSuffix(terminal.WithoutSecrets(place.Plain(err)), "."), Code: codeName(code),
	}
	hint := place.Hint(err)
	// A usage error may come late, if only the opened container shows that a flag is invalid.
	if code == exitUsage {
		if hint = "See " + cmd.CommandPath() + " --help."; cmd.Name() == "help" {
			hint = "See changefeed help."
		}
	}
	if hint != "" {
		f.Hint = &hint
	}
	if reason := feed.CodeOf(err); reason != "" {
		f.Reason = &reason
	}
	return f
}

// writeFailure writes the error of a command to standard error.
func writeFailure(cmd *cobra.Command, err error, code int, asJSON bool) {
	f := describeFailure(cmd, err, code)
	text := f.Error
	switch {
	case asJSON:
		if line, err := report.Line(f); err == nil { // texts have a JSON form
			_, _ = cmd.ErrOrStderr().Write(line) // if this fails, there is no reader
		}
		return
	case code == exitUsage:
		text += "\n" + *f.Hint
	case f.Hint != nil:
		text += "; " + *f.Hint
	}
	// The text may quote a server's answer, or a name from a store.
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), terminal.Harmless(text))
}
