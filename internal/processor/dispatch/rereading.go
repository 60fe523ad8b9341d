package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// readKey reads a page of a key that was set aside, and on until a page has a change that the handler wants, or is
// empty.
func (d *Dispatcher) readKey(key string, from feed.Position) {
	o := feed.ReadOptions{
		Mode: d.in.Options.Mode, MaxItems: cmp.Or(d.in.Options.MaxItems, keyItems),
		Key: feed.PartitionKey(key),
	}
	var page feed.Page
	for {
		ctx, cancel := context.WithTimeout(d.held.UntilStopped, instance.ReadTimeout)
		begun := time.Now()
		read, err := d.in.Source.Read(ctx, d.held.Lease.Range, from, o)
		cancel()
		instance.CallHook(d.in, d.in.Hooks.ReadDone, feed.ReadDone{
			Lease: d.held.Lease.Token, Changes: len(read.Changes), Charge: read.Charge,
			Duration: time.Since(begun), Err: err,
		})
		if err != nil {
			d.held.Report(d.held.UntilStopped, feed.OriginSource, fmt.Errorf("read partition %s again: %w", key, err))
			d.tellEngine(delivery.KeyFailed{Key: key})
			return
		}
		page = read
		page.Changes = d.in.Wanted(read.Changes)
		if len(page.Changes) > 0 || len(read.Changes) == 0 {
			break
		}
		from = page.Next
	}
	d.tellEngine(delivery.KeyRead{
		Key: key, Of: &readPage{Page: page}, Next: page.Next, Head: page.Head, Changes: len(page.Changes),
		Meta: meta(page.Changes),
	})
	d.saveIfDue(false)
}

// keyItems is how many changes a read of a key asks for, where Options.MaxItems does not say.
const keyItems = 100
