package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// The command leases reset. Package admin does the work.

// leasesResetCommand is the command leases reset.
func leasesResetCommand() *cobra.Command {
	var o steerOptions
	var to arg.Start
	var after string
	var key arg.Key
	cmd := &cobra.Command{
		Use:   "reset [ADDRESS] --name NAME --to START",
		Short: "Make a unit, a lease or a partition key continue at another position",
		Long: `Changes after an earlier position are delivered again; changes before a later position are skipped. The
owner of a lease finishes the batch in hand and gives the lease up with the new position, so no instance can overwrite
it. Held partition keys are not held any more, and failed attempts do not count; dead letters stay. A paused lease stays
paused.

With --key the changes of a single partition key are delivered again, in their order; new changes of the key wait until
that is done. All other keys go on, and the position of the lease stays. The position of the reset must be earlier.

On a terminal the command asks first; elsewhere --yes is required. To be able to go back, take a snapshot before.`,
		Example: `  changefeed leases snapshot --db data --name mailer > before.json
  changefeed leases reset --db data --name mailer --to beginning
  changefeed leases reset --db data --name mailer --to 15m --dry-run
  changefeed leases reset --db data --name mailer --lease -FF --after '"42"'
  changefeed leases reset --db data --name mailer --key '["oslo"]' --to 24h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkReset(to.Value, after, key.Value, o.lease); err != nil {
				return err
			}
			return o.withUnit(cmd, args, func(u *admin.Unit, of string) error {
				chosen, err := o.selection(cmd.Context())
				if err != nil {
					return err
				}
				text := cmp.Or(after, to.String())
				if o.isKey = key.Value != ""; o.isKey {
					of = "key " + string(key.Value) + " of " + of
				}
				reset := func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
					switch {
					case key.Value != "":
						return resetKey(ctx, u, key.Value, to.Value, after)
					case after != "":
						return u.ResetTo(ctx, chosen, feed.At(after))
					}
					return u.Reset(ctx, chosen, to.Value)
				}
				err = o.steerSure(cmd, u, fmt.Sprintf("Reset %s to %s?", of, text), reset)
				if after != "" && errors.Is(err, feed.ErrBadRequest) && !strings.HasPrefix(after, `"`) {
					return usage.Flag("after", after, `a position as changefeed leases shows it, such as '"42"'`)
				}
				return err
			})
		},
	}
	o.registerSteps(cmd)
	o.registerLease(cmd)
	cmd.Flags().Var(&to, "to", "where to continue: beginning, now, a time, or how long ago, such as 15m")
	cmd.Flags().StringVar(&after, "after", "",
		"the `position` to continue at, as in changefeed leases; only with --lease")
	cmd.Flags().Var(&key, "key", "deliver only the changes of this partition key again, such as '[\"oslo\"]'")
	return cmd
}

// checkReset checks the flags of a reset.
func checkReset(to feed.Start, after string, key feed.PartitionKey, lease string) error {
	switch {
	case after != "" && !to.IsZero():
		return usage.Error{Err: errors.New("--to and --after are set: want one of them, because both say where to continue")}
	case after == "" && to.IsZero():
		return usage.Error{Err: errors.New("--to is missing: want beginning, now or a time; or --after with a " +
			"position")}
	case key != "" && after == "" && to.IsNow():
		return usage.Flag("to", "now", "beginning or a time, because a reset of one key delivers its changes again")
	case key != "" && lease != "":
		return usage.Error{Err: errors.New("--lease and --key are set: want one of them, because the key says which lease " +
			"has it")}
	}
	return nil
}

// resetKey delivers a key again.
func resetKey(ctx context.Context, u *admin.Unit, key feed.PartitionKey, to feed.Start, after string) ([]admin.Step,
	error,
) {
	if after != "" {
		return u.ResetKeyTo(ctx, key, feed.At(after))
	}
	return u.ResetKey(ctx, key, to)
}
