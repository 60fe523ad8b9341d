package docstore

import (
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
)

// pageBuilder collects the changes of a page in two buffers, the first for all bodies and the second for all short
// texts. Otherwise a change would take five allocations, and feeds are read at hundreds of thousands of changes a
// second.
type pageBuilder struct {
	max  int
	hint *pageHint
	*PageMemory

	transaction pageSize // size of the page before the last transaction
}

// pageHint is the size of a container's last page, to size the buffers of the next page.
type pageHint struct{ changes, bytes atomic.Int64 }

// PageMemory is the memory of a page. Use a PageMemory if you have finished with each page before you read the next
// page. The zero value is empty. The memory grows to the size of the largest page.
type PageMemory struct {
	changes []feed.Change
	places  []textPlaces
	slab    []byte
	text    []byte
}

// Size returns about how many bytes the memory takes.
func (m *PageMemory) Size() int { return cap(m.slab) + cap(m.text) + cap(m.changes)*changeSize }

// changeSize is about how many bytes a change and its places take, without its texts.
const changeSize = 256

// leastChanges is for how many changes a page has room at first, if the last page was smaller.
const leastChanges = 8

// reset empties the memory.
func (m *PageMemory) reset() {
	clear(m.changes) // frees the texts of the old changes
	m.changes, m.places, m.slab, m.text = m.changes[:0], m.places[:0], m.slab[:0], m.text[:0]
}

type pageSize struct{ changes, slab, text int }

// textPlaces are the ends of a change's parts in the buffers; each part begins where the previous part ends. Slices
// are cut when the page is complete, because the buffers may move while they grow.
type textPlaces struct {
	id, pk, etag   int
	body, previous int
}

// maxItems returns the largest number of changes in the page.
func (b *pageBuilder) maxItems() int {
	if b.max <= 0 {
		return defaultItems
	}
	return b.max
}

func (b *pageBuilder) full() bool {
	return len(b.changes) >= b.maxItems() || len(b.slab) >= maxPageBytes
}

// overflows reports whether the page has no room for the last transaction if that transaction grows by so many bytes.
// A page that contains only this transaction never overflows.
func (b *pageBuilder) overflows(more int) bool {
	return len(b.slab)+more > maxPageBytes && b.transaction.changes > 0
}

// cutLast removes the last transaction from the page.
func (b *pageBuilder) cutLast() {
	t := b.transaction
	b.changes, b.places = b.changes[:t.changes], b.places[:t.changes]
	b.slab, b.text = b.slab[:t.slab], b.text[:t.text]
}

// add copies a version into the page, because the bytes of a cursor are valid only until the next step.
func (b *pageBuilder) add(c *Container, logs []uint32, e *entry, lsn int64, mode feed.Mode) error {
	if len(b.changes) == 0 {
		b.makeBuffers()
	}
	change := feed.Change{Op: feed.OpUpsert, LSN: lsn, Time: time.UnixMilli(e.time).UTC()}
	b.text = append(append(append(b.text, e.id...), e.pk...), e.etag...)
	n := len(b.text)
	at := textPlaces{etag: n, pk: n - len(e.etag), id: n - len(e.etag) - len(e.pk)}
	if !e.op.endsDocument() {
		b.slab = append(b.slab, e.body...)
	}
	at.body = len(b.slab)
	if mode == feed.AllVersionsAndDeletes {
		change.Op, change.PreviousLSN, change.Expired = e.op.change(), e.prev, e.op == opExpire
		if err := b.addPrevious(c, logs, e); err != nil {
			return err
		}
	}
	at.previous = len(b.slab)
	b.changes = append(b.changes, change)
	b.places = append(b.places, at)
	return nil
}

// makeBuffers allocates buffers of about the size of the last page, because pages of a container are alike. A reader at
// the end of the feed gets one change a page, and must not pay for a thousand. If the memory is large enough, nothing
// is allocated.
func (b *pageBuilder) makeBuffers() {
	n := int64(min(b.maxItems(), defaultItems))
	if size := min(b.hint.bytes.Load(), n<<12); int64(cap(b.slab)) < size {
		b.slab = make([]byte, 0, size+size/16)
	}
	last := max(b.hint.changes.Load(), leastChanges)
	if n = min(n, last+last/16); int64(cap(b.changes)) < n {
		b.text = make([]byte, 0, n*64)
		b.changes = make([]feed.Change, 0, n)
		b.places = make([]textPlaces, 0, n)
	}
}

// addPrevious copies the body of the previous version, if the log still has that version.
func (b *pageBuilder) addPrevious(c *Container, logs []uint32, e *entry) error {
	if e.prev == 0 {
		return nil
	}
	// The log of a former partition comes before the log to which its versions are moved, so a version that is moved
	// between the two reads is found.
	for _, num := range logs {
		value, found, err := c.db.eng.Get(nil, logKey(tableLog, c.num, addr{num, e.prev, e.prevIdx}))
		if err != nil {
			return err
		}
		if found {
			old, err := decodeEntry(value)
			b.slab = append(b.slab, old.body...)
			return err
		}
	}
	return nil
}

// cutChanges cuts the changes out of the buffers. cutChanges also limits capacities, so an append to a body cannot
// overwrite the next.
func (b *pageBuilder) cutChanges() []feed.Change {
	text := string(b.text)
	pos, body := 0, 0
	for i := range b.changes {
		change, at := &b.changes[i], b.places[i]
		change.ID = text[pos:at.id]
		change.PartitionKey = feed.PartitionKey(text[at.id:at.pk])
		change.ETag = text[at.pk:at.etag]
		if at.body > body {
			change.Body = b.slab[body:at.body:at.body]
		}
		if at.previous > at.body {
			change.Previous = b.slab[at.body:at.previous:at.previous]
		}
		pos, body = at.etag, at.previous
	}
	if len(b.changes) > 0 {
		b.hint.changes.Store(int64(len(b.changes)))
		b.hint.bytes.Store(int64(len(b.slab)))
	}
	return b.changes
}

// change returns the operation's name in the feed of all versions.
func (o entryOp) change() feed.Op {
	switch o {
	case opCreate:
		return feed.OpCreate
	case opReplace:
		return feed.OpReplace
	}
	return feed.OpDelete
}
