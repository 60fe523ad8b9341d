// Package functions runs the functions of an Azure Functions app: an instance of a unit for each function, and one
// program for all of them.
package functions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/instance"
	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/function"
)

// Settings are what the app does not say.
type Settings struct {
	Options changefeed.Options // Instance, Drain and OnFailure
	Grace   time.Duration      // between SIGTERM and SIGKILL of the program
	Letters string             // address of a container for dead letters, or a file; empty if there is none
	Create  bool               // make the container of Letters
	Once    bool               // end when all changes are handled
	Account place.Settings     // for Letters, and the certificate of servers

	Stores  *place.Opener // see [instance.Settings]
	Signals []os.Signal   // see [instance.Settings]
	UI      *ui.UI        // see [instance.Settings]

	Log         *slog.Logger // of the processors
	FunctionLog *slog.Logger // of the functions and their program
	Say         func(text string)
	Exit        func()
}

// noTimeout stands for no limit of an invocation.
const noTimeout = 100 * 365 * 24 * time.Hour

// CheckAny returns an error if no function of an app could run, or none of those that --function names.
func CheckAny(app *function.App, only ...string) error {
	if len(app.Functions) > 0 {
		return nil
	}
	if len(only) > 0 {
		return usage.Missing{Err: fmt.Errorf("--function is %s: no function of this name has a Cosmos DB trigger "+
			"that could run", strings.Join(only, ","))}
	}
	text := "the app has no function with a Cosmos DB trigger that could run"
	if len(app.Notices) == 0 { // they say why the functions that are there do not run
		text += ": want a directory with a function.json for each function"
	}
	return usage.Missing{Err: errors.New(text)}
}

// Run runs the functions of an app until ctx ends. If a function cannot run, all end.
func Run(ctx context.Context, app *function.App, s Settings) (err error) {
	if s.Exit != nil {
		s.Exit = sync.OnceFunc(s.Exit) // each function calls it, and the program is that of all
	}
	instances, err := s.newInstances(app)
	if err != nil {
		return err
	}
	opener := place.NewOpener(s.Account)
	opener.Log = s.Log
	defer func() { err = cmp.Or(err, opener.Close()) }()
	outputs := make([]map[string]function.Upserter, len(instances))
	for i, f := range app.Functions {
		if outputs[i], err = openOutputs(ctx, opener, app, f); err != nil {
			return inFunction(f.Name, err)
		}
	}
	host, err := function.NewHost(app, function.HostOptions{
		Environment: app.Environ, Grace: s.Grace, Drain: s.Options.Drain, Log: s.FunctionLog,
	})
	if err != nil {
		return err
	}
	host.Start(ctx)
	defer instance.CloseWatched(ctx, host, s.Signals, s.Exit)
	outer := ctx
	ctx, end := context.WithCancel(ctx)
	defer end()
	failed := make([]error, len(instances))
	var running sync.WaitGroup
	for i, one := range instances {
		h := host.Handler(&app.Functions[i], outputs[i])
		running.Go(func() {
			err := one.Run(ctx, func(*place.Container) (instance.Handler, error) { return h, nil })
			if err == nil || ctx.Err() != nil && outer.Err() == nil && errors.Is(err, context.Canceled) {
				return // another function has ended this one
			}
			failed[i] = inFunction(app.Functions[i].Name, err)
			end()
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// Check opens the containers of an app, tests the rights, as [instance.Instance.Check] does, and looks for the program.
// It makes and starts nothing.
func Check(ctx context.Context, app *function.App, s Settings) (err error) {
	instances, err := s.newInstances(app)
	if err != nil {
		return err
	}
	opener := place.NewOpener(s.Account)
	opener.Log = s.Log
	defer func() { err = cmp.Or(err, opener.Close()) }()
	var failures []error
	for i, one := range instances {
		if err := cmp.Or(one.Check(ctx), checkOutputs(ctx, opener, app, app.Functions[i])); err != nil {
			failures = append(failures, inFunction(app.Functions[i].Name, err))
		}
	}
	_, noProgram := function.NewHost(app, function.HostOptions{Environment: app.Environ, Log: s.FunctionLog})
	return errors.Join(append(failures, noProgram)...)
}

// checkOutputs opens the containers that a function writes, except those that Run makes.
func checkOutputs(ctx context.Context, opener *place.Opener, app *function.App, f function.Function) error {
	for _, out := range f.Outputs {
		if _, _, err := openOutput(ctx, opener, app, out); err != nil && !(isMissing(err) && out.Create) {
			return err
		}
	}
	return nil
}

// newInstances returns the instances of the functions of an app.
func (s Settings) newInstances(app *function.App) (all []*instance.Instance, err error) {
	if err := CheckAny(app); err != nil {
		return nil, err
	}
	for i := range app.Functions {
		one, err := s.newInstance(app, &app.Functions[i])
		if err != nil {
			return nil, inFunction(app.Functions[i].Name, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// inFunction adds the name of a function to an error.
func inFunction(name string, err error) error { return fmt.Errorf("function %s: %w", name, err) }

// startOf returns where new leases of a function begin.
func startOf(t function.Trigger) feed.Start {
	switch {
	case t.FromBeginning:
		return feed.FromBeginning()
	case !t.FromTime.IsZero():
		return feed.FromTime(t.FromTime)
	}
	return feed.FromNow()
}

// newInstance returns the instance of a function.
func (s Settings) newInstance(app *function.App, f *function.Function) (*instance.Instance, error) {
	t := f.Trigger
	source, err := loginOf(app, t.Connection, t.Regions)
	if err != nil {
		return nil, err
	}
	leases, err := loginOf(app, t.LeaseConnection, t.Regions)
	if err != nil {
		return nil, err
	}
	o := s.Options
	o.Start, o.MaxItems = startOf(t), t.MaxItems
	o.Poll, o.Acquire, o.Expiration, o.Renew = t.Poll, t.Acquire, t.Expiration, t.Renew
	// The host ends an invocation after Timeout. Only what the host cannot end reaches the limit of the processor.
	o.HandlerTimeout = cmp.Or(2*app.Timeout, noTimeout)
	if t.AllVersions {
		o.Mode = feed.AllVersionsAndDeletes
	}
	if s.Letters != "" && o.OnFailure.MaxAttempts == 0 && o.OnFailure.MaxAge == 0 {
		if f.Retry == nil || f.Retry.Max < 0 {
			return nil, usage.Error{Err: errors.New("--dead-letters is set, and the function has no retry policy with " +
				"an end: want --max-attempts or --max-age beside it")}
		}
		o.OnFailure.MaxAttempts = 1 + f.Retry.Max
	}
	say := s.Say
	if say != nil {
		say = func(text string) { s.Say(f.Name + ": " + text) }
	}
	return instance.New(instance.Settings{
		Name: t.LeasePrefix, Create: t.CreateLeases || s.Create, Letters: s.Letters, Once: s.Once, Account: s.Account,
		Options: o, Log: s.Log.With("function", f.Name), Say: say, Exit: s.Exit, Stores: s.Stores, Signals: s.Signals,
		UI: s.UI,
		Function: &instance.Function{
			Name: f.Name, Throughput: t.LeaseThroughput,
			Source: source.Address("the monitored container", t.Database, t.Container),
			Leases: leases.Address("the lease container", t.LeaseDatabase, t.LeaseContainer),
		},
	})
}

// openOutputs opens the containers that a function writes.
func openOutputs(ctx context.Context, opener *place.Opener, app *function.App, f function.Function) (
	all map[string]function.Upserter, err error,
) {
	all = map[string]function.Upserter{}
	for _, out := range f.Outputs {
		at, target, err := openOutput(ctx, opener, app, out)
		if isMissing(err) && out.Create {
			if err = makeOutput(ctx, opener, at, out); err != nil {
				return nil, err
			}
			target, err = items.Open(ctx, opener, at)
		}
		if err != nil {
			return nil, err
		}
		all[out.Name] = output{target}
	}
	return all, nil
}

// openOutput opens the container of an output.
func openOutput(ctx context.Context, opener *place.Opener, app *function.App, out function.Output) (
	at place.Address, target *items.Target, err error,
) {
	login, err := loginOf(app, out.Connection, out.Regions)
	if err != nil {
		return at, nil, err
	}
	at = login.Address("output "+out.Name, out.Database, out.Container)
	target, err = items.Open(ctx, opener, at)
	switch {
	case isMissing(err) && !out.Create:
		err = fmt.Errorf("%w; Azure makes the container if createIfNotExists is true", err)
	case isMissing(err) && out.PartitionKey == "":
		err = fmt.Errorf("%s is missing, and the binding has no partitionKey: want its path, such as /city", at.Quote())
	}
	return at, target, err
}

// isMissing reports whether an error means that a container does not exist.
func isMissing(err error) bool {
	return errors.Is(err, feed.ErrNotFound) || errors.Is(err, place.ErrNoContainer) ||
		errors.Is(err, place.ErrNoDatabase)
}

// makeOutput makes the container of an output.
func makeOutput(ctx context.Context, opener *place.Opener, at place.Address, out function.Output) error {
	_, err := opener.Make(ctx, at, place.Wanted{
		Spec: docstore.ContainerSpec{Paths: []string{out.PartitionKey}}, Throughput: out.Throughput,
		Given: func(string) bool { return false },
	})
	return err
}

// output writes the documents of an output binding.
type output struct{ to *items.Target }

// Upsert implements [function.Upserter].
func (o output) Upsert(ctx context.Context, document json.RawMessage) error {
	_, err := o.to.Put(ctx, document, items.Write{})
	return err
}
