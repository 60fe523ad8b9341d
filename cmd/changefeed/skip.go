package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The command leases skip: a batch or a change at which a lease fails counts as done.

// skipped is a change that was skipped, for programs.
type skipped struct {
	Lease    string          `json:"lease" about:"token of the lease"`
	ID       string          `json:"id" about:"of the document"`
	Key      json.RawMessage `json:"key" about:"the partition key, an array"`
	LSN      int64           `json:"lsn" about:"of the change"`
	Attempts int             `json:"attempts" about:"how often the handler has received the change"`
	Since    time.Time       `json:"since" about:"time of the first failure"`
	Done     bool            `json:"done" about:"false after a dry run, and if an error prevented the skip"`
}

// ReportedAs implements [report.Value].
func (skipped) ReportedAs() string { return "skip" }

var skipKind = report.Kind{Name: "skip", About: "A change that was skipped: leases skip.", Of: skipped{}}

// skipOptions are the flags of leases skip.
type skipOptions struct {
	steerOptions
	change string
	key    arg.Key
	lsn    int64
}

// leasesSkipCommand is the command leases skip.
func leasesSkipCommand() *cobra.Command {
	var o skipOptions
	cmd := &cobra.Command{
		Use:   "skip [ADDRESS] --name NAME [--change ID]",
		Short: "Skip the batch or the change at which a lease fails",
		Long: `The handler does not get these changes any more, and later changes of their keys go on. Without --change, --key and --lsn
the whole batch is skipped that the lease has failed at for the longest; with them a single change that fails. The owner
of the lease finishes the batch in the handler first. If the lease has then passed any of the changes, or the change
does not fail any more, nothing is skipped, and the command says so.

A skip leaves a line in the history (changefeed leases history). A reset to an earlier position brings the changes back. On
a terminal the command lists the changes and asks; elsewhere --yes is required, or --dry-run to see the list.`,
		Example: `  changefeed leases skip --db data --name mailer --dry-run
  changefeed leases skip cosmos:shop/leases --name mailer --change order-7
  changefeed leases skip --db data --name mailer --key '["oslo"]' --lsn 42 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.registerChange(cmd, skipKind)
	o.registerLease(cmd)
	cmd.Flags().StringVar(&o.change, "change", "", "only the failing change of the document with this `ID`")
	cmd.Flags().Var(&o.key, "key", "only a failing change of this partition key, such as '[\"oslo\"]'")
	cmd.Flags().Int64Var(&o.lsn, "lsn", 0, "only a failing change with the LSN `N`")
	return cmd
}

// run finds failing changes, asks, and skips the shown changes.
func (o *skipOptions) run(cmd *cobra.Command, args []string) error {
	if o.lsn < 0 || o.lsn == 0 && cmd.Flags().Changed("lsn") {
		return usage.Flag("lsn", fmt.Sprint(o.lsn), "the LSN of a change, more than 0")
	}
	return o.withUnit(cmd, args, func(u *admin.Unit, of string) error {
		chosen, err := o.selection(cmd.Context())
		if err != nil {
			return err
		}
		all, err := u.Failing(cmd.Context(), chosen)
		if err != nil {
			return explainSteering(err)
		}
		f, err := unit.PickFailing(all, of, o.meant())
		if err != nil {
			return err
		}
		if sure, err := o.askToSkip(cmd, f, of); err != nil || !sure && !o.sure.DryRun {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), o.wait)
		defer cancel()
		done, err := u.Skip(ctx, f)
		unread := o.writeSkip(done, o.sure.Verb("skipped", "skip"), err)
		return cmp.Or(explainSteering(err), unread) // an output without a reader hides no failure
	})
}

// meant returns the description of the changes to skip in the flags.
func (o *skipOptions) meant() unit.MeantChange {
	return unit.MeantChange{ID: o.change, Key: o.key.Value, LSN: o.lsn}
}

// askToSkip shows the changes on a terminal, and asks.
func (o *skipOptions) askToSkip(cmd *cobra.Command, f admin.Failing, of string) (bool, error) {
	person := confirm.AtTerminal(cmd.Context(), cmd.ErrOrStderr())
	if person.Present && !o.sure.Yes && !o.sure.DryRun {
		for _, c := range f.Changes {
			if _, err := fmt.Fprintf(person.Out, "would skip %s\n", unit.NameOfFailed(c)); err != nil {
				return false, err
			}
		}
	}
	return o.ask(cmd, skipQuestion(f, of))
}

// skipQuestion is the question before changes are skipped.
func skipQuestion(f admin.Failing, of string) string {
	whole := ""
	if len(f.Changes) > 1 {
		whole = ", also the good ones of the batch (--change names one)"
	}
	return fmt.Sprintf("Skip %s of lease %s of %s%s?", terminal.Count(len(f.Changes), "change"), f.Lease.Token, of,
		whole)
}

// writeSkip reports the changes before an error.
func (o *skipOptions) writeSkip(f admin.Failing, verb string, failed error) error {
	rows := o.report.Rows()
	for _, c := range f.Changes {
		line := skipped{
			Lease: f.Lease.Token, ID: c.ID, Key: json.RawMessage(c.Key), LSN: c.LSN, Attempts: f.Attempts,
			Since: f.Since, Done: f.Done,
		}
		switch {
		case !o.report.ForPeople():
			if err := rows.Add(line); err != nil {
				return err
			}
		case failed == nil || f.Done:
			if _, err := fmt.Fprintf(o.report.Out, "%s %s, of lease %s: %s since %s\n", verb,
				unit.NameOfFailed(c), f.Lease.Token, terminal.Count(f.Attempts, "attempt"),
				f.Since.Format(time.RFC3339)); err != nil {
				return err
			}
		}
	}
	if o.report.ForPeople() {
		return nil
	}
	return rows.Flush()
}
