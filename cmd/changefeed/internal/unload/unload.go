// Package unload writes the documents of a container, each on a line, in the form that package load reads. From a
// damaged store, these are the documents that can still be read.
package unload

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

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
func Documents(ctx context.Context, source feed.Source, to io.Writer, o Options) error {
	_, err := o.write(ctx, source, to, []position{{o.Range, ""}}, func([]position) error { return nil })
	return err
}

// markEvery is how often an export into a file stores the progress.
const markEvery = time.Second

// write writes the rest of the places, one after the other, and returns the remaining rest. write calls save each
// second and at the end, after all documents up to the positions of the places are written.
func (o Options) write(ctx context.Context, source feed.Source, to io.Writer, left []position,
	save func(left []position) error,
) (_ []position, err error) {
	w, saved, isWhole := changeline.NewWriter(to), time.Now(), true
	flush := func() error {
		saved = time.Now()
		if err := w.Flush(); err != nil || !isWhole { // a part of a page is no place to go on
			return err
		}
		return save(left)
	}
	defer func() { err = cmp.Or(err, flush()) }()
	for _, p := range slices.Clone(left) {
		for page, err := range changefeed.Pull(ctx, source, p.Range, p.start(),
			changefeed.PullOptions{ReadOptions: feed.ReadOptions{Key: o.Key}}) {
			if err != nil {
				return left, err
			}
			isWhole = false
			for _, c := range page.Changes {
				if err := o.writeDocument(w, "", c.ID, c.PartitionKey, c.Body); err != nil {
					return left, err
				}
			}
			isWhole = true
			left = advance(left, page.Range, page.Next.Token)
			if o.Key != "" { // the source refuses to read a key from other ranges
				left = []position{{page.Range, page.Next.Token}}
			}
			if time.Since(saved) >= markEvery {
				if err := flush(); err != nil {
					return left, err
				}
			}
		}
	}
	// Pull returns no error if ctx ends, but an incomplete export must not look complete.
	return left, context.Cause(ctx)
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
