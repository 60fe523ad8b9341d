package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// The effect of a reset or a restore, shown in advance: the positions, and how many changes come again or are skipped.

// mostPreviewed is how many leases are listed before a question.
const mostPreviewed = 20

// changing changes positions of a unit.
type changing func(ctx context.Context, u *admin.Unit) ([]admin.Step, error)

// steerSure shows the effect of a change of positions, and makes the change if the user agrees.
func (o *steerOptions) steerSure(cmd *cobra.Command, u *admin.Unit, question string, do changing) error {
	if err := o.preview(cmd, do); err != nil {
		return err
	}
	if sure, err := o.ask(cmd, question); err != nil || !sure && !o.sure.DryRun {
		return err
	}
	return o.steer(cmd, func(ctx context.Context) ([]admin.Step, error) { return do(ctx, u) })
}

// preview notes the effect of a reset, if somebody reads the notes: with --dry-run, or before a question. On a terminal
// preview lists the leases. A source that cannot count, such as an account of Azure, has positions alone.
func (o *steerOptions) preview(cmd *cobra.Command, do changing) error {
	person := confirm.AtTerminal(cmd.Context(), cmd.ErrOrStderr())
	isAsked := person.Present && !o.sure.Yes && !o.sure.DryRun
	if !isAsked && !o.sure.DryRun && !o.isKey {
		return nil
	}
	dry := o.settings()
	dry.DryRun = true
	u := admin.Open(o.opened, o.store, dry)
	steps, err := do(cmd.Context(), u)
	if err != nil {
		return explainSteering(o.complete(err))
	}
	o.moved = map[string]string{}
	for _, s := range steps {
		moved, known := u.Moved(cmd.Context(), s)
		if !known {
			continue
		}
		o.moved[s.Lease.Token] = ": " + s.Effect(moved)
		if o.isKey && !isAsked && !o.sure.DryRun && moved == 0 {
			o.report.Warn("%s", terminal.OneLine("key "+string(s.Key)+": "+s.Effect(moved)))
		}
	}
	if !isAsked {
		if !o.sure.DryRun {
			o.moved = nil // said already
		}
		return nil
	}
	for i, s := range steps {
		text := s.String() + o.moved[s.Lease.Token]
		if i == mostPreviewed {
			text = fmt.Sprintf("and %s more", terminal.Count(len(steps)-i, "lease"))
		}
		if _, err := fmt.Fprintln(person.Out, terminal.OneLine(text)); err != nil || i == mostPreviewed {
			return err
		}
	}
	return nil
}
