package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
)

// The command leases gc removes leases and records that nobody needs. Package admin does the work within a unit;
// cmd/changefeed/internal/unit finds the leftovers of units whose containers do not exist any more.

// leasesGCCommand is the command leases gc.
func leasesGCCommand() *cobra.Command {
	var o steerOptions
	cmd := &cobra.Command{
		Use:   "gc [ADDRESS] --name NAME",
		Short: "Remove leases and records of a unit that nobody needs",
		Long: `Instances that have the right to delete remove their own leftovers. This command removes the others: the
presence of instances that have shown no life for ten minutes, requests whose time is over, leases that others have
replaced, marks of a pause that is over (if no instance runs), and all documents of units of this name whose container
does not exist any more, ten minutes after the last write to any of them; before, the command says when. A container of
another account or database may exist, so leases for such a container stay.

Nothing is removed that a running instance may need, and no document that was written since the listing. On a terminal
the command lists the removals, and asks; elsewhere --yes is required, or --dry-run to see the list.`,
		Example: `  changefeed leases gc --db data --name mailer --dry-run
  changefeed leases gc cosmos:shop/leases --name mailer --yes`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.collect(cmd, args) },
	}
	o.registerUnit(cmd)
	o.registerWho(cmd)
	o.sure.Register(cmd.Flags())
	o.report = outputRows(cmd, unit.RemovalKind)
	return cmd
}

// collect lists the surplus records, asks, and removes them.
func (o *steerOptions) collect(cmd *cobra.Command, args []string) error {
	at, err := o.containerAddress(cmd, args)
	if err != nil {
		return err
	}
	return o.withOpener(func(opener *place.Opener) error {
		g, err := o.findGarbage(cmd.Context(), opener, at)
		if err != nil {
			return explainSteering(err)
		}
		verb, listed := o.sure.Verb("removed", "remove"), g.List()
		ready := slices.DeleteFunc(slices.Clone(listed), func(r unit.Removal) bool { return r.Left != nil })
		if len(ready) == 0 || o.sure.DryRun {
			return unit.WriteRemovals(o.report, verb, listed)
		}
		person := confirm.AtTerminal(cmd.Context(), cmd.ErrOrStderr())
		if person.Present && !o.sure.Yes {
			if err := unit.WriteRemovalLines(person.Out, "would remove", listed); err != nil {
				return err
			}
		}
		sure, err := o.sure.Ask(cmd.Context(), person, confirm.Question{
			Text: fmt.Sprintf("Remove %s of unit %s?", terminal.Count(len(ready), "record"), o.name),
		})
		if err != nil || !sure {
			return err
		}
		done, err := g.Remove(cmd.Context())
		unread := unit.WriteRemovals(o.report, verb, done)
		return cmp.Or(explainSteering(err), unread) // an output without a reader hides no failure
	})
}

// findGarbage finds the surplus records.
func (o *steerOptions) findGarbage(ctx context.Context, opener *place.Opener, at place.Address) (g unit.Garbage,
	err error,
) {
	if g.Leases, err = opener.Open(ctx, at); err != nil {
		return g, err
	}
	among, err := opener.Neighbours(ctx, g.Leases)
	if err != nil {
		return g, err
	}
	if g.Orphans, err = unit.Orphans(ctx, g.Leases, among, o.name); err != nil {
		return g, err
	}
	source, store, err := o.open(ctx, opener, at)
	if _, unknown := errors.AsType[unit.UnknownError](err); unknown && len(g.Orphans) > 0 {
		return g, nil
	}
	if err != nil {
		return g, err
	}
	g.Unit = admin.Open(source.Source, store, o.settings())
	g.Surplus, err = g.Unit.Surplus(ctx)
	return g, err
}
