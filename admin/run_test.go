package admin_test

import (
	"context"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// runOnce makes the leases of a unit, and ends.
func runOnce(ctx context.Context, source feed.Source, leases feed.LeaseStore) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	handler := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
	p, err := changefeed.New(source, leases, handler, changefeed.Options{
		Instance: "one", Start: feed.FromBeginning(),
		Hooks: changefeed.Hooks{Ready: func(context.Context) { cancel() }},
	})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}
