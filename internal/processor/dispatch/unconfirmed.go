package dispatch

import (
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
)

// unconfirmed counts the batches that a handler has returned well from and not confirmed by hand. A handler may confirm
// late, so there must be several, for a while, and no confirmation at all since the lease is ours: then the handler
// does not know about confirmations.
type unconfirmed struct {
	batches int
	since   time.Time // when the first was handled
	told    bool
}

const (
	manyUnconfirmed = 10
	longUnconfirmed = 5 * time.Minute
)

// count counts a handled batch, and returns an error to be reported once if the handler never confirms. The lock of the
// dispatcher is held.
func (u *unconfirmed) count(d *Dispatcher) error {
	if !d.in.Options.Manual || d.marks > 0 || u.told {
		return nil
	}
	if u.batches++; u.batches == 1 {
		u.since = time.Now()
	}
	if u.batches < manyUnconfirmed || time.Since(u.since) < longUnconfirmed {
		return nil
	}
	u.told = true
	return fmt.Errorf("%w: the handler has handled %d batches of the lease since %s and confirmed none, so all of them "+
		"come again to the next owner: confirm a batch (Batch.Checkpoint; a program sends checkpoint), or leave Manual "+
		"(--manual) out", feed.ErrUnconfirmed, u.batches, u.since.UTC().Format(time.RFC3339))
}
