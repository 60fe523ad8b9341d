package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/instance"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
	"github.com/millrace/changefeed/trigger/program"
	"github.com/millrace/changefeed/trigger/webhook"
)

// The command run: a processor whose handler is a program. trigger/program starts and ends the program, and
// cmd/changefeed/internal/instance runs the processor.

// runOptions are the flags of run.
type runOptions struct {
	unitOptions
	jobs      int
	mode      arg.Mode
	form      changeline.Form
	grace     time.Duration
	longLived bool // a single program for all batches
	stdio     bool // the program is the parent process
	toURL     bool // the handler is a receiver of requests
	tokens    bool // the parent process gives tokens of the parent's identity
	post      choice
}

// runCommand is the command run.
func runCommand() *cobra.Command {
	o := &runOptions{}
	return o.command()
}

// command returns the command run with these options.
func (o *runOptions) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run --source ADDRESS --name NAME [flags] -- COMMAND|URL [ARG...]",
		GroupID: groupFeed,
		Short:   "Run a program for each batch of changes",
		Long: `The program is started for each batch, and reads the changes as lines from standard input, as tail prints
them. Exit code 0 means that the batch is done; otherwise the batch comes again after a pause. The program must be
idempotent: after a crash the last two batches come again. CHANGEFEED_LEASE, _RANGE, _INSTANCE and _ATTEMPT are set.
With --long-lived, a program handles all batches (docs/program.md). A URL gets a POST (docs/webhook.md).

All processes with the same --name, source and lease container share the work. SIGTERM or Ctrl-C waits --drain for
batches in hand; a second ends at once.`,
		Example: `  changefeed run --source http://127.0.0.1:8081/shop/orders --name mailer \
    --create-leases -- ./mail.sh
  changefeed run --source docstore:data#orders --name count --create-leases \
    --meta --once -- jq -c '{lsn, key}'`,
		Args: func(cmd *cobra.Command, args []string) error { return programArgs(cmd, args, o.stdio) },
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.register(cmd)
	untilStdinFlag(cmd)
	return cmd
}

// programArgs checks that there is a program after --, or none if the program is the parent process.
func programArgs(cmd *cobra.Command, args []string, isParent bool) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case isParent && len(args) > 0:
		return fmt.Errorf("%q is set beside --stdio: want no COMMAND, because the parent process is the program", args[0])
	case isParent:
		return nil
	case dash < 0 && len(args) == 0 || dash == len(args):
		return errors.New("COMMAND is missing: want a program after --, as in -- ./mail.sh")
	case dash != 0 && place.IsAddress(args[0]):
		return fmt.Errorf("%q is an argument of no flag: want it in --source, as in --source %[1]s", args[0])
	case dash != 0:
		return fmt.Errorf("%q is an argument of no flag: want the program after --, as in -- %[1]s", args[0])
	}
	return nil
}

// register adds the flags.
func (o *runOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	o.unitOptions.register(cmd, 1,
		"batches of a lease at once, by key")
	f.Lookup("variant").Usage = "`name` and version of COMMAND (default by the file)"
	f.Lookup("from").Usage = "where a new unit begins; also how long ago, as 15m (default beginning; now with --mode all)"
	f.Var(&o.mode, "mode", "latest version, or all and deletes")
	metaFlag(cmd, &o.form)
	f.DurationVar(&o.Options.HandlerTimeout, "timeout", 10*time.Minute, "how long a batch may take")
	f.DurationVar(&o.grace, "grace", program.DefaultGrace,
		"SIGTERM to SIGKILL; less than --drain")
	f.IntVar(&o.jobs, "jobs", 0, "programs at once, of all leases; 0 is no limit")
	f.BoolVar(&o.longLived, "long-lived", false, "a single program for all batches, by a contract")
	o.post = choice{string(webhook.FormArray), []string{
		string(webhook.FormArray), string(webhook.FormLines), string(webhook.FormCloudEvents),
	}}
	f.Var(&o.post, "post", "form of the POST to a URL")
	f.BoolVar(&o.stdio, "stdio", false, "the parent process is the program of the contract")
	f.BoolVar(&o.tokens, "token-from-program", false, "the parent process gives tokens for the account")
	f.BoolVar(&o.Options.Manual, "manual", false, "the program of the contract confirms batches itself")
}

// run runs the processor until the stop.
func (o *runOptions) run(cmd *cobra.Command, args []string) error {
	p, err := o.prepare(cmd, args)
	if err != nil {
		return err
	}
	// Without a reader, the program would end at the first write, and the batch would be redelivered for ever.
	ctx, stop := terminal.WhileRead(cmd.Context())
	defer stop()
	err = o.ui.during(cmd, o.report, ui.Options{Name: p.one.Options.Instance}, func(on *ui.UI) error {
		p.show(on)
		return p.run(ctx)
	})
	if !o.stdio && errors.Is(context.Cause(ctx), syscall.EPIPE) && (err == nil || errors.Is(err, syscall.EPIPE)) {
		return errUnread
	}
	return err
}

// prepare implements [unitFlags].
func (o *runOptions) prepare(cmd *cobra.Command, args []string) (*prepared, error) {
	untilStdin, _ := cmd.Flags().GetBool(untilStdinName)
	o.toURL = isURL(args)
	if err := cmp.Or(o.checkFlags(), o.checkContract(untilStdin), o.checkWebhook(cmd, args)); err != nil {
		return nil, err
	}
	if len(args) > 0 { // a parent process names the variant itself
		o.Options.Variant = cmp.Or(o.Options.Variant, handlerVariant(args))
	}
	i, err := o.newInstance(cmd)
	if err != nil {
		return nil, err
	}
	p := preparedOf(i)
	switch {
	case o.stdio:
		p.run = o.parentRunner(cmd, i)
	case o.longLived:
		p.run, err = o.workerRunner(cmd, i, args)
	case isURL(args):
		p.run, err = o.webhookRunner(i, args[0])
	default:
		p.run, err = o.programRunner(cmd, i, args)
	}
	return p, err
}

// programRunner returns the runner of the processor with a program for each batch.
func (o *runOptions) programRunner(cmd *cobra.Command, i *instance.Instance, command []string) (runner, error) {
	h, err := program.New(command, o.programOptions(cmd.OutOrStdout(), i.Log))
	if err != nil {
		return nil, wrongCommand(command, err)
	}
	return func(ctx context.Context) error {
		return i.Run(ctx, func(*place.Container) (instance.Handler, error) { return h, nil })
	}, nil
}

// errUnread is the reason why a processor has ended whose output has no reader any more. This is not a success,
// because changes may be left.
var errUnread = errors.New("nobody reads the standard output any more, so the processor has ended; a batch that was " +
	"in hand comes again")

// checkFlags refuses invalid values of flags, and sets the options that --mode all implies.
func (o *runOptions) checkFlags() error {
	// A new unit of all versions can begin only now. If --from contained a time, the source would refuse this time at
	// the first read.
	if o.mode.IsAll() {
		// Without metadata a delete would be empty.
		o.Options.Mode, o.form.Meta = feed.AllVersionsAndDeletes, true
		if !o.from.Value.IsNow() {
			return usage.Flag("from", o.from.String(), "now with --mode all")
		}
	}
	if o.Options.Drain <= 0 {
		return usage.Flag("drain", terminal.Exact(o.Options.Drain), "a positive duration")
	}
	// A later kill would come when the processor has given the handler up already. A parent process and a receiver
	// of requests are never killed.
	if !o.stdio && !o.toURL && (o.grace <= 0 || o.grace >= o.Options.Drain) {
		return usage.Flag("grace", terminal.Exact(o.grace), fmt.Sprintf("more than 0s and less than --drain (%s)",
			terminal.Exact(o.Options.Drain)))
	}
	if o.jobs < 0 {
		return usage.Flag("jobs", fmt.Sprint(o.jobs), "a positive number, or 0 for no limit")
	}
	return nil
}

// oneByOne returns an example of a program and its arguments on a command line.
func oneByOne(words []string) string { return "-- " + strings.Join(words, " ") }

// wrongCommand explains why there is no program: if the command cannot be found, run fails at once, because no batch
// could be handled.
func wrongCommand(command []string, err error) error {
	// exec's error repeats the name of the program, which the message contains already.
	if missing, ok := errors.AsType[*exec.Error](err); ok {
		words := strings.Fields(command[0])
		if len(words) > 1 && (errors.Is(missing, exec.ErrNotFound) || errors.Is(missing, fs.ErrNotExist)) {
			return usage.Error{Err: fmt.Errorf("COMMAND is %s: there is no such program: want the program and its "+
				"arguments one by one, as in %s", command[0], oneByOne(words))}
		}
		if errors.Is(missing, exec.ErrNotFound) {
			return usage.Missing{Err: fmt.Errorf("COMMAND is %s: $PATH has no such program", command[0])}
		}
		if errors.Is(missing, fs.ErrPermission) {
			return usage.Error{Err: fmt.Errorf("COMMAND is %s: it is not executable: want a program", command[0])}
		}
		return usage.Path("COMMAND", command[0], missing.Err)
	}
	return err
}

// programOptions returns the options of the program that the flags describe.
func (o *runOptions) programOptions(out io.Writer, log *slog.Logger) program.Options {
	return program.Options{
		Meta: o.form.Meta, Grace: o.grace, Jobs: o.jobs, Expiration: o.Options.Expiration, Stdout: out, Log: log,
	}
}
