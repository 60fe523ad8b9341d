package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/internal/changeline"
	"github.com/millrace/changefeed/internal/leasedoc"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/unit"
	"github.com/millrace/changefeed/internal/usage"
	"github.com/millrace/changefeed/trigger/program"
)

// The command run: a processor whose handler is a program. The program itself is started
// and ended by trigger/program; how the command ends is in runend.go. Errors of the
// processor name fields of its options; here they are translated into flags, and a unit
// that does not fit is explained with the command that mends it.

// runOptions are the flags of run.
type runOptions struct {
	source  string
	leases  string
	create  bool
	letters string
	jobs    int
	name    string
	account place.Settings
	from    startFlag
	mode    *choice
	form    changeline.Form
	grace   time.Duration
	verbose int
	once    bool
	output  *choice
	feed    changefeed.Options
}

// runCommand is the command run.
func runCommand() *cobra.Command {
	o := runOptions{mode: &choice{value: modeLatest, allowed: []string{modeLatest, modeAll}}}
	cmd := &cobra.Command{
		Use:   "run --source ADDRESS --name NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a program for each batch of changes",
		Long: `Run a change feed processor whose handler is a program. It is started for each batch
with the changes on its standard input, a line each, as tail prints them; its standard
output and standard error are those of changefeed. When it exits with 0, the batch is
done. With anything else the same batch comes again, after a pause that grows from 100 ms
to 30 s, and its lease is held meanwhile.

With --max-attempts or --max-age a batch that goes on failing is divided until the change
that fails is alone. That one is parked in --dead-letters, and the others go on; changefeed
dlq shows what is parked. When most changes fail, nothing is parked: that is an outage.

The program's environment has

  CHANGEFEED_LEASE      the lease of the batch
  CHANGEFEED_RANGE      its range of effective partition keys, min-max
  CHANGEFEED_INSTANCE   the name of this instance
  CHANGEFEED_ATTEMPT    1 at first, and 1 more after each failure

All processes with the same --name, source and lease container share the work, wherever
they run; processes with another name get every change too. Batches of one lease come one
after the other, those of different leases at the same time.

A program must be idempotent: after a crash the last batch is delivered again. When the
lease is lost, or --drain has passed after a stop, its process group gets SIGTERM, and
SIGKILL after --grace; for a lost lease sooner, before another instance may begin. If
changefeed itself is killed, so is the program, on Linux. If changefeed itself is stopped
(SIGSTOP), the program goes on, and may finish its batch while another instance has it
too; the position stays with that other instance. A program that must not undo newer work
compares the lsn that --meta adds.

SIGTERM or Ctrl-C ends the processor: batches in hand have --drain to finish, positions are
stored, leases are freed for the others, and the exit code is 0. A second signal ends all
at once. With --once the processor ends in the same way when its unit has handled all
changes. With -o json, its log on standard error is JSON. Failures are retried, with one
exception: a container that was deleted and made anew ends the processor, with exit code
1, because its leases are those of the old one.` + addressHelp,
		Example: `  changefeed run --source http://127.0.0.1:8081/shop/orders --name mailer --create-leases --from beginning -- ./mail.sh
  changefeed run --source cosmos:shop/orders --leases cosmos:ops/leases --name audit --mode all -v -- sh -c 'cat >> audit.ndjson'
  changefeed run --source docstore:data#orders --name count --create-leases --meta -- jq -c '{lsn, key}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash < 0 && len(args) == 0 || dash == len(args) {
				return errors.New("COMMAND is missing: want a program after --, as in -- ./mail.sh")
			} else if dash != 0 {
				return fmt.Errorf("%q is an argument of no flag: want the program after --, as in -- %[1]s", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.register(cmd)
	return cmd
}

// register adds the flags. Their defaults are those of the processor's options, written out
// so that the help shows them.
func (o *runOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.source, "source", "", "`address` of the monitored container")
	f.StringVar(&o.leases, "leases", "", "`address` of the lease container (default leases, beside the source)")
	f.BoolVar(&o.create, "create-leases", false, "make the lease container, and that of --dead-letters, if there is none")
	f.StringVar(&o.name, "name", "", "`name` of the deployment unit: processes with the same name share the work")
	f.StringVar(&o.feed.Instance, "instance", "", "`name` of this instance in the leases (default the host's)")
	f.Var(&o.from, "from", "where a new unit begins (default now); for an existing unit the same or none, any other is refused")
	f.Var(o.mode, "mode", "latest version of each document, or all versions and deletes")
	metaFlag(cmd, &o.form)
	f.IntVar(&o.feed.MaxItems, "max-items", 0, "changes in a batch, at most; 0 is as many as a page has")
	f.IntVar(&o.feed.MinLeases, "min-leases", 0, "cut partitions, so that a new unit has at least so many leases")
	f.DurationVar(&o.feed.Poll, "poll", 5*time.Second, "longest pause between reads of a quiet range that must be polled")
	f.DurationVar(&o.feed.Acquire, "acquire", 13*time.Second, "time between two rounds of sharing the leases among the instances")
	f.DurationVar(&o.feed.Renew, "renew", 17*time.Second, "time between two renewals of an idle lease")
	f.DurationVar(&o.feed.Expiration, "expiration", time.Minute, "how long an instance may be silent before others take its leases")
	f.DurationVar(&o.feed.Drain, "drain", 10*time.Second, "how long a batch in hand may go on when its lease is given away or the processor stops")
	f.DurationVar(&o.feed.HandlerTimeout, "timeout", 10*time.Minute, "how long the program may take for a batch")
	f.DurationVar(&o.grace, "grace", program.DefaultGrace, "how long after SIGTERM the program gets SIGKILL; shorter than --drain")
	o.registerPoison(cmd)
	f.BoolVar(&o.once, "once", false, "end when all changes are handled, instead of waiting for more")
	o.output = output(cmd)
	f.CountVarP(&o.verbose, "verbose", "v", "log acquired and released leases on standard error; -vv also batches")
	accountFlags(cmd, &o.account)
	_ = cmd.MarkFlagRequired("source") // fails only for a flag that is not there
	_ = cmd.MarkFlagRequired("name")
}

// run opens both containers and runs the processor until it is stopped.
func (o *runOptions) run(cmd *cobra.Command, args []string) (err error) {
	ctx := cmd.Context()
	if err := o.check(); err != nil {
		return err
	}
	source, leases, err := o.addresses()
	if err != nil {
		return err
	}
	log := o.logger(cmd)
	p, err := o.program(cmd, args)
	if err != nil {
		return err
	}
	// One opener for both containers, because a second opening of the same store fails.
	opener := place.NewOpener(o.account)
	opener.Log = log
	defer func() { err = cmp.Or(err, opener.Close()) }()
	monitored, err := opener.Open(ctx, source)
	if err != nil {
		return err
	}
	// A container that retains nothing would fail at each read of all versions, for ever.
	if err := monitored.Retains(o.feed.Mode); err != nil {
		return err
	}
	store, err := o.store(ctx, opener, leases, monitored)
	if err != nil {
		return err
	}
	if err := o.openLetters(ctx, opener, log); err != nil {
		return err
	}
	defer o.closeLetters(&err)
	// The signals are watched beside the context: it ends with the first, and the second is for us.
	ending := o.ending(cmd, log, p)
	defer ending.watch()()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	o.feed.Hooks = changefeed.JoinHooks(changefeed.LogHooks(log), endingHooks(end))
	if o.once {
		defer o.endWhenHandled(ctx, end, monitored.Source, store)()
	}
	processor, err := changefeed.New(monitored.Source, store, p, o.feed)
	// The processor names fields of its options; who called the command knows flags.
	if wrong, ok := errors.AsType[*changefeed.OptionError](err); ok {
		return usage.Flag(flagName(wrong.Field), wrong.Value, strings.Replace(wrong.Want, "Expiration", "--expiration", 1))
	}
	if err != nil {
		return err
	}
	if err := processor.Run(ctx); err != nil {
		return o.refusal(err, leases)
	}
	ending.last()
	if cause := context.Cause(ctx); errors.Is(cause, cosmos.ErrMadeAnew) {
		return cause
	}
	return nil
}

// refusal explains a unit that does not fit the flags, and what to write instead.
func (o *runOptions) refusal(err error, leases place.Address) error {
	anew := fmt.Sprintf("to begin anew, take another --name, or first delete its leases: changefeed leases %s --delete %s", leases.String(), o.name)
	wrong, ok := errors.AsType[*changefeed.StartError](err)
	switch {
	case ok && len(wrong.Leases) > 0:
		return fmt.Errorf("unit %q has leases without a position, and nothing says where it began: add --from as its other processors have it (beginning, or a time), or --from now to skip what was written before (%s)",
			o.name, strings.Join(wrong.Leases, ", "))
	case ok:
		return fmt.Errorf("--from is %s, but unit %q began from %s at %s: leave --from out to go on where it is; %s",
			wrong.Given, o.name, wrong.Began, wrong.Since.Format(time.RFC3339), anew)
	case errors.Is(err, changefeed.ErrModeChanged):
		return fmt.Errorf("--mode is %s, but unit %q has leases of the other mode: %s", o.mode.value, o.name, anew)
	case errors.Is(err, leasedoc.ErrSecondSet):
		return fmt.Errorf("unit %q has two sets of leases, made by different names of this machine: changefeed leases %s shows both, and with --delete and the beginning of the ids, up to the dot, removes one",
			o.name, leases.String())
	case errors.Is(err, changefeed.ErrForeignLease):
		return fmt.Errorf("unit %q is a Java processor's, whose leases changefeed reads and does not write: stop it, then run with another --name and --from the time of the oldest change that is pending there, which changefeed leases %s shows",
			o.name, leases.String())
	}
	return err
}

// endingHooks end the processor when a container was deleted and made anew: no further
// attempt can succeed with the resource ids of the old one, while the changes of the new
// one wait. A supervisor starts it again.
func endingHooks(end context.CancelCauseFunc) changefeed.Hooks {
	return changefeed.Hooks{Error: func(err *changefeed.Error) {
		if errors.Is(err, cosmos.ErrMadeAnew) {
			end(err)
		}
	}}
}

// check checks the flags that are no addresses, and completes the options of the processor.
func (o *runOptions) check() error {
	o.feed.Start = o.from.value
	if o.mode.value == modeAll {
		// Without its metadata a delete has nothing to show.
		o.feed.Mode, o.form.Meta = changefeed.AllVersionsAndDeletes, true
		if !o.from.value.IsNow() {
			return usage.Flag("from", o.from.String(), "now with --mode all")
		}
	}
	if o.feed.Instance == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name this instance: %w; want --instance", err)
		}
		o.feed.Instance = name
	}
	// A later kill would come when the processor has given the handler up already.
	if o.grace <= 0 || o.grace >= o.feed.Drain {
		return usage.Flag("grace", o.grace.String(), fmt.Sprintf("more than 0s and less than --drain (%v)", o.feed.Drain))
	}
	return o.checkPoison()
}

// flagName is the flag for a field of [changefeed.Options]: the same words with dashes, but
// for one.
func flagName(field string) string {
	if field == "HandlerTimeout" {
		return "timeout"
	}
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// addresses parses the addresses of both containers.
func (o *runOptions) addresses() (source, leases place.Address, err error) {
	if source, err = place.Parse("--source", o.source); err != nil {
		return source, leases, usage.Error{Err: err}
	}
	if o.leases == "" {
		leases = source.Beside(unit.DefaultContainer)
		leases.Field = "--leases"
		return source, leases, nil
	}
	if leases, err = place.Parse("--leases", o.leases); err != nil {
		return source, leases, usage.Error{Err: err}
	}
	return source, leases, nil
}

// store is the lease store of the unit. Rights that will be needed later, such as to delete
// a lease after a split, are tried now: a missing one should be an error at the start and
// not at night.
func (o *runOptions) store(ctx context.Context, opener *place.Opener, at place.Address, monitored *place.Container) (changefeed.LeaseStore, error) {
	leases, err := opener.Open(ctx, at)
	if errors.Is(err, changefeed.ErrNotFound) || errors.Is(err, place.ErrNoContainer) {
		if !o.create {
			return nil, fmt.Errorf("%w; --create-leases makes the lease container", err)
		}
		leases, err = opener.CreateLeases(ctx, at)
		if errors.Is(err, changefeed.ErrNotFound) || errors.Is(err, place.ErrNoDatabase) {
			return nil, fmt.Errorf("%w; --create-leases makes the container, in a database that is there", err)
		}
	}
	if err != nil {
		return nil, err
	}
	store, err := unit.OpenStore(ctx, leases, o.name, monitored)
	if remote, ok := store.(*cosmos.Leases); ok && err == nil {
		err = remote.SelfTest(ctx, monitored.Remote, o.feed.Mode)
	}
	return store, err
}

// program is the handler. A command that cannot be found is refused now, because no batch could
// ever be handled.
func (o *runOptions) program(cmd *cobra.Command, command []string) (*program.Handler, error) {
	h, err := program.New(command, program.Options{
		Meta: o.form.Meta, Grace: o.grace, Jobs: o.jobs, Expiration: o.feed.Expiration, Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(),
	})
	if missing, ok := errors.AsType[*exec.Error](err); ok {
		return nil, fmt.Errorf("COMMAND is %s: %w", command[0], missing.Err)
	}
	return h, err
}

// logger logs to standard error, because standard output belongs to the program.
func (o *runOptions) logger(cmd *cobra.Command) *slog.Logger {
	level := slog.LevelWarn
	switch {
	case o.verbose > 1:
		level = slog.LevelDebug
	case o.verbose == 1:
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), options)
	if o.output.value == "json" {
		handler = slog.NewJSONHandler(cmd.ErrOrStderr(), options)
	}
	return slog.New(handler).With("name", o.name, "instance", o.feed.Instance)
}
