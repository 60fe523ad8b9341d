package tenure

import (
	"context"
	"sync"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/dispatch"
)

// readAhead reads the pages after a page for the handler.
type readAhead struct {
	pages chan pageAhead // closed after the last
	end   context.CancelFunc
	work  sync.WaitGroup
}

// pageAhead is the result of such a read.
type pageAhead struct {
	page feed.Page
	err  error
}

// pagesAhead is how many pages are read ahead. With a single page, the slower of a read and a checkpoint would decide
// the time of each page; with two, the slower of their averages decides.
const pagesAhead = 2

// readAhead begins to read the pages after a page for the handler, unless reads are already running.
func (w *worker) readAhead(page feed.Page) {
	if w.ahead != nil || !w.isBacklog(page) {
		return
	}
	ctx, end := context.WithCancel(w.held.UntilStopped)
	ahead := &readAhead{end: end, pages: make(chan pageAhead, pagesAhead-1)} // one more page waits to be sent
	ahead.work.Go(func() { w.readOn(ctx, page, ahead.pages) })
	w.ahead = ahead
}

// isBacklog reports whether the feed has at least as many changes again after a page. At the end of the feed, nothing
// is read ahead: changes which arrive while the handler works would otherwise wait for another call. With keys in
// parallel, the lanes have room for pages.
func (w *worker) isBacklog(page feed.Page) bool {
	o, n := &w.in.Options, len(page.Changes)
	if o.Concurrency > 1 || n == 0 || n > o.BufferItems/pagesAhead ||
		int64(dispatch.SizeOf(page)) > o.BufferBytes/pagesAhead {
		return false
	}
	return page.Head-page.Changes[n-1].LSN >= int64(n)
}

// readOn reads the pages after a page, until the feed has no backlog.
func (w *worker) readOn(ctx context.Context, page feed.Page, pages chan<- pageAhead) {
	defer close(pages)
	var err error
	for err == nil && w.isBacklog(page) {
		page, err = w.fetchPage(ctx, page.Next)
		select {
		case pages <- pageAhead{page, err}:
		case <-ctx.Done():
			return
		}
	}
}

// dropReadAhead ends the reads ahead and discards their pages.
func (w *worker) dropReadAhead() {
	if w.ahead != nil {
		w.ahead.end()
		w.ahead.work.Wait()
		w.ahead = nil
	}
}
