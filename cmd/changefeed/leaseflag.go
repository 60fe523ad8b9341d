package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// The flag --lease of the commands that steer a unit.

// registerLease adds the flag to select a lease.
func (o *steerOptions) registerLease(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.lease, "lease", "",
		"only the lease of this `range`, as changefeed leases shows it, or of a beginning that only one has")
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
	all, _, err := o.store.List(ctx)
	if err != nil {
		return admin.Selection{}, fmt.Errorf("read leases: %w", err)
	}
	return selectionOf(o.lease, all)
}

// selectionOf returns the leases that a text selects among the records of a unit: those of a range, or one by its
// beginning.
func selectionOf(text string, all []feed.Record) (admin.Selection, error) {
	leases := slices.DeleteFunc(slices.Clone(all), func(l feed.Record) bool {
		return l.Kind != feed.KindLease || l.State == feed.StateRetired
	})
	r, noRange := feed.ParseRange(text)
	isIn := func(l feed.Record) bool { return !l.Range.Empty() && r.Contains(l.Range) }
	if noRange == nil && slices.ContainsFunc(leases, isIn) {
		return admin.Of(r), nil
	}
	lease, err := unit.ChooseLease(text, leases)
	if _, isMissing := errors.AsType[usage.Missing](err); isMissing && noRange == nil {
		return admin.Of(r), nil // package admin says what is wrong with the range
	}
	if err == nil && lease.Range.Empty() {
		err = fmt.Errorf("lease %s, whose range is unknown, cannot be steered: %w", lease.Token, lease.Err)
	}
	return admin.Of(lease.Range), err
}
