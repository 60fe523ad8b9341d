package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

// leaseAccount returns the account of the leases and the letters.
func (s *Settings) leaseAccount() place.Settings {
	if s.LeaseAccount != nil {
		return *s.LeaseAccount
	}
	return s.Account
}

// openerBeside returns the opener of the leases and the letters, and what closes it.
func (i *Instance) openerBeside(o *place.Opener) (beside *place.Opener, closeBeside func() error) {
	if i.LeaseAccount == nil {
		return o, func() error { return nil }
	}
	beside = o.Sharing(*i.LeaseAccount)
	beside.Log = i.Log
	return beside, beside.Close
}

// findLeases opens the lease container; nil if there is none, and openLeases is to make the container.
func (i *Instance) findLeases(ctx context.Context, opener *place.Opener) (*place.Container, error) {
	leases, err := opener.Open(ctx, i.leases)
	switch {
	case i.Function != nil && i.Create && errors.Is(err, place.ErrNoDatabase):
		return nil, nil
	case !errors.Is(err, feed.ErrNotFound) && !errors.Is(err, place.ErrNoContainer):
		return leases, err
	case !i.Create && i.Function != nil:
		return nil, fmt.Errorf("%w; Azure makes the container if createLeaseContainerIfNotExists is true", err)
	case !i.Create:
		return nil, place.Advise(err, "--create-leases makes the lease container", i.Leases != "")
	}
	return nil, nil
}

// openLeases opens the lease store of the unit. openLeases tests at once the rights for later, such as the right to
// delete a lease after a split: a missing right should be an error at the start and not at night.
func (i *Instance) openLeases(ctx context.Context, opener *place.Opener, leases,
	monitored *place.Container,
) (_ feed.LeaseStore, err error) {
	switch {
	case leases == nil && i.Function != nil:
		if leases, err = opener.MakeLeases(ctx, i.leases, i.Function.Throughput); err != nil {
			return nil, err
		}
	case leases == nil:
		leases, err = opener.CreateLeases(ctx, i.leases)
		if errors.Is(err, feed.ErrNotFound) || errors.Is(err, place.ErrNoDatabase) {
			return nil, fmt.Errorf("%w; --create-leases makes the container, in a database that is there", err)
		}
		if err != nil {
			return nil, err
		}
	}
	open := unit.OpenStore
	if i.Function != nil {
		open = unit.OpenFunction
	}
	store, err := open(ctx, leases, i.Name, monitored)
	// Only an account has rights. In a store and its files there is nothing to test.
	if remote, ok := store.(*cosmos.Leases); ok && err == nil {
		err = remote.SelfTest(ctx, monitored.Remote, i.Options.Mode)
	}
	return store, err
}

// explained is an error with a text for the user. Programs recognize its cause.
type explained struct {
	error

	cause error
}

// Unwrap returns what the text is of, and the cause.
func (e explained) Unwrap() []error { return []error{e.error, e.cause} }

// explainRefusal explains why a unit does not fit the flags, and which flags to use instead.
func (i *Instance) explainRefusal(err error) error {
	commands := unit.CommandsOf(i.leases, i.Name, nil)
	anew := commands.Complete("to begin anew, take another --name, or first delete its leases: changefeed leases delete")
	wrong, ok := errors.AsType[*feed.StartError](err)
	switch {
	case ok && len(wrong.Leases) > 0:
		return fmt.Errorf("unit %q has leases without a position, and nothing says where it began: add --from as its "+
			"other processors have it (beginning, or a time), or --from now to skip what was written before (%s)",
			i.Name, strings.Join(wrong.Leases, ", "))
	case ok:
		return usage.Error{Err: fmt.Errorf("--from is %s, but unit %q began from %s at %s: leave --from out, or give "+
			"it as it was, to go on where it is; to continue elsewhere: %s; %s",
			wrong.Given, i.Name, wrong.Began, wrong.Since.Format(time.RFC3339),
			commands.Complete("changefeed leases reset --to START"), anew)}
	case errors.Is(err, feed.ErrLeasesGone):
		return fmt.Errorf("unit %q stands still: %w; restore %s, or start again, with --create-leases if it is "+
			"missing and --from where the unit is to begin (beginning, a time, or now to pass over what was "+
			"written before)",
			i.Name, err, i.leases.String())
	case errors.Is(err, feed.ErrSourceGone):
		return fmt.Errorf("unit %q has ended: %w; its leases are in %s still. When there is a container again, it is "+
			"another one: start again with --from where the unit is to begin (beginning, a time, or now to pass over "+
			"what was written before)",
			i.Name, err, i.leases.String())
	case errors.Is(err, feed.ErrModeChanged):
		return usage.Error{Err: fmt.Errorf("--mode is %s, but unit %q has leases of the other mode: %s",
			&arg.Mode{Value: i.Options.Mode}, i.Name, anew)}
	case errors.Is(err, leasedoc.ErrSecondSet):
		return fmt.Errorf("unit %q has two sets of leases, made by different names of this machine: %s", i.Name,
			unit.CommandsOf(i.leases, "BEGINNING", nil).Complete("changefeed leases shows both, and changefeed leases "+
				"delete removes that whose ids have this beginning, up to the dot"))
	case errors.Is(err, feed.ErrForeignLease):
		file := terminal.ShellWord(i.Name + ".json")
		name := terminal.ShellWord(i.Name + "-2")
		return fmt.Errorf("unit %q is a Java processor's, whose leases changefeed reads and does not write: stop it, and "+
			"continue at its positions under another name: %s > %s, then changefeed leases restore %[3]s %s --name %s "+
			"--source %s, then run with --name %[5]s; if no snapshot is possible, run with another --name and --from the "+
			"time of the oldest change that is pending there, which %s shows",
			i.Name, commands.Complete("changefeed leases snapshot"), file, terminal.ShellWord(i.leases.String()), name,
			terminal.ShellWord(cmp.Or(i.Source, "ADDRESS")), commands.Complete("changefeed leases"))
	}
	return err
}
