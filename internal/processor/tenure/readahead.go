package tenure

import (
	"context"
	"sync"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/dispatch"
)

// readAhead reads the pages after one that goes to the handler.
type readAhead struct {
	pages chan pageAhead // closed after the last
	end   context.CancelFunc
	work  sync.WaitGroup
}

// pageAhead is how one of these reads came out.
type pageAhead struct {
	page feed.Page
	err  error
}

// pagesAhead is how many pages are read ahead. With a single one, the slower of a read and a checkpoint would decide each
// time how long a page takes; with two, the slower of their averages does.
const pagesAhead = 2

// readAhead begins to read the pages after one that goes to the handler, unless that is under way.
func (w *worker) readAhead(page feed.Page) {
	if w.ahead != nil || !w.isBacklog(page) {
		return
	}
	ctx, end := context.WithCancel(w.held.UntilStopped)
	ahead := &readAhead{end: end, pages: make(chan pageAhead, pagesAhead-1)} // one more waits to be sent
	ahead.work.Go(func() { w.readOn(ctx, page, ahead.pages) })
	w.ahead = ahead
}

// isBacklog reports whether the feed has as much again behind a page. At its end nothing is read ahead: what comes while
// the handler works would wait for one call more. With keys in parallel the lanes have room for pages.
func (w *worker) isBacklog(page feed.Page) bool {
	o, n := &w.in.Options, len(page.Changes)
	if o.Concurrency > 1 || n == 0 || n > o.BufferItems/pagesAhead || int64(dispatch.SizeOf(page)) > o.BufferBytes/pagesAhead {
		return false
	}
	return page.Head-page.Changes[n-1].LSN >= int64(n)
}

// readOn reads the pages after one, until the feed has no backlog.
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

// dropReadAhead ends what is read ahead.
func (w *worker) dropReadAhead() {
	if w.ahead != nil {
		w.ahead.end()
		w.ahead.work.Wait()
		w.ahead = nil
	}
}
