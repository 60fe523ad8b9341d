package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// What a reset or a restore would do, before it is done: the positions, and how many changes come again or are skipped.

// mostPreviewed is how many leases are listed before a question.
const mostPreviewed = 20

// changing changes positions of a unit.
type changing func(ctx context.Context, u *admin.Unit) ([]admin.Step, error)

// steerSure changes positions if the user agrees, who sees before what that does.
func (o *steerOptions) steerSure(cmd *cobra.Command, u *admin.Unit, question string, do changing) error {
	if err := o.preview(cmd, do); err != nil {
		return err
	}
	if sure, err := o.ask(cmd, question); err != nil || !sure && !o.sure.DryRun {
		return err
	}
	return o.steer(cmd, "reset", func(ctx context.Context) ([]admin.Step, error) { return do(ctx, u) })
}

// preview notes what a dry run of a reset would do, if somebody reads it: with --dry-run, or before a question. On a
// terminal it lists the leases. A source that cannot count, such as an account of Azure, has positions alone.
func (o *steerOptions) preview(cmd *cobra.Command, do changing) error {
	person := confirm.AtTerminal(cmd.Context(), cmd.ErrOrStderr())
	isAsked := person.Present && !o.sure.Yes && !o.sure.DryRun
	if !isAsked && !o.sure.DryRun && !o.isKey {
		return nil
	}
	dry := o.settings()
	dry.DryRun = true
	steps, err := do(cmd.Context(), admin.Open(o.opened, o.store, dry))
	if err != nil {
		return explainSteering(o.complete(err))
	}
	o.moved = map[string]string{}
	for _, s := range steps {
		o.moved[s.Lease.Token] = o.countMoved(cmd.Context(), s)
	}
	if !isAsked {
		if o.isKey && !o.sure.DryRun && len(steps) == 1 && o.moved[steps[0].Lease.Token] == noSuchKey {
			o.report.Warn("%s", terminal.OneLine("key "+string(steps[0].Key)+noSuchKey))
		}
		if !o.sure.DryRun {
			o.moved = nil // said already
		}
		return nil
	}
	for i, s := range steps {
		text := stepText(s, "would reset", true) + o.moved[s.Lease.Token]
		if i == mostPreviewed {
			text = fmt.Sprintf("and %s more", terminal.Count(len(steps)-i, "lease"))
		}
		if _, err := fmt.Fprintln(person.Out, terminal.OneLine(text)); err != nil || i == mostPreviewed {
			return err
		}
	}
	return nil
}

// noSuchKey is said of a replay of a key that has no change to replay.
const noSuchKey = ": no change of the key is between the two positions, so nothing comes again: is the key right?"

// countMoved says how many changes lie between the two positions of a step; empty if nobody counts them.
func (o *steerOptions) countMoved(ctx context.Context, s admin.Step) string {
	counter, counts := o.opened.(feed.Counter)
	if !counts || s.Lease.Position == (feed.Position{}) {
		return ""
	}
	options := feed.ReadOptions{Mode: s.Lease.Mode, Key: s.Key}
	before, err := counter.Pending(ctx, s.Lease.Range, s.Lease.Position, options)
	if err != nil {
		return ""
	}
	after, err := counter.Pending(ctx, s.Lease.Range, s.To, options)
	if err != nil {
		return ""
	}
	switch moved := after.Items - before.Items; {
	case moved < 0:
		return ": " + terminal.Count(-moved, "change") + " skipped"
	case moved == 0 && s.Key != "":
		return noSuchKey
	case moved == 0:
		return ": no change between them"
	default:
		return ": " + terminal.Count(moved, "change") + " again"
	}
}
