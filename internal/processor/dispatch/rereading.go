package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
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
		if err = keyError(key, from, read, err); err != nil {
			d.held.Report(d.held.UntilStopped, feed.OriginSource, err)
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

// keyError returns the error of a read of a key that was set aside. A token that the source refuses, or that stays
// after the end of the feed, is damaged, or of another container: the key waits until somebody has it read anew.
func keyError(key string, from feed.Position, page feed.Page, err error) error {
	if err == nil && page.Ahead {
		err = fmt.Errorf("%w: the feed ends at LSN %d", feed.ErrAhead, page.Head)
	}
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, feed.ErrBadRequest) && !errors.Is(err, feed.ErrAhead):
		return fmt.Errorf("read partition %s again: %w", key, err)
	}
	return fmt.Errorf("read partition %s again from position %s, which property %s of the lease says: %w: the changes "+
		"of this key wait; if that stays so, the position is damaged, and changefeed leases reset --key %s --to "+
		"beginning delivers them from there, or from a time", key, from, notes.AsideProperty, err,
		"'"+strings.ReplaceAll(key, "'", `'\''`)+"'")
}

// keyItems is how many changes a read of a key asks for, where Options.MaxItems does not say.
const keyItems = 100
