package main

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/changeline"
	"github.com/millrace/changefeed/internal/place"
)

// The command export. It reads the feed of latest versions, because that is the one way
// to all documents that a store, the server and an account have in common.

// exportOptions are the flags of export.
type exportOptions struct {
	placeFlags
	selection
	system  bool
	wrecked bool
	output  *choice
}

// exportCommand is the command export.
func exportCommand() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export [ADDRESS]",
		Short: "Write the documents of a container, one a line",
		Long: `Write the documents of a container to standard output, one JSON document a line, as
they were given: what the store adds to them (_rid, _self, _etag, _attachments, _ts) is
left out unless --system asks for it. Those of one partition key come in the order of
their last writes, so that import makes the same container of them. With -o json it is
the same: documents are JSON.` + salvageHelp,
		Example: `  changefeed export --db data --container restaurants > restaurants.ndjson
  changefeed export --db data --container restaurants --key CF24 | jq .name
  changefeed export docstore:data#orders --key '["tenant 1", 5]' --system
  changefeed export --salvage --db data --container restaurants > left.ndjson
  changefeed export cosmos:shop/orders --endpoint https://contoso.documents.azure.com > orders.ndjson`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// A damaged store does not open, so salvage finds its own way to the
			// directory.
			if o.wrecked {
				return o.salvage(cmd, args)
			}
			return o.with(cmd, args, func(c *place.Container) error {
				if err := o.rng.Complete(cmd.Context(), c.Source); err != nil {
					return err
				}
				return o.export(cmd.Context(), c, cmd.OutOrStdout())
			})
		},
	}
	o.placeFlags.register(cmd)
	o.patient(cmd)
	o.selection.register(cmd)
	o.output = output(cmd) // for who gives it to all commands, and for what is lost
	cmd.Flags().BoolVar(&o.system, "system", false, "keep the system properties")
	cmd.Flags().BoolVar(&o.wrecked, "salvage", false, "write what can still be read of a damaged store, and list what cannot")
	cmd.MarkFlagsMutuallyExclusive("salvage", "range")
	return cmd
}

// outputBuffer is how many bytes are written at once: a system call for each document would
// cost more than reading it.
const outputBuffer = 256 << 10

// export writes the feed of latest versions from its beginning: each document once, without
// a query and without a sort.
func (o *exportOptions) export(ctx context.Context, c *place.Container, to io.Writer) error {
	w := bufio.NewWriterSize(to, outputBuffer)
	from := changefeed.Position{Start: changefeed.FromBeginning()}
	for page, err := range changefeed.Pull(ctx, c.Source, o.rng.Value(), from, o.options(changefeed.LatestVersion)) {
		if err != nil {
			return err
		}
		for _, change := range page.Changes {
			body := change.Body
			if !o.system {
				if body, err = changeline.WithoutSystem(body); err != nil {
					return fmt.Errorf("export item %q of partition %s: %w", change.ID, change.PartitionKey, err)
				}
			}
			if err := changeline.WriteDocument(w, body); err != nil {
				return err
			}
		}
	}
	// Pull ends without an error when ctx does, and half an export must not look like a whole one.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.Flush()
}
