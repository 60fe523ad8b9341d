// Package unload writes the documents of a container, each on a line, in the form that package load reads. From a
// damaged store, these are the documents that can still be read.
package unload

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
)

// Options select documents, and decide how they are written.
type Options struct {
	Key    feed.PartitionKey // only documents of this key; empty means all
	Range  feed.Range        // only documents of this range
	System bool              // include the system properties
}

// Documents writes the documents of a container. Documents reads the feed of latest versions from its beginning,
// which contains each document once, because a store, the server and an account all have this feed. The documents of
// a partition key come in the order of their last writes.
func Documents(ctx context.Context, source feed.Source, to io.Writer, o Options) error {
	w := changeline.NewWriter(to)
	from := feed.Position{Start: feed.FromBeginning()}
	for page, err := range changefeed.Pull(ctx, source, o.Range, from,
		changefeed.PullOptions{ReadOptions: feed.ReadOptions{Key: o.Key}}) {
		if err != nil {
			return err
		}
		for _, c := range page.Changes {
			if err := o.writeDocument(w, "", c.ID, c.PartitionKey, c.Body); err != nil {
				return err
			}
		}
	}
	// Pull returns no error if ctx ends, but an incomplete export must not look complete.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.Flush()
}

// writeDocument writes a document. If a container is named, the document is in an object that also names the container.
func (o Options) writeDocument(w *bufio.Writer, container, id string, key feed.PartitionKey, body []byte) (err error) {
	if !o.System {
		if body, err = changeline.WithoutSystem(body); err != nil {
			return fmt.Errorf("export item %q of partition %s: %w", id, key, err)
		}
	}
	if container != "" {
		if body, err = within(container, body); err != nil {
			return err
		}
	}
	return changeline.WriteDocument(w, body)
}
