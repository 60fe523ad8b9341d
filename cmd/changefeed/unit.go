package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/internal/arg"
	"github.com/millrace/changefeed/internal/leasedoc"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/unit"
	"github.com/millrace/changefeed/internal/usage"
)

// What run and relay have in common: a processor of a deployment unit, whatever its handler is.

// unitOptions are the flags of a command that works for a unit.
type unitOptions struct {
	source  string
	leases  string
	create  bool
	letters string
	name    string
	account place.Settings
	from    arg.Start
	verbose int
	once    bool
	output  *choice
	feed    changefeed.Options
}

// register adds the flags. Their defaults are those of the processor's options, written out
// so that the help shows them.
func (o *unitOptions) register(cmd *cobra.Command, concurrency int, concurrencyMeans string) {
	f := cmd.Flags()
	f.StringVar(&o.source, "source", "", "`address` of the monitored container")
	f.StringVar(&o.leases, "leases", "", "`address` of the lease container (default leases, beside the source)")
	f.BoolVar(&o.create, "create-leases", false, "make the lease container, and that of --dead-letters, if there is none")
	f.StringVar(&o.name, "name", "", "`name` of the deployment unit: processes with the same name share the work")
	f.StringVar(&o.feed.Instance, "instance", "", "`name` of this instance in the leases (default the host's)")
	f.Var(&o.from, "from", "where a new unit begins (default now); for an existing unit the same or none, any other is refused")
	f.IntVar(&o.feed.MaxItems, "max-items", 0, "changes in a batch, at most; 0 is as many as a page has")
	f.IntVar(&o.feed.MinLeases, "min-leases", 0, "cut partitions, so that a new unit has at least so many leases")
	f.DurationVar(&o.feed.Poll, "poll", 5*time.Second, "longest pause between reads of a quiet range that must be polled")
	f.DurationVar(&o.feed.Acquire, "acquire", 13*time.Second, "time between two rounds of sharing the leases among the instances")
	f.DurationVar(&o.feed.Renew, "renew", 17*time.Second, "time between two renewals of an idle lease")
	f.DurationVar(&o.feed.Expiration, "expiration", time.Minute, "how long an instance may be silent before others take its leases")
	f.DurationVar(&o.feed.Drain, "drain", 10*time.Second, "how long a batch in hand may go on when its lease is given away or the processor stops")
	f.IntVar(&o.feed.Concurrency, "concurrency", concurrency, concurrencyMeans)
	o.registerPoison(cmd)
	f.BoolVar(&o.once, "once", false, "end when all changes are handled, instead of waiting for more")
	o.output = output(cmd)
	f.CountVarP(&o.verbose, "verbose", "v", "log acquired and released leases on standard error; -vv also batches")
	accountFlags(cmd, &o.account)
	_ = cmd.MarkFlagRequired("source") // fails only for a flag that is not there
	_ = cmd.MarkFlagRequired("name")
}

// check checks the flags that are no addresses, and completes the options of the processor.
func (o *unitOptions) check() error {
	o.feed.Start = o.from.Value
	if o.feed.Instance == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name this instance: %w; want --instance", err)
		}
		o.feed.Instance = name
	}
	return o.checkPoison()
}

// workplace is where a command works for a unit: what its addresses lead to.
type workplace struct {
	*unitOptions
	cmd    *cobra.Command
	log    *slog.Logger
	source place.Address
	at     place.Address // of the leases
}

// workplace reads the addresses. Nothing is opened yet, so that a wrong one costs
// nothing.
func (o *unitOptions) workplace(cmd *cobra.Command) (*workplace, error) {
	source, leases, err := o.addresses()
	if err != nil {
		return nil, err
	}
	return &workplace{o, cmd, o.logger(cmd), source, leases}, nil
}

// worker is a handler that knows what it has in hand.
type worker interface {
	changefeed.Handler
	inHand
}

// run opens the containers and runs a processor until it is stopped. Its handler is made when the monitored
// container is open.
func (w *workplace) run(handler func(monitored *place.Container) (worker, error)) (err error) {
	ctx := w.cmd.Context()
	// One opener for both containers, because a second opening of the same store fails.
	opener := place.NewOpener(w.account)
	opener.Log = w.log
	defer func() { err = cmp.Or(err, opener.Close()) }()
	monitored, err := opener.Open(ctx, w.source)
	if err != nil {
		return err
	}
	// A container that retains nothing would fail at each read of all versions, for ever.
	if err := monitored.Retains(w.feed.Mode); err != nil {
		return err
	}
	w.feed.Hooks = changefeed.JoinHooks(w.feed.Hooks, changefeed.LogHooks(w.log)) // before a relay sets defaults
	h, err := handler(monitored)
	if err != nil {
		return err
	}
	store, err := w.store(ctx, opener, monitored)
	if err != nil {
		return err
	}
	if err := w.openLetters(ctx, opener, monitored, w.log); err != nil {
		return err
	}
	defer w.closeLetters(&err)
	// The signals are watched beside the context: it ends with the first, and the second is for us.
	ending := w.ending(h)
	defer ending.watch()()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w.feed.Hooks = changefeed.JoinHooks(w.feed.Hooks, endingHooks(end))
	if w.once {
		defer w.endWhenHandled(ctx, end, monitored.Source, store)()
	}
	processor, err := changefeed.New(monitored.Source, store, h, w.feed)
	// The processor names fields of its options; who called the command knows flags.
	if wrong, ok := errors.AsType[*changefeed.OptionError](err); ok {
		return usage.Flag(flagName(wrong.Field), wrong.Value, strings.Replace(wrong.Want, "Expiration", "--expiration", 1))
	}
	if err != nil {
		return err
	}
	if err := processor.Run(ctx); err != nil {
		return w.refusal(err)
	}
	ending.last()
	if cause := context.Cause(ctx); errors.Is(cause, cosmos.ErrMadeAnew) {
		return cause
	}
	return nil
}

// refusal explains a unit that does not fit the flags, and what to write instead.
func (w *workplace) refusal(err error) error {
	anew := fmt.Sprintf("to begin anew, take another --name, or first delete its leases: changefeed leases %s --delete %s", w.at.String(), w.name)
	wrong, ok := errors.AsType[*changefeed.StartError](err)
	switch {
	case ok && len(wrong.Leases) > 0:
		return fmt.Errorf("unit %q has leases without a position, and nothing says where it began: add --from as its other processors have it (beginning, or a time), or --from now to skip what was written before (%s)",
			w.name, strings.Join(wrong.Leases, ", "))
	case ok:
		return fmt.Errorf("--from is %s, but unit %q began from %s at %s: leave --from out, or give it as it was, to go on where it is; %s",
			wrong.Given, w.name, wrong.Began, wrong.Since.Format(time.RFC3339), anew)
	case errors.Is(err, changefeed.ErrModeChanged):
		return fmt.Errorf("--mode is %s, but unit %q has leases of the other mode: %s", &arg.Mode{Value: w.feed.Mode}, w.name, anew)
	case errors.Is(err, leasedoc.ErrSecondSet):
		return fmt.Errorf("unit %q has two sets of leases, made by different names of this machine: changefeed leases %s shows both, and with --delete and the beginning of the ids, up to the dot, removes one",
			w.name, w.at.String())
	case errors.Is(err, changefeed.ErrForeignLease):
		return fmt.Errorf("unit %q is a Java processor's, whose leases changefeed reads and does not write: stop it, then run with another --name and --from the time of the oldest change that is pending there, which changefeed leases %s shows",
			w.name, w.at.String())
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
func (o *unitOptions) addresses() (source, leases place.Address, err error) {
	if source, err = place.Parse("--source", o.source); err != nil {
		return source, leases, usage.Error{Err: err}
	}
	if o.leases == "" {
		leases = source.Beside(unit.DefaultContainer)
		// Nobody wrote this address, so an error about it names the flag with which to
		// write another.
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
func (w *workplace) store(ctx context.Context, opener *place.Opener, monitored *place.Container) (changefeed.LeaseStore, error) {
	leases, err := opener.Open(ctx, w.at)
	if errors.Is(err, changefeed.ErrNotFound) || errors.Is(err, place.ErrNoContainer) {
		if !w.create {
			return nil, fmt.Errorf("%w; --create-leases makes the lease container", err)
		}
		leases, err = opener.CreateLeases(ctx, w.at)
		if errors.Is(err, changefeed.ErrNotFound) || errors.Is(err, place.ErrNoDatabase) {
			return nil, fmt.Errorf("%w; --create-leases makes the container, in a database that is there", err)
		}
	}
	if err != nil {
		return nil, err
	}
	store, err := unit.OpenStore(ctx, leases, w.name, monitored)
	// Only an account has rights. In a store and its files there is nothing to try.
	if remote, ok := store.(*cosmos.Leases); ok && err == nil {
		err = remote.SelfTest(ctx, monitored.Remote, w.feed.Mode)
	}
	return store, err
}

// logger logs to standard error, because standard output is for results, or the program.
func (o *unitOptions) logger(cmd *cobra.Command) *slog.Logger {
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
