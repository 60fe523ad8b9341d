// Package instance runs an instance of a deployment unit for a command: it opens the containers at the addresses, runs
// a processor on them until the user ends the command, and reports the end.
package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

// Settings are the settings of an instance from a command line. Errors about them name their flags.
type Settings struct {
	Name    string // of the unit
	Source  string // the address of the monitored container
	Leases  string // address of the lease container; by default beside the source
	Create  bool   // make the lease container, and that of Letters, if missing
	Letters string // address of a container for dead letters, or a file; empty if there is none
	Once    bool   // end when all changes are handled
	Account place.Settings

	// LeaseAccount is the account of Leases and Letters; nil means Account.
	LeaseAccount *place.Settings

	Options changefeed.Options // the default of Instance is the host's name

	Function *Function // in place of Source and Leases; nil for the units of run and relay

	Log  *slog.Logger
	Say  func(text string) // tells people how the instance ends; nil writes that to Log
	Exit func()            // ends the process at once, at the second interrupt

	// Signals end the process; nil means [scratch.Ends].
	Signals []os.Signal

	// Stores is an opener whose stores several instances of one process share, because a second opening of the same
	// store fails. If Stores is nil, the instance opens its stores itself.
	Stores *place.Opener

	Live *unit.Live // answers questions about the unit once the processor runs; nil if nobody asks

	UI    *ui.UI   // shows the unit; nil if there is no dashboard
	Shown *ui.Unit // the unit there, once the monitored container is open; set by Run
}

// An Instance is an instance with checked settings.
type Instance struct {
	Settings
	source place.Address
	leases place.Address
}

// A Handler knows the leases of the present batches.
type Handler interface {
	feed.Handler
	Running() (leases []string)    // leases with batches in the handler
	Unfinished() (leases []string) // leases whose batches were interrupted since the last call
	Kill()                         // ends running calls
}

// New checks the settings. New opens nothing, so that wrong settings cost nothing.
func New(s Settings) (*Instance, error) {
	if s.Options.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name this instance: %w; want --instance", err)
		}
		s.Options.Instance = fmt.Sprintf("%s-%d", host, os.Getpid()) // the default of the library, for the log too
	}
	if err := s.checkLimits(); err != nil {
		return nil, err
	}
	source, leases, err := s.parseAddresses()
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	if err := s.checkOptions(); err != nil {
		return nil, err
	}
	s.Log = s.Log.With("name", s.Name, "instance", s.Options.Instance)
	if s.Say == nil {
		s.Say = func(text string) { s.Log.Warn(text) }
	}
	return &Instance{s, source, leases}, nil
}

// checkLimits refuses a limit without a dead-letter store, and the reverse. With a limit alone, a failing change would
// be retried for ever, as without a limit.
func (s *Settings) checkLimits() error {
	const want = "--dead-letters beside it: without a place to park a change, one that fails is tried for ever"
	switch o := s.Options; {
	case o.OnFailure.HoldKeys && s.Letters == "":
		return usage.Error{Err: errors.New("--hold is set without --dead-letters: want a place for the changes " +
			"that are held")}
	case s.Letters != "" && o.OnFailure.MaxAttempts == 0 && o.OnFailure.MaxAge == 0:
		return usage.Error{Err: fmt.Errorf("--dead-letters is %s: want --max-attempts or --max-age beside it: "+
			"without a limit nothing is ever parked", s.Letters)}
	case s.Letters == "" && o.OnFailure.MaxAttempts > 0:
		return usage.Flag("max-attempts", strconv.Itoa(o.OnFailure.MaxAttempts), want)
	case s.Letters == "" && o.OnFailure.MaxAge > 0:
		return usage.Flag("max-age", terminal.Exact(o.OnFailure.MaxAge), want)
	}
	return nil
}

// checkOptions refuses a wrong name and all options that the processor refuses, because the processor itself is made
// when the lease container, a file for dead letters and the directory of a broker exist already.
func (s *Settings) checkOptions() error {
	if !leasedoc.IsProcessor(s.Name) && (s.Name != "" || s.Function == nil) {
		want := `one that tells this deployment unit from others, without / \ ? # and U+0000`
		if s.Name == unit.Unnamed {
			want += "; the unit without a name is that of a function, which the command functions runs"
		}
		return usage.Flag("name", strconv.Quote(s.Name), want)
	}
	o := s.Options
	if s.Letters != "" {
		o.OnFailure.DeadLetters = struct{ feed.LetterBox }{}
	}
	nothing := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
	_, err := changefeed.New(struct{ feed.Source }{}, struct{ feed.LeaseStore }{}, nothing, o)
	return flagError(err)
}

// flagError names the flag of an option that the processor refuses: the processor names fields, but the user knows
// flags.
func flagError(err error) error {
	if wrong, ok := errors.AsType[*changefeed.OptionError](err); ok {
		value := wrong.Value
		if d, err := time.ParseDuration(value); err == nil && value != "0" {
			value = terminal.Exact(d)
		}
		return usage.Flag(flagName(wrong.Field), value, strings.Replace(wrong.Want, "Expiration", "--expiration",
			1))
	}
	return err
}

// parseAddresses parses the addresses of both containers.
func (s *Settings) parseAddresses() (source, leases place.Address, err error) {
	if f := s.Function; f != nil {
		return f.Source, f.Leases, nil
	}
	if source, err = s.Account.Parse("--source", s.Source); err != nil {
		return source, leases, err
	}
	if s.Leases == "" {
		leases = source.Beside(unit.DefaultContainer)
		// The user did not write this address, so an error about it names the flag for another address.
		leases.Field = "the default of --leases"
		return source, leases, nil
	}
	leases, err = s.leaseAccount().Parse("--leases", s.Leases)
	return source, leases, err
}

// Place returns a text that is the same for all instances of a unit, as far as [place.Settings.Same] tells.
func (i *Instance) Place() string {
	return fmt.Sprintf("%q %s %s", i.Name, i.Account.Same(i.source), i.Account.Same(i.leases))
}

// Run opens the containers and runs a processor until ctx ends. The function handler makes the handler when the
// monitored container is open, and may change Options then.
func (i *Instance) Run(ctx context.Context, handler func(monitored *place.Container) (Handler, error)) (err error) {
	opener := i.newOpener()
	defer func() { err = cmp.Or(err, opener.Close()) }()
	beside, closeBeside := i.openerBeside(opener)
	defer func() { err = cmp.Or(err, closeBeside()) }()
	monitored, leases, err := i.find(ctx, opener, beside)
	if err != nil {
		return err
	}
	name := i.Name
	if name == "" { // several functions of an app may have no name
		name = i.Function.Name
	}
	if i.Shown, err = i.UI.Unit(name, monitored.Address.Name()); err != nil {
		return err
	}
	// before a handler sets defaults
	i.Options.Hooks = changefeed.JoinHooks(i.Options.Hooks, changefeed.LogHooks(i.Log), i.Shown.Hooks())
	hide, err := i.explore(ctx, opener, monitored)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, hide()) }()
	h, err := handler(monitored)
	if err != nil {
		return err
	}
	closeLetters, err := i.openLetters(ctx, beside, monitored)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, closeLetters()) }()
	store, err := i.openLeases(ctx, beside, leases, monitored)
	if err != nil {
		return wrongContainer(err)
	}
	if err := i.chooseStart(ctx, store); err != nil {
		return err
	}
	if leases != nil && i.Function == nil { // there was a lease container, with the units of others
		i.Options.Hooks = changefeed.JoinHooks(i.Options.Hooks, i.namesakeHooks(leases, monitored))
	}
	return i.runProcessor(ctx, monitored.Source, store, h)
}

// newOpener returns a single opener for all containers, because a second opening of the same store fails.
func (i *Instance) newOpener() (o *place.Opener) {
	if i.Stores != nil {
		o = i.Stores.Sharing(i.Account)
	} else {
		o = place.NewOpener(i.Account)
	}
	o.Log = i.Log
	return o
}

// find opens the monitored container and the lease container, which is nil if it is to be made. Everything that may be
// wrong is opened before the lease container is made, so a mistake leaves none behind.
func (i *Instance) find(ctx context.Context, opener, beside *place.Opener) (monitored, leases *place.Container,
	err error,
) {
	if monitored, err = opener.Open(ctx, i.source); err != nil {
		return nil, nil, err
	}
	// A container without retention would fail at each read of all versions, for ever.
	if err := monitored.Retains(i.Options.Mode); err != nil {
		return nil, nil, err
	}
	leases, err = i.findLeases(ctx, beside)
	return monitored, leases, err
}

// Check opens what Run opens, and tests the rights, but makes and runs nothing: a container that Run would make is not
// an error. The error is that of Run.
func (i *Instance) Check(ctx context.Context) (err error) {
	opener := i.newOpener()
	defer func() { err = cmp.Or(err, opener.Close()) }()
	monitored, leases, err := i.find(ctx, opener, opener)
	if err != nil {
		return err
	}
	if _, err := monitored.Source.Partitions(ctx); err != nil {
		return fmt.Errorf("read the partitions of %s: %w", i.source.Quote(), err)
	}
	if err := i.checkLetters(ctx, opener, monitored); err != nil || leases == nil {
		return err
	}
	_, err = i.openLeases(ctx, opener, leases, monitored)
	return wrongContainer(err)
}

// wrongContainer makes an error of usage of that of a container that cannot have leases or letters.
func wrongContainer(err error) error {
	if errors.Is(err, feed.ErrBadRequest) {
		return usage.Error{Err: err}
	}
	return err
}

// chooseStart lets a new unit begin with the oldest change unless the user chose a start, so that nothing that was
// written before is skipped without a word. An existing unit keeps its start, and all versions can begin only now.
func (i *Instance) chooseStart(ctx context.Context, store feed.LeaseStore) error {
	if i.Function == nil && (!i.Options.Start.IsZero() || i.Options.Mode == feed.AllVersionsAndDeletes) {
		return nil
	}
	records, _, err := store.List(ctx)
	if err != nil {
		return fmt.Errorf("look for the leases of unit %q: %w", i.Name, err)
	}
	if i.Function != nil {
		i.Options.Start = startOfFunction(i.Options, records)
		return nil
	}
	exists := func(record feed.Record) bool { return record.Kind == feed.KindLease || record.Kind == feed.KindInfo }
	if !slices.ContainsFunc(records, exists) {
		i.Options.Start = feed.FromBeginning()
	}
	return nil
}

// commands are the commands about the unit.
func (i *Instance) commands() unit.Commands {
	if i.Function != nil { // its unit has another name for the commands
		return unit.Commands{}
	}
	return unit.Commands{Leases: i.leases.String(), Name: i.Name, Letters: i.Letters}
}

// runProcessor runs the processor.
func (i *Instance) runProcessor(ctx context.Context, source feed.Source, store feed.LeaseStore, h Handler) error {
	// Watch the signals separately from the context: the context ends with the first signal, and the second is for us.
	signals := &ending{
		say: i.Say, inHand: h, drain: i.Options.Drain, expiration: i.Options.Expiration, exit: i.Exit,
		signals: i.Signals,
	}
	defer signals.watchSignals()()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var kept keptLeases
	var failed repeats
	var away absence
	var parked parkedChanges
	i.Options.RetryMin, i.Options.RetryMax = cmp.Or(i.Options.RetryMin, firstRetry),
		cmp.Or(i.Options.RetryMax, lastRetry)
	i.Options.Hooks = changefeed.JoinHooks(i.Options.Hooks, endingHooks(end), kept.hooks(ctx),
		failed.hooks(i.Log, i.Options), away.hooks(i.Log), parked.hooks())
	defer parked.reportParked(i.Say, i.Letters, i.boxName())
	if i.Once {
		defer i.endWhenHandled(ctx, end, source, store)()
	}
	processor, err := changefeed.New(source, store, h, i.Options)
	if err != nil {
		return flagError(err)
	}
	if i.Live != nil {
		i.Live.Begin(source, store, processor)
	}
	hide, err := i.Shown.Show(ctx, ui.Parts{
		Source: source, Leases: store, Letters: i.Options.OnFailure.DeadLetters, Processor: processor,
		Commands: i.commands(),
	})
	if err != nil {
		return err
	}
	defer hide()
	if err := processor.Run(ctx); err != nil {
		if i.Function != nil {
			return i.Function.explainRefusal(err)
		}
		return explained{i.explainRefusal(err), err}
	}
	signals.reportUnfinished()
	kept.reportKept(i.Say, i.Options.Expiration)
	cause := context.Cause(ctx)
	if left, ok := errors.AsType[*leftError](cause); ok {
		return left
	}
	if isFinal(cause) {
		return cause
	}
	return nil
}

// flagName returns the flag for a field of [changefeed.Options] or of a struct in it: the same words with dashes, with
// two exceptions.
func flagName(field string) string {
	field = field[strings.LastIndexByte(field, '.')+1:]
	switch field {
	case "HandlerTimeout":
		return "timeout"
	case "MaxItems":
		return "batch-size"
	case "Start":
		return "from"
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
