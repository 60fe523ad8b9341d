package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/instance"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/trigger/contract"
	"github.com/millrace/changefeed/trigger/program"
)

// The command run with a program that speaks the contract of trigger/contract: a program that run starts and keeps
// (--long-lived), or a program that has started run (--stdio).

// checkContract refuses flags that do not fit a program of the contract.
func (o *runOptions) checkContract(untilStdin bool) error {
	switch hasContract := o.longLived || o.stdio; {
	case o.longLived && o.stdio:
		return usage.Error{Err: errors.New("--long-lived and --stdio are set: want one of them")}
	case o.tokens && !o.stdio:
		return usage.Error{Err: errors.New("--token-from-program is set without --stdio: want both, because the parent " +
			"process gives the tokens")}
	case o.stdio && untilStdin:
		return usage.Error{Err: errors.New("--until-stdin-closes is set beside --stdio, which ends with standard input " +
			"anyway: want one of them")}
	case o.Options.Manual && !hasContract:
		return usage.Error{Err: errors.New("--manual is set without --long-lived or --stdio: a program that is started " +
			"for each batch confirms the batch when it exits with 0")}
	case hasContract && o.form.Meta && !o.mode.IsAll():
		return usage.Error{Err: errors.New("--meta is set beside --long-lived or --stdio: want none, because a program of " +
			"the contract has the metadata anyway")}
	case hasContract && o.jobs > 0:
		return usage.Flag("jobs", fmt.Sprint(o.jobs), "none beside --long-lived and --stdio: the hello of the program "+
			"says how many batches it handles at once")
	}
	return nil
}

// workerRunner returns the runner of the processor with a long-lived program.
func (o *runOptions) workerRunner(cmd *cobra.Command, i *instance.Instance, command []string) (runner, error) {
	var end context.CancelCauseFunc
	settings := o.workerOptions(i.Options.Instance)
	settings.Stdout, settings.Log = cmd.OutOrStdout(), i.Log
	settings.Stop = func() { end(nil) } // the program has begun, and so has the runner
	letAsk(i, &settings)
	worker, err := program.NewWorker(command, settings)
	if err != nil {
		return nil, wrongCommand(command, err)
	}
	return func(ctx context.Context) error {
		ctx, end = context.WithCancelCause(ctx)
		defer end(nil)
		defer instance.CloseWatched(cmd.Context(), worker, i.Signals, i.Exit)
		return inOrder(ctx, i.Run(ctx, func(*place.Container) (instance.Handler, error) {
			i.Options.Hooks = changefeed.JoinHooks(i.Options.Hooks, worker.Hooks())
			worker.Start(ctx)
			return worker, nil
		}))
	}, nil
}

// inOrder drops the error of an end for which the program has asked during the start: signals have another cause.
func inOrder(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}

// workerOptions returns the options of a contract's program in the flags.
func (o *runOptions) workerOptions(instance string) program.WorkerOptions {
	return program.WorkerOptions{
		Unit: o.Name, Instance: instance, Manual: o.Options.Manual, Timeout: o.Options.HandlerTimeout,
		Drain: o.Options.Drain, Grace: o.grace, Expiration: o.Options.Expiration,
	}
}

// letAsk lets a program ask questions about the unit.
func letAsk(i *instance.Instance, settings *program.WorkerOptions) {
	i.Live = unit.NewLive()
	settings.Status, settings.CaughtUp, settings.Hint = i.Live.Status, i.Live.CaughtUp, place.Hint
}

// parentRunner returns the runner of the processor with the parent process as the program, until the parent closes the
// pipe.
func (o *runOptions) parentRunner(cmd *cobra.Command, i *instance.Instance) runner {
	return func(ctx context.Context) error {
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		settings := o.workerOptions(i.Options.Instance)
		settings.Log, settings.Stop = i.Log, func() { end(nil) }
		letAsk(i, &settings)
		return o.runForParent(ctx, cmd, i, settings)
	}
}

// runForParent runs the processor with the parent process as the program, until the parent closes the pipe.
func (o *runOptions) runForParent(
	ctx context.Context, cmd *cobra.Command, i *instance.Instance, settings program.WorkerOptions,
) error {
	var parent *program.Parent
	attach := func() (err error) {
		if parent, err = program.Attach(ctx, os.Stdin, os.Stdout, settings); err != nil {
			return fmt.Errorf("speak to the parent process: %w", err)
		}
		return nil
	}
	if o.tokens { // the containers are opened with them
		if err := attach(); err != nil {
			return err
		}
		i.Account.Identity = lentIdentity{parent}
	}
	err := inOrder(ctx, i.Run(ctx, func(*place.Container) (instance.Handler, error) {
		if parent == nil {
			if err := attach(); err != nil {
				return nil, err
			}
		}
		i.Options.Hooks = changefeed.JoinHooks(i.Options.Hooks, parent.Hooks())
		return parent, nil
	}))
	if parent == nil {
		return err
	}
	if o.tokens && !parent.OffersTokens() && err != nil {
		err = usage.Error{Err: errNoTokens}
	}
	if ended := parent.Err(); err == nil && ended != nil && !errors.Is(ended, contract.ErrEnded) {
		err = ended
	}
	if err == nil {
		parent.Close()
		return nil
	}
	f := describeFailure(cmd, err, exitCode(cmd.Context(), err, true))
	parent.Fail(f.Error, f.Code, textOf(f.Reason), textOf(f.Hint))
	return err
}

// textOf returns a text that may be missing.
func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
