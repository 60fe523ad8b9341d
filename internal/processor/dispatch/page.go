package dispatch

import (
	"bytes"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
)

// readPage is a page whose changes the engine has. A letter that is handed over again is a page, too.
type readPage struct {
	feed.Page
	letter *feed.DeadLetter
}

// changeOf is the change at the engine's place.
func changeOf(c *delivery.Change) *feed.Change { return &c.Page.Of.(*readPage).Changes[c.Index] }

func changesOf(b *delivery.Batch) []feed.Change {
	changes := make([]feed.Change, len(b.Changes))
	for i, c := range b.Changes {
		changes[i] = *changeOf(c)
	}
	return changes
}

// meta is the engine's view of a change.
func meta(changes []feed.Change) func(i int) delivery.Meta {
	return func(i int) delivery.Meta {
		c := &changes[i]
		return delivery.Meta{LSN: c.LSN, Key: string(c.PartitionKey), Size: changeSize(c)}
	}
}

// changeSize is the memory that a change takes.
func changeSize(c *feed.Change) int { return len(c.Body) + len(c.Previous) + 256 }

// SizeOf is about how many bytes a page takes in memory.
func SizeOf(page feed.Page) (bytes int) {
	for i := range page.Changes {
		bytes += changeSize(&page.Changes[i])
	}
	return bytes
}

// shedPage copies the changes of a page that are still needed, and gives up the memory of the page. Usually no change
// is needed any more, because the batch was the rest of the page.
func (d *Dispatcher) shedPage(p *delivery.Page) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := p.Of.(*readPage)
	var kept []feed.Change
	p.Kept(func(i int) {
		if kept == nil {
			kept = make([]feed.Change, len(of.Changes))
		}
		kept[i] = of.Changes[i]
		kept[i].Body, kept[i].Previous = bytes.Clone(kept[i].Body), bytes.Clone(kept[i].Previous)
	})
	if kept == nil {
		if len(d.noChanges) < len(of.Changes) {
			d.noChanges = make([]feed.Change, len(of.Changes))
		}
		kept = d.noChanges[:len(of.Changes)]
	}
	of.Changes = kept
}
