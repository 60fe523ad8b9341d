package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The flag --lease of the commands that steer a unit.

// registerLease adds the flag to select a lease.
func (o *steerOptions) registerLease(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.lease, "lease", "",
		"only the lease of this `range` (see changefeed leases), or of the only range that begins so")
}

// checkLease checks the flag to select a lease, before anything is opened.
func (o *steerOptions) checkLease() error {
	if strings.Trim(o.lease, "0123456789abcdefABCDEF-") != "" || strings.Count(o.lease, "-") > 1 {
		return usage.Flag("lease", o.lease, "the range of a lease, min-max in hex such as 05C1-0BF3, or its beginning")
	}
	return nil
}

// selection returns the leases selected by the flags, of the unit that was opened.
func (o *steerOptions) selection(ctx context.Context) (admin.Selection, error) {
	if o.lease == "" {
		return admin.All(), nil
	}
	return unit.SelectLeases(ctx, o.opened, o.store, o.lease)
}
