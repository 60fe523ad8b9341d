package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// read reads the next page, again and again until it succeeds.
func (w *worker) read() (page feed.Page, e ending) {
	for failures := 1; w.ending().none(); failures++ {
		page, err := w.readOnce()
		switch {
		case err == nil:
			w.r.absence.disproved()
			return page, ending{}
		case !w.ending().none():
			return page, w.ending()
		case errors.Is(err, feed.ErrGone) && !w.whole():
			return page, ending{why: feed.ReasonSplit}
		}
		w.report(w.untilStopped, feed.OriginSource, err)
		if w.r.absence.note(w.untilStopped, w.r.source, w.r.opts.Expiration, err) {
			w.r.wake()
		}
		least := time.Duration(0)
		if throttled, ok := errors.AsType[*feed.ThrottledError](err); ok {
			least = throttled.After
		}
		w.backoff(failures, least)
	}
	return page, w.ending()
}

// absence is what reads have shown about a monitored container that may be gone. A read that finds it, or fails for another
// reason, shows that it is not, or nothing: so no outage ends a unit, nor a partition that has moved.
type absence struct {
	mu    sync.Mutex
	since time.Time // of the first read that has not found the container, since which no other read has come out otherwise
	gone  error
}

// disproved notes a read that came out otherwise.
func (a *absence) disproved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = time.Time{}
}

// lasts notes a read that has not found the container, and reports whether that has lasted for so long.
func (a *absence) lasts(d time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = time.Now()
	}
	return time.Since(a.since) >= d
}

// proven is why the unit ends; nil as long as it does not.
func (a *absence) proven() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone
}

// note goes by the error of a read, and reports whether it proves that the container is gone: no read finds it for as long as a
// lease lives, and it has no partitions either.
func (a *absence) note(ctx context.Context, source feed.Source, expiration time.Duration, err error) (gone bool) {
	if !errors.Is(err, feed.ErrNotFound) {
		a.disproved()
		return false
	}
	if !a.lasts(expiration) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if _, err = source.Partitions(ctx); !errors.Is(err, feed.ErrNotFound) {
		a.disproved()
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = fmt.Errorf("%w: %w", feed.ErrSourceGone, err)
	return true
}

// readOnce reads the next page, unless it was read ahead.
func (w *worker) readOnce() (feed.Page, error) {
	w.activity.Set(feed.ActivityReading)
	if w.ahead != nil {
		if next, ok := <-w.ahead.pages; ok {
			return next.page, next.err
		}
		w.drop()
	}
	return w.fetch(w.untilStopped, w.dispatcher.readFrom())
}

// fetch reads the page after a position.
func (w *worker) fetch(ctx context.Context, at feed.Position) (feed.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	o := feed.ReadOptions{Mode: w.r.opts.Mode, MaxItems: w.r.opts.MaxItems}
	begun := time.Now()
	page, err := w.r.source.Read(ctx, w.lease.Range, at, o)
	if err == nil {
		w.troubles.Remove(feed.OriginSource)
	}
	w.r.hooks.ReadDone(feed.ReadDone{Lease: w.lease.Token, Changes: len(page.Changes), Charge: page.Charge, Duration: time.Since(begun), Err: err})
	return page, err
}

// whole reports whether one partition holds the range: then a source that says it is gone
// does not know its own partitions yet, and there is nothing to split.
func (w *worker) whole() bool {
	ctx, cancel := context.WithTimeout(w.untilStopped, readTimeout)
	defer cancel()
	partitions, err := w.r.source.Partitions(ctx)
	return err != nil || slices.ContainsFunc(partitions, func(p feed.Partition) bool { return p.Range.Contains(w.lease.Range) })
}

// readTimeout bounds one read, as the service's own processors do.
const readTimeout = 65 * time.Second

// lookAhead reports a position that stays ahead of its feed. A replica that lags behind looks the same for a while.
func (w *worker) lookAhead(page feed.Page) {
	switch {
	case !page.Ahead:
		w.tooFar = time.Time{}
	case w.tooFar.IsZero():
		w.tooFar = time.Now()
	case time.Since(w.tooFar) >= w.r.opts.Renew:
		w.tooFar = time.Now()
		w.report(w.untilStopped, feed.OriginSource, aheadError(w.dispatcher.readFrom(), page.Head))
	}
}

func aheadError(at feed.Position, end int64) error {
	return fmt.Errorf("%w: it is %s, and the feed ends at %d: was the container restored from a backup, or are these leases of another one? "+
		"Changes up to the position will not be handled: delete the leases of this unit and begin anew", feed.ErrAhead, at.Token, end)
}

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

// prefetch begins to read the pages after one that goes to the handler, unless that is under way.
func (w *worker) prefetch(page feed.Page) {
	if w.ahead != nil || !w.isBacklog(page) {
		return
	}
	ctx, end := context.WithCancel(w.untilStopped)
	ahead := &readAhead{end: end, pages: make(chan pageAhead, pagesAhead-1)} // one more waits to be sent
	ahead.work.Go(func() { w.readOn(ctx, page, ahead.pages) })
	w.ahead = ahead
}

// isBacklog reports whether the feed has as much again behind a page. At its end nothing is read ahead: what comes while
// the handler works would wait for one call more. With keys in parallel the lanes have room for pages.
func (w *worker) isBacklog(page feed.Page) bool {
	o, n := w.r.opts, len(page.Changes)
	if o.Concurrency > 1 || n == 0 || n > o.BufferItems/pagesAhead || int64(sizeOf(page)) > o.BufferBytes/pagesAhead {
		return false
	}
	return page.Head-page.Changes[n-1].LSN >= int64(n)
}

// readOn reads the pages after one, until the feed has no backlog.
func (w *worker) readOn(ctx context.Context, page feed.Page, pages chan<- pageAhead) {
	defer close(pages)
	var err error
	for err == nil && w.isBacklog(page) {
		page, err = w.fetch(ctx, page.Next)
		select {
		case pages <- pageAhead{page, err}:
		case <-ctx.Done():
			return
		}
	}
}

// drop ends what is read ahead.
func (w *worker) drop() {
	if w.ahead != nil {
		w.ahead.end()
		w.ahead.work.Wait()
		w.ahead = nil
	}
}

// rest waits after an empty page, until there may be more.
func (w *worker) rest() {
	w.activity.Set(feed.ActivityWaiting)
	if waiter, ok := w.r.source.(feed.Waiter); ok {
		w.await(waiter)
		return
	}
	pause.For(w.untilStopped, pause.Doubled(firstPoll, w.idle-1, w.r.opts.Poll))
}

// await waits until the source says that there may be more. A quiet range is read now and
// then all the same, so that its position moves on with its container's and does not fall
// out of the retention.
func (w *worker) await(waiter feed.Waiter) {
	// Writes to other leases of the partition wake us too: do not read for each of them.
	if w.idle > 1 && pause.For(w.untilStopped, pause.Doubled(time.Millisecond, w.idle, maxGather)) != nil {
		return
	}
	most := w.r.opts.Renew
	if unsaved, every := w.dispatcher.pending(); unsaved > 0 && every > 0 {
		most = min(most, every)
	}
	waiting, cancel := context.WithTimeout(w.untilStopped, most)
	defer cancel()
	begun := time.Now()
	err := waiter.Wait(waiting, w.lease.Range, w.dispatcher.readFrom())
	waited := time.Since(begun)
	w.r.hooks.WaitDone(feed.WaitDone{Lease: w.lease.Token, Duration: waited, Err: err})
	if err != nil && waiting.Err() == nil {
		w.report(w.untilStopped, feed.OriginSource, err)
		pause.For(w.untilStopped, w.r.opts.Poll)
	}
	if waited > maxGather {
		w.idle = 0
	}
}

const (
	firstPoll = 5 * time.Millisecond   // first pause after activity
	maxGather = 128 * time.Millisecond // longest pause before a range waits again that is woken for others all the time
)

// changeSize is the memory that a change takes.
func changeSize(c *feed.Change) int { return len(c.Body) + len(c.Previous) + 256 }

func sizeOf(page feed.Page) (bytes int) {
	for i := range page.Changes {
		bytes += changeSize(&page.Changes[i])
	}
	return bytes
}
