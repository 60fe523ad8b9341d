// Package unload writes the documents of a container, one a line, as package load reads them. Of a damaged store it writes
// those that can still be read.
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

// Options choose documents, and say how they are written.
type Options struct {
	Key    feed.PartitionKey // only those of this key, unless it is empty
	Range  feed.Range        // only those of this range
	System bool              // with the system properties
}

// Documents writes the documents of a container. It reads the feed of latest versions from its beginning, which has each
// document once, because that is the one way to all documents that a store, the server and an account have in common.
// Those of one partition key come in the order of their last writes.
func Documents(ctx context.Context, source feed.Source, to io.Writer, o Options) error {
	w := changeline.NewWriter(to)
	from := feed.Position{Start: feed.FromBeginning()}
	for page, err := range changefeed.Pull(ctx, source, o.Range, from, changefeed.PullOptions{ReadOptions: feed.ReadOptions{Key: o.Key}}) {
		if err != nil {
			return err
		}
		for _, c := range page.Changes {
			if err := o.write(w, "", c.ID, c.PartitionKey, c.Body); err != nil {
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

// write writes a document, in an object with its container if that is named.
func (o Options) write(w *bufio.Writer, container, id string, key feed.PartitionKey, body []byte) (err error) {
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
