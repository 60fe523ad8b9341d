package cosmosrest

import (
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Both change feeds. A read is about a single partition or a part of it. The continuation is the ETag, so a client
// needs only HTTP's conditional GET, and 304 means the end of the feed.

// feedRead is a read of a change feed.
type feedRead struct {
	c       *call
	cont    *docstore.Container
	rng     feed.Range
	part    feed.Partition
	from    feed.Position
	o       feed.ReadOptions
	wrapped bool          // items have metadata
	wait    time.Duration // how long to wait for a change
	foreign bool          // the key is in another range, so no change can come
	memory  *docstore.PageMemory
}

// pages is a pool of page memories. A page's memory can be reused as soon as the page was sent.
var pages = sync.Pool{New: func() any { return new(docstore.PageMemory) }}

// maxPageKept is the largest size of a memory that returns to the pool. Without this limit, the memory of a single
// large page would stay for ever.
const maxPageKept = 2 * wire.MaxPage

// freePage returns the memory of the page to the pool; the page must not be used any more.
func (f *feedRead) freePage() {
	if f.memory.Size() <= maxPageKept {
		pages.Put(f.memory)
	}
}

// readChangeFeed serves GET docs with A-IM: a page of either change feed, or 304.
func readChangeFeed(c *call) error {
	if err := c.allowAction(auth.ReadChangeFeed); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	f := feedRead{c: c, cont: cont}
	if c.in.Flag(wire.HeaderPending) {
		return f.countPending()
	}
	if err := f.parseHeaders(); err != nil {
		return err
	}
	if err := c.admitRequest(cont, f.part.ID); err != nil {
		return err
	}
	giveWay()
	f.memory = pages.Get().(*docstore.PageMemory)
	defer f.freePage()
	page, err := f.readOrWait()
	if err != nil {
		return err
	}
	return f.sendPage(page)
}

// steps is the number of times that a write needs a goroutine to run on its way to the disk: once the goroutine of
// its request, and twice the committer, which looks for other writes to join.
const steps = 3

// giveWay lets other goroutines run that are ready. A page takes longer than most requests, and writes that came at
// the same time must go first. A processor sends the checkpoint of a page together with the request for the next
// page. The checkpoint then waits for a flush, and the page can be read meanwhile. If no other goroutine is ready,
// giveWay costs a fraction of a microsecond.
func giveWay() {
	for range steps {
		runtime.Gosched()
	}
}

// parseHeaders reads the request's headers.
func (f *feedRead) parseHeaders() (err error) {
	in := f.c.in
	if f.o.Mode, f.wrapped, err = in.FeedMode(); err != nil {
		return err
	}
	if f.o.MaxItems, err = in.MaxItems(); err != nil {
		return err
	}
	if f.from, err = in.FeedStart(); err != nil {
		return err
	}
	if f.wait, err = in.Polling(); err != nil {
		return err
	}
	if err := f.choosePartition(); err != nil {
		return err
	}
	f.c.out.Range = f.part.ID
	if err := in.Consistent(f.part, f.cont.Newest(f.part.Range.Min)); err != nil {
		return err
	}
	return f.checkVersions()
}

// choosePartition finds the partition to read. The service never reads a feed over several partitions at once. So a
// range across partitions is a 410, after which the client reads the list of partitions again.
func (f *feedRead) choosePartition() error {
	sel, err := f.c.readSelection(f.cont)
	if err != nil {
		return err
	}
	f.rng, f.o.Key = sel.Range, sel.Key
	sub, err := sel.Within(f.cont)
	if err != nil {
		return err
	}
	if sub.Empty() {
		f.part, f.foreign = f.cont.PartitionAt(sel.Range.Min), true
		return nil
	}
	f.part = f.cont.PartitionAt(sub.Min)
	switch {
	case f.part.Range.Contains(sub):
		return nil
	case sel.Named:
		return wire.Gone("keys %s of container %q span several partition key ranges: read the ranges again", sub,
			f.cont.ID())
	}
	return wire.BadRequest("the change feed of container %q has several partition key ranges: want one of them in "+
		"x-ms-documentdb-partitionkeyrangeid", f.cont.ID())
}

// checkVersions refuses starts and containers for which the feed of all versions and deletes cannot be read.
func (f *feedRead) checkVersions() error {
	if f.o.Mode != feed.AllVersionsAndDeletes {
		return nil
	}
	switch {
	case !f.wrapped:
		return wire.BadRequest("x-ms-cosmos-changefeed-wire-format-version is absent: want %s with Full-Fidelity Feed",
			wire.WireFormat)
	case f.cont.Retention() == 0:
		return wire.BadRequest("container %q has no changeFeedPolicy: want one with a retentionDuration above 0 to "+
			"read all versions and deletes, or a server with --retention", f.cont.ID())
	case f.from.Token == "" && !f.from.Start.IsNow():
		return wire.BadRequest("all versions and deletes cannot be read from the beginning or a time: want " +
			"If-None-Match with * or a continuation")
	}
	return nil
}

// readOrWait reads a page. If the page is empty, readOrWait waits for a change, as long as the client allows.
func (f *feedRead) readOrWait() (feed.Page, error) {
	page, err := f.readOnce()
	if f.wait == 0 || err != nil || len(page.Changes) > 0 {
		return page, err
	}
	ctx, cancel := f.c.waitContext(f.wait)
	defer cancel()
	// A change in the range may not concern this reader: the change may have another key, or be a delete, which the
	// feed of latest versions does not show.
	for len(page.Changes) == 0 && err == nil {
		if err := f.cont.Wait(ctx, f.waitRange(), page.Next); err != nil {
			if ctx.Err() != nil { // the time is over, or the server is about to end
				return page, nil
			}
			return page, err
		}
		f.from = page.Next
		page, err = f.readOnce()
	}
	return page, err
}

// readOnce reads a page, empty or not.
func (f *feedRead) readOnce() (feed.Page, error) {
	if f.foreign {
		return f.emptyPage()
	}
	page, err := f.memory.Read(f.c.ctx, f.cont, f.rng, f.from, f.o)
	if err == nil {
		size := 0
		for i := range page.Changes {
			ch := &page.Changes[i]
			if !f.c.s.o.PreviousImages.showsImage(ch) {
				ch.Previous = nil
			}
			size += len(ch.Body) + len(ch.Previous)
		}
		f.c.chargeRequest(f.cont, f.part.ID, service.ScanCharge(len(page.Changes), size))
	}
	return page, err
}

// waitRange returns the range whose changes end a wait. The range is within a single partition, even if the request
// has only a key.
func (f *feedRead) waitRange() feed.Range { return f.rng.Intersect(f.part.Range) }

// emptyPage returns an empty page up to the newest change, for a range without changes of the key. So the reader's
// position moves on.
func (f *feedRead) emptyPage() (feed.Page, error) {
	page, err := f.cont.Read(f.c.ctx, f.waitRange(), feed.Position{}, feed.ReadOptions{})
	if err != nil {
		return page, err
	}
	f.c.chargeRequest(f.cont, f.part.ID, service.ScanCharge(0, 0))
	asked, _ := service.LSN(f.from.Token) // 0 is right if there is no token
	if read, _ := service.LSN(page.Next.Token); asked > read {
		page.Next.Token = service.Token(asked)
	}
	return page, nil
}

// sendPage sends a page, or 304 if the page is empty.
func (f *feedRead) sendPage(page feed.Page) error {
	c := f.c
	c.out.Set(wire.AnswerETag, page.Next.Token)
	c.out.SetCount(len(page.Changes))
	session, err := f.sessionOf(page)
	if err != nil {
		return err
	}
	c.out.Set(wire.AnswerSession, session)
	c.out.SetLSN(max(page.Head, f.cont.Head())) // positions are LSNs of the container
	if len(page.Changes) == 0 {
		return c.sendReply(http.StatusNotModified, nil)
	}
	docs := wire.NewDocuments(f.cont.RID())
	defer docs.Free()
	add := docs.AddLatest
	switch {
	case f.o.Mode == feed.AllVersionsAndDeletes:
		paths := f.cont.Spec().Paths
		add = func(ch *feed.Change) { docs.AddVersion(ch, paths) }
	case f.wrapped:
		add = docs.AddWrapped
	}
	for i := range page.Changes {
		add(&page.Changes[i])
	}
	return c.sendDocuments(http.StatusOK, docs.Finish())
}
