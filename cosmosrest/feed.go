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

// Both change feeds. A read is about one partition or a part of it; its continuation is the
// ETag, so that a client needs nothing but HTTP's own conditional GET: 304 is the end of
// the feed.

// feedRead is a read of a change feed.
type feedRead struct {
	c       *call
	cont    *docstore.Container
	rng     feed.Range
	part    feed.Partition
	from    feed.Position
	o       feed.ReadOptions
	wrapped bool          // items carry metadata
	wait    time.Duration // for a change
	foreign bool          // the key is in another range: nothing can come
	memory  *docstore.PageMemory
}

// pages are memories to be used again: a page is sent and forgotten.
var pages = sync.Pool{New: func() any { return new(docstore.PageMemory) }}

// maxPageKept is the size of a memory above which it is left to the garbage collector, because
// a single large page would stay for ever.
const maxPageKept = 2 * wire.MaxPage

// freePage returns the memory of the page; the page must not be used any more.
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

// steps is how many goroutines a write passes through on its way to the disk: that of its request,
// and twice the committer, which looks for others to write with it.
const steps = 3

// giveWay lets the goroutines run that are ready. A page takes longer than most requests, and writes
// that came with this one go first: a processor sends the checkpoint of a page as it asks for the
// next, and waits for the flush of the checkpoint, which leaves time to read. Where nothing else is
// ready it costs a fraction of a microsecond.
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

// choosePartition finds the partition to read. The service reads no feed over several at once, so a
// range across partitions is a 410, after which a client reads the list of partitions
// again.
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
		return wire.Gone("keys %s of container %q span several partition key ranges: read the ranges again", sub, f.cont.ID())
	}
	return wire.BadRequest("the change feed of container %q has several partition key ranges: want one of them in x-ms-documentdb-partitionkeyrangeid", f.cont.ID())
}

// checkVersions refuses starts and containers from which all versions and deletes cannot be
// read.
func (f *feedRead) checkVersions() error {
	if f.o.Mode != feed.AllVersionsAndDeletes {
		return nil
	}
	switch {
	case !f.wrapped:
		return wire.BadRequest("x-ms-cosmos-changefeed-wire-format-version is absent: want %s with Full-Fidelity Feed", wire.WireFormat)
	case f.cont.Retention() == 0:
		return wire.BadRequest("container %q has no changeFeedPolicy: want one with a retentionDuration above 0 to read all versions and deletes, or a server with --retention", f.cont.ID())
	case f.from.Token == "" && !f.from.Start.IsNow():
		return wire.BadRequest("all versions and deletes cannot be read from the beginning or a time: want If-None-Match with * or a continuation")
	}
	return nil
}

// readOrWait is a page. An empty page is held back for as long as the client is willing to wait.
func (f *feedRead) readOrWait() (feed.Page, error) {
	page, err := f.readOnce()
	if f.wait == 0 || err != nil || len(page.Changes) > 0 {
		return page, err
	}
	ctx, cancel := f.c.waitContext(f.wait)
	defer cancel()
	// News of the range may be nothing to this reader: of another key, or a delete,
	// which the latest versions do not show.
	for len(page.Changes) == 0 && err == nil {
		if err := f.cont.Wait(ctx, f.waitRange(), page.Next); err != nil {
			if ctx.Err() != nil { // time is up, or the server is about to end
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

// waitRange is the range whose news end a wait. It lies in one partition, also if only a
// key was given.
func (f *feedRead) waitRange() feed.Range { return f.rng.Intersect(f.part.Range) }

// emptyPage is the page of a range that has nothing of the key, up to the newest change, so
// that a reader moves on.
func (f *feedRead) emptyPage() (feed.Page, error) {
	page, err := f.cont.Read(f.c.ctx, f.waitRange(), feed.Position{}, feed.ReadOptions{})
	if err != nil {
		return page, err
	}
	f.c.chargeRequest(f.cont, f.part.ID, service.ScanCharge(0, 0))
	asked, _ := service.LSN(f.from.Token) // 0 is right for none
	if read, _ := service.LSN(page.Next.Token); asked > read {
		page.Next.Token = service.Token(asked)
	}
	return page, nil
}

// sendPage sends a page, or 304 for an empty one.
func (f *feedRead) sendPage(page feed.Page) error {
	c := f.c
	c.out.Set(wire.AnswerETag, page.Next.Token)
	c.out.SetCount(len(page.Changes))
	c.out.Set(wire.AnswerSession, page.Session)
	c.out.SetLSN(max(page.Head, f.cont.Head())) // positions count in the container's LSNs
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
	return c.sendReply(http.StatusOK, docs.Finish())
}
