package docstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// How a read works. A read takes the head first, then the layout, then the cursors. In this order, everything
// published up to the head is in the logs of that layout and in the state of those cursors. A read shows nothing
// above the head.
//
// The cursors may also see a group that is applied but not yet safe on the disk. Such a group may have superseded a
// version at or below the head, and the page then lacks this version. If a power loss took the group back, a position
// after the head would have skipped the version. So a page is returned only when everything applied before
// is safe (awaitSafe).
//
// The version that such a page lacks has a successor, which a reader of the feed sees later. A reader that stops at
// the head would miss the document, so such a reader must read a [Snapshot].

const (
	// A page is limited by bytes as well, because 1,000 documents of 2 MB would not fit in memory beside the pages of
	// other readers. 4 MB is the service's limit.
	defaultItems = 1000
	maxPageBytes = service.MaxPage
)

// selection describes which changes a read shows: the changes of a range or a logical partition, after an LSN, from a
// time onward.
type selection struct {
	rng  feed.Range
	pk   string // stored key of a logical partition; empty means all
	mode feed.Mode
	begin
}

// Read implements [feed.Source]. A page contains at most 4 MB, and at most 1,000 changes unless you set MaxItems. A
// transaction is never cut, so a larger transaction is a page of its own. If the range spans several partitions, you
// get [feed.ErrGone]. If the position is before the retention, you get [feed.ErrTooOld].
func (c *Container) Read(ctx context.Context, rng feed.Range, from feed.Position, options feed.ReadOptions) (feed.Page,
	error,
) {
	return new(PageMemory).Read(ctx, c, rng, from, options)
}

// Read is [Container.Read] for a server that forgets a page after sending. The changes are valid until you use the
// memory again, and a page needs no new memory.
func (m *PageMemory) Read(ctx context.Context, c *Container, rng feed.Range, from feed.Position,
	options feed.ReadOptions,
) (feed.Page, error) {
	for {
		m.reset()
		page, err := c.moment().read(ctx, m, rng, from, options)
		if err == nil {
			return page, nil
		}
		if !errors.Is(err, errMoved) {
			return feed.Page{}, fmt.Errorf("read feed of %q: %w", c.ID(), err)
		}
	}
}

// moment is the start of a read: the head, and the layout taken after the head. In a snapshot, moment also contains
// the state of the engine; otherwise each read takes a new state.
type moment struct {
	c    *Container
	l    *layout
	head int64
	held *held // nil outside snapshots
}

// moment returns the present moment.
func (c *Container) moment() moment {
	m := moment{c: c, head: c.head.Load()}
	m.l = c.layout.Load()
	return m
}

// read reads a page, or returns errMoved.
func (m moment) read(ctx context.Context, memory *PageMemory, rng feed.Range, from feed.Position,
	options feed.ReadOptions,
) (page feed.Page, err error) {
	if err := m.c.checkUsable(ctx); err != nil {
		return page, err
	}
	part, sel, err := m.l.choosePartition(rng, options)
	if err != nil {
		return page, err
	}
	if sel.begin, err = m.l.resolvePosition(from, options, m.head); err != nil {
		return page, err
	}
	page.Head = min(part.newest.Load(), m.head)
	b := &pageBuilder{max: options.MaxItems, hint: &m.c.hint, PageMemory: memory}
	next := max(m.head, sel.lsn)
	if sel.lsn < m.head {
		if next, err = m.collectPage(ctx, b, part, sel); err != nil {
			return page, err
		}
		if err := m.c.db.awaitSafe(ctx, m.c); err != nil {
			return page, err
		}
	}
	if options.Mode == feed.AllVersionsAndDeletes && sel.lsn < m.c.layout.Load().floor {
		return page, tooOld(m.c.layout.Load(), sel.lsn) // versions may have been removed during the read
	}
	page.Next = feed.Position{Token: service.Token(next), Start: from.Start}
	page.Session = service.SessionToken(part.id(), page.Head)
	page.Charge = service.ScanCharge(len(b.changes), len(b.slab))
	page.Changes = b.cutChanges()
	if sel.lsn > m.c.head.Load() { // compared with the container's head, because all partitions share a counter of LSNs
		page.Ahead, page.Head = true, m.head
	}
	return page, nil
}

func tooOld(l *layout, lsn int64) error {
	return fmt.Errorf("%w: LSN %d of container %q, whose versions begin after %d", feed.ErrTooOld, lsn, l.spec.ID,
		l.floor)
}

// choosePartition returns the partition that contains the range of a read, and the selection.
func (l *layout) choosePartition(rng feed.Range, options feed.ReadOptions) (*partition, selection, error) {
	sel, err := l.selection(rng, options)
	if err != nil {
		return nil, sel, err
	}
	part, err := l.partitionOfAll(sel.rng)
	return part, sel, err
}

// selection returns a range, or the part of the range that belongs to a key.
func (l *layout) selection(rng feed.Range, options feed.ReadOptions) (sel selection, err error) {
	sel = selection{rng: rng, mode: options.Mode}
	if options.Key == "" {
		return sel, nil
	}
	if sel.rng, sel.pk, err = l.keyRange(string(options.Key)); err != nil {
		return sel, err
	}
	if sel.rng = sel.rng.Intersect(rng); sel.rng.Empty() {
		return sel, refuse("partition key %s is not in range %s", options.Key, rng)
	}
	return sel, nil
}

// keyRange returns the place of a logical partition in the key space, and the stored text of its key. If a
// hierarchical key lacks its last levels, the range contains all keys with that beginning, and the text is empty,
// because documents of many keys are in the range.
func (l *layout) keyRange(key string) (feed.Range, string, error) {
	k, err := pkey.Parse(key)
	if err != nil {
		return feed.Range{}, "", err
	}
	if l.kind == epk.MultiHash && k.Len() > 0 && k.Len() < len(l.paths) {
		lo, hi, err := epk.Prefix(k.Components())
		return feed.Range{Min: lo, Max: hi}, "", err
	}
	hash, err := l.place(&k)
	return feed.Range{Min: hash, Max: hash + "0"}, k.Text(), err
}

// collectPage fills a page with the changes in (sel.lsn, head] and returns the LSN after which the next page begins.
// A page ends only between transactions, because a position is an LSN and cannot express that part of a transaction
// was read.
func (m moment) collectPage(ctx context.Context, b *pageBuilder, part *partition, sel selection) (next int64,
	err error,
) {
	logs := m.l.logsOf(part)
	f, err := m.feed(logs, sel)
	if err != nil {
		return 0, err
	}
	last, before := sel.lsn, sel.lsn
	f.stop = func(lsn int64) bool { return lsn != last && b.full() }
	err = f.eachShown(ctx, &m.l.spec, func(e *entry, a addr) (bool, error) {
		if a.lsn != last {
			b.transaction = pageSize{len(b.changes), len(b.slab), len(b.text)}
			before, last = last, a.lsn
		}
		// The size of the body is checked before the copy; otherwise the buffer would grow for nothing.
		fits := !b.overflows(len(e.body))
		if fits {
			if err := b.add(m.c, logs, e, a.lsn, sel.mode); err != nil {
				return false, err
			}
			fits = !b.overflows(0) // with its previous version
		}
		// The last transaction is too large for this page, and waits for the next page.
		if !fits {
			b.cutLast()
			last, f.stopped = before, true
		}
		return !f.stopped, nil
	})
	if f.stopped {
		return last, err
	}
	return m.head, err
}

// shows reports whether a living version is in the selection. A reader of all versions also sees expired documents,
// because their end is a separate change.
func (s *selection) shows(e *entry, spec *ContainerSpec, now int64) bool {
	switch {
	case s.pk != "" && s.pk != string(e.pk):
		return false
	case e.time < s.since:
		return false
	}
	return s.mode == feed.AllVersionsAndDeletes || spec == nil || !spec.expired(e.time, e.ttl, now)
}
