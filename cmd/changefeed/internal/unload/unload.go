// Package unload writes the documents of a container, each on a line, in the form that package load reads. From a
// damaged store, these are the documents that can still be read.
package unload

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
)

// Options select documents, and decide how they are written.
type Options struct {
	Key    feed.PartitionKey // only documents of this key; empty means all
	Range  feed.Range        // only documents of this range
	System bool              // include the system properties
	Count  *atomic.Int64     // grows by 1 with each document; may be nil
}

// Documents writes the documents of a container. Documents reads the feed of latest versions from its beginning,
// which contains each document once, because a store, the server and an account all have this feed. The documents of
// a partition key come in the order of their last writes.
//
// After an error, the output ends with a whole document, too.
func Documents(ctx context.Context, source feed.Source, to io.Writer, o Options) (err error) {
	w := changeline.NewWriter(to)
	defer func() { err = cmp.Or(err, w.Flush()) }()
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
	return context.Cause(ctx)
}

// Count returns how many documents a container has to write; 0 if the container cannot tell.
func Count(ctx context.Context, source feed.Source, o Options) int64 {
	counter, ok := source.(feed.Counter)
	if !ok {
		return 0
	}
	all, err := counter.Pending(ctx, o.Range, feed.Position{Start: feed.FromBeginning()}, feed.ReadOptions{Key: o.Key})
	if err != nil { // an account, for one, cannot count
		return 0
	}
	return all.Items
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
	if o.Count != nil {
		o.Count.Add(1)
	}
	return changeline.WriteDocument(w, body)
}
