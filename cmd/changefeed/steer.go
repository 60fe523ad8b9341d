package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// The commands leases pause and resume, and the common parts of all commands that steer a unit. Package admin does the
// work.

// steerOptions are the flags of the commands to steer a unit.
type steerOptions struct {
	placeFlags
	name   string
	source string
	lease  string
	wait   time.Duration
	whoFlags
	sure   confirm.Flags
	report *report.Report

	// Once the unit is open:
	commands unit.Commands
	opened   feed.Source
	store    feed.LeaseStore
	moved    map[string]string // moves of a reset, by the tokens of leases
	isKey    bool              // a single key is reset
}

// registerUnit adds the flags to name a unit.
func (o *steerOptions) registerUnit(cmd *cobra.Command) {
	o.container = unit.DefaultContainer
	o.placeFlags.register(cmd)
	cmd.Flags().StringVar(&o.name, "name", "", "`name` of the deployment unit")
	cmd.Flags().StringVar(&o.source, "source", "",
		"`address` of the container that the unit reads, if several units have this name")
	_ = cmd.MarkFlagRequired("name") // fails only for an unknown flag
}

// registerSteps adds the flags of a command which changes leases.
func (o *steerOptions) registerSteps(cmd *cobra.Command) { o.registerChange(cmd, stepKind) }

// registerChange adds the flags of a command that changes leases, and writes objects of a kind.
func (o *steerOptions) registerChange(cmd *cobra.Command, kind report.Kind) {
	o.registerUnit(cmd)
	o.registerWho(cmd)
	cmd.Flags().DurationVar(&o.wait, "wait", 30*time.Second, "how long to wait for the instances of the unit")
	o.sure.Register(cmd.Flags())
	cmd.Flags().Lookup("yes").Usage = "do not ask; needed without a terminal"
	cmd.Flags().Lookup("dry-run").Usage = "list the changes without making them"
	o.report = outputRows(cmd, kind)
}

// whoFlags are the flags to say who acts, and why.
type whoFlags struct{ by, reason string }

// registerWho adds the flags to a command.
func (o *whoFlags) registerWho(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.by, "by", "", "who, `text` for others (default your user and host)")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, `text` for others who look at the leases")
}

// withUnit opens the unit named by the command line, and calls f with the unit. of names the unit for people.
func (o *steerOptions) withUnit(cmd *cobra.Command, args []string, f func(u *admin.Unit, of string) error) error {
	at, err := o.containerAddress(cmd, args)
	if err != nil {
		return err
	}
	if o.wait <= 0 && cmd.Flags().Lookup("wait") != nil { // before anything is asked or read
		return usage.Flag("wait", terminal.Exact(o.wait), "more than 0, such as 30s")
	}
	if err := o.checkLease(); err != nil {
		return err
	}
	return o.withOpener(func(opener *place.Opener) error {
		opening, cancel := cmd.Context(), func() {}
		if o.wait > 0 {
			opening, cancel = context.WithTimeout(opening, o.wait)
		}
		source, store, err := o.open(opening, opener, at)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("the leases cannot be read within --wait %v: %w", o.wait, err)
		}
		if err != nil {
			return err
		}
		o.opened, o.store = source.Source, store
		return f(admin.Open(source.Source, store, o.settings()), o.name+" on "+source.Address.Name())
	})
}

// acting returns who acts, and why.
func (o *whoFlags) acting() admin.Options {
	return admin.Options{By: cmp.Or(o.by, whoami()), Reason: o.reason}
}

// settings returns who acts, and how.
func (o *steerOptions) settings() admin.Options {
	options := o.acting()
	options.DryRun = o.sure.DryRun
	return options
}

// open opens the container read by the unit, and the leases of the unit.
func (o *steerOptions) open(ctx context.Context, opener *place.Opener, at place.Address) (*place.Container,
	feed.LeaseStore, error,
) {
	leases, err := opener.Open(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	o.commands = unit.CommandsOf(at, o.name, nil)
	if o.source == "" {
		among, err := opener.Neighbours(ctx, leases)
		if err != nil {
			return nil, nil, err
		}
		o.commands = unit.CommandsOf(at, o.name, among)
		return unit.Find(ctx, leases, among, o.name)
	}
	o.commands.Source = o.source
	from, err := opener.Parse("--source", o.source)
	if err != nil {
		return nil, nil, err
	}
	source, err := opener.Open(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	store, err := unit.OpenStore(ctx, leases, o.name, source)
	return source, store, err
}

// whoami returns the user and the machine, for the records of requests.
func whoami() string {
	host, _ := os.Hostname() // without a name, the user alone
	if u, err := user.Current(); err == nil {
		return u.Username + "@" + host
	}
	return "somebody@" + host
}

// step is an action on a lease, for programs.
type step struct {
	Action string          `json:"action" about:"pause, resume or reset"`
	Lease  string          `json:"lease" about:"token of the lease"`
	Range  string          `json:"range" about:"of effective partition keys, min-max in hex"`
	Owner  *string         `json:"owner" about:"instance that had the lease; null if the lease was free"`
	From   *string         `json:"from" about:"position before; null if the lease had none"`
	To     *string         `json:"to" about:"position after a reset; null for the other actions"`
	Done   bool            `json:"done" about:"false after a dry run, and for leases that an error has left"`
	Key    json.RawMessage `json:"key" about:"the partition key of a reset with --key, an array; null for all others"`
}

// ReportedAs implements [report.Value].
func (step) ReportedAs() string { return "step" }

var stepKind = report.Kind{
	Name: "step", About: "The change of a lease: leases pause, resume, reset and restore.", Of: step{},
}

// steer does something to the leases of the unit, and reports each step. Steps done are reported before an error.
func (o *steerOptions) steer(cmd *cobra.Command, do func(context.Context) ([]admin.Step, error)) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), o.wait)
	defer cancel()
	steps, err := do(ctx)
	unread := o.writeSteps(steps, err)
	return cmp.Or(explainSteering(o.complete(err)), unread) // an output without a reader hides no failure
}

// complete returns an error whose commands can be pasted.
func (o *steerOptions) complete(err error) error {
	if err == nil || o.commands.Complete(err.Error()) == err.Error() {
		return err
	}
	return completedError{err, o.commands.Complete(err.Error())}
}

// completedError is an error with another text.
type completedError struct {
	error
	text string
}

// Error implements error.
func (e completedError) Error() string { return e.text }

// Unwrap returns the error.
func (e completedError) Unwrap() error { return e.error }

// writeSteps reports the steps before an error.
func (o *steerOptions) writeSteps(steps []admin.Step, err error) error {
	rows := o.report.Rows()
	for _, s := range steps {
		switch {
		case !o.report.ForPeople():
			if err := rows.Add(stepLine(s)); err != nil {
				return err
			}
		case s.Done || o.sure.DryRun:
			if err := o.writeStep(s); err != nil {
				return err
			}
		}
	}
	if o.report.ForPeople() {
		return o.writeNothing(steps, err)
	}
	return rows.Flush()
}

// writeStep writes a step for people.
func (o *steerOptions) writeStep(s admin.Step) error {
	_, err := fmt.Fprintln(o.report.Out, terminal.OneLine(s.String()+o.moved[s.Lease.Token]))
	return err
}

// writeNothing says: there was nothing to do.
func (o *steerOptions) writeNothing(steps []admin.Step, failed error) error {
	if len(steps) > 0 || failed != nil {
		return nil
	}
	_, err := fmt.Fprintln(o.report.Out, "nothing to do")
	return err
}

// stepLine returns a step for programs.
func stepLine(s admin.Step) step {
	line := step{Action: string(s.Action), Lease: s.Lease.Token, Range: s.Lease.Range.String(), Done: s.Done}
	if s.Key != "" {
		line.Key = json.RawMessage(s.Key)
	}
	for to, text := range map[**string]string{
		&line.Owner: s.Lease.Owner, &line.From: unit.PositionText(s.Lease.Position), &line.To: unit.PositionText(s.To),
	} {
		if text != "" {
			*to = &text
		}
	}
	return line
}

// explainSteering gives errors of package admin the exit codes of the command.
func explainSteering(err error) error {
	switch {
	case errors.Is(err, feed.ErrNotFound):
		return usage.Missing{Err: err}
	case errors.Is(err, feed.ErrBadRequest):
		return usage.Error{Err: err}
	}
	return err
}

// leasesPauseCommand is the command leases pause.
func leasesPauseCommand() *cobra.Command {
	var o steerOptions
	cmd := &cobra.Command{
		Use:   "pause [ADDRESS] --name NAME",
		Short: "Stop the deliveries of a unit or a lease until leases resume",
		Long: `All instances of the unit give the leases up, and take none of them until changefeed leases resume. A batch in a
handler is finished first. The command ends when no instance has any of the leases. While no instance runs, the command
takes the leases itself.

A processor of another kind (.NET, Java) does not know that a unit is paused.`,
		Example: `  changefeed leases pause cosmos:shop/leases --name mailer --reason INC-4711
  changefeed leases pause --db data --name mailer --lease 05C1-0BF3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withUnit(cmd, args, func(u *admin.Unit, _ string) error {
				chosen, err := o.selection(cmd.Context())
				if err != nil {
					return err
				}
				return o.steer(cmd, func(ctx context.Context) ([]admin.Step, error) {
					steps, err := u.Pause(ctx, chosen)
					if len(steps) > 0 {
						o.sayEarlier(steps[0].Earlier)
					}
					return steps, err
				})
			})
		},
	}
	o.registerSteps(cmd)
	cmd.Flags().Lookup("yes").Usage = "as for other commands; nothing is asked here"
	o.registerLease(cmd)
	return cmd
}

// sayEarlier says who had paused the leases already, and why: the earlier pause stays.
func (o *steerOptions) sayEarlier(q *admin.Request) {
	if q == nil {
		return
	}
	why := ""
	if q.Reason != "" {
		why = ": " + terminal.OneLine(q.Reason)
	}
	o.report.Notice("%s had paused %s already%s; that pause stays as it is, with its author and reason",
		terminal.OneLine(cmp.Or(q.By, "somebody")), q.Of, why)
}

// leasesResumeCommand is the command leases resume.
func leasesResumeCommand() *cobra.Command {
	var o steerOptions
	cmd := &cobra.Command{
		Use:   "resume [ADDRESS] --name NAME",
		Short: "Deliver the changes of a paused unit or lease again",
		Long: `The instances of the unit take the leases, and go on after the last change that was handled. A lease that was paused
with the whole unit cannot be resumed alone.`,
		Example: `  changefeed leases resume http://127.0.0.1:8081/shop/leases --name mailer`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withUnit(cmd, args, func(u *admin.Unit, _ string) error {
				chosen, err := o.selection(cmd.Context())
				if err != nil {
					return err
				}
				return o.steer(cmd, func(ctx context.Context) ([]admin.Step, error) {
					return u.Resume(ctx, chosen)
				})
			})
		},
	}
	o.registerSteps(cmd)
	cmd.Flags().Lookup("yes").Usage = "as for other commands; nothing is asked here"
	o.registerLease(cmd)
	return cmd
}

// ask asks before positions are changed.
func (o *steerOptions) ask(cmd *cobra.Command, question string) (bool, error) {
	person := confirm.AtTerminal(cmd.Context(), cmd.ErrOrStderr())
	return o.sure.Ask(cmd.Context(), person, confirm.Question{Text: question})
}
