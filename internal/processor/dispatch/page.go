package dispatch

import (
	"bytes"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
)

// readPage is a page whose changes the engine has. A letter that is handed over again is one, too.
type readPage struct {
	feed.Page
	letter *feed.DeadLetter
}

// changeOf is the change that the engine knows by its place.
func changeOf(c *delivery.Change) *feed.Change { return &c.Page.Of.(*readPage).Changes[c.Index] }

func changesOf(b *delivery.Batch) []feed.Change {
	changes := make([]feed.Change, len(b.Changes))
	for i, c := range b.Changes {
		changes[i] = *changeOf(c)
	}
	return changes
}

// meta is what the engine is told of a change.
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

// shedPage gives the changes of a page that are still needed memory of their own, and gives up the rest. Usually none
// is needed any more, because the batch was the rest of its page.
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
