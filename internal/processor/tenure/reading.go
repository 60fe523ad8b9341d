package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// readNextPage reads the next page, and retries until success.
func (w *worker) readNextPage() (page feed.Page, e instance.Ending) {
	for failures := 1; w.held.Ending().None(); failures++ {
		page, err := w.readOnce()
		switch {
		case err == nil:
			w.in.Absence.Disproved()
			return page, instance.Ending{}
		case !w.held.Ending().None():
			return page, w.held.Ending()
		case errors.Is(err, feed.ErrGone) && !w.isInOnePartition():
			return page, instance.Ending{Why: feed.ReasonSplit}
		}
		w.held.Report(w.held.UntilStopped, feed.OriginSource, advise(err))
		if w.in.Absence.Note(w.held.UntilStopped, w.in.Source, w.in.Options.Expiration, err) {
			w.in.Wake()
		}
		least := time.Duration(0)
		if throttled, ok := errors.AsType[*feed.ThrottledError](err); ok {
			least = throttled.After
		}
		w.held.Backoff(failures, least)
	}
	return page, w.held.Ending()
}

// readOnce reads the next page, unless a read ahead has done so.
func (w *worker) readOnce() (feed.Page, error) {
	w.held.Activity.WorkerDoes(feed.ActivityReading)
	if w.ahead != nil {
		if next, ok := <-w.ahead.pages; ok {
			return next.page, next.err
		}
		w.dropReadAhead()
	}
	return w.fetchPage(w.held.UntilStopped, w.dispatcher.ReadFrom())
}

// fetchPage reads the page after a position.
func (w *worker) fetchPage(ctx context.Context, at feed.Position) (feed.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, instance.ReadTimeout)
	defer cancel()
	o := feed.ReadOptions{Mode: w.in.Options.Mode, MaxItems: w.pageSize()}
	begun := time.Now()
	page, err := w.in.Source.Read(ctx, w.held.Lease.Range, at, o)
	if err == nil {
		w.held.Troubles.Remove(feed.OriginSource)
		w.end.Store(&feedEnd{lsn: page.Head, at: time.Now()})
	}
	instance.CallHook(w.in, w.in.Hooks.ReadDone, feed.ReadDone{
		Lease: w.held.Lease.Token, Changes: len(page.Changes), Charge: page.Charge,
		Duration: time.Since(begun), Err: err,
	})
	return page, err
}

// leastPage is the least number of changes that a read asks for, if the buffer has room for them. Batches of fewer
// changes are cut from the page, because a read takes hardly longer for a thousand changes than for a hundred. The
// service answers a read with at most pageBytes.
const (
	leastPage = 1000
	pageBytes = 4 << 20
)

// pageSize is how many changes a read asks for; 0 is the default of the source. If no position can be set within a
// page, a page is a batch.
func (w *worker) pageSize() int {
	o := &w.in.Options
	if _, ok := w.in.Source.(feed.Sequencer); !ok || o.MaxItems == 0 || o.BufferBytes < pageBytes {
		return o.MaxItems
	}
	return max(o.MaxItems, min(leastPage, o.BufferItems))
}

// advise adds advice to a lasting error.
func advise(err error) error {
	if errors.Is(err, feed.ErrTooOld) {
		return fmt.Errorf("%w: trying again cannot help; use another processor name, or delete the leases of this "+
			"one, to begin anew", err)
	}
	return err
}

// isInOnePartition reports whether a single partition contains the range. If so, and the source reports the range as
// gone, the source has an outdated list of partitions, and there is nothing to split.
func (w *worker) isInOnePartition() bool {
	ctx, cancel := context.WithTimeout(w.held.UntilStopped, instance.ReadTimeout)
	defer cancel()
	partitions, err := w.in.Source.Partitions(ctx)
	return err != nil || slices.ContainsFunc(partitions, func(p feed.Partition) bool {
		return p.Range.Contains(w.held.Lease.Range)
	})
}

// lookAhead reports a position that stays ahead of the feed. If a replica lags behind, the position looks the same for
// a while.
func (w *worker) lookAhead(page feed.Page) {
	switch {
	case !page.Ahead:
		w.tooFar = time.Time{}
	case w.tooFar.IsZero():
		w.tooFar = time.Now()
	case time.Since(w.tooFar) >= w.in.Options.Renew:
		w.tooFar = time.Now()
		w.held.Report(w.held.UntilStopped, feed.OriginSource, aheadError(w.dispatcher.ReadFrom(), page.Head))
	}
}

func aheadError(at feed.Position, end int64) error {
	return fmt.Errorf("%w: it is %s, and the feed ends at %d: was the container restored from a backup, or are these "+
		"leases of another one? "+
		"Changes up to the position will not be handled until you reset the unit to where it is to go on: changefeed "+
		"leases reset --to START, or package admin", feed.ErrAhead, at.Token, end)
}

// waitAfterEmptyPage waits after an empty page, until there may be more changes.
func (w *worker) waitAfterEmptyPage() {
	w.held.Activity.WorkerDoes(feed.ActivityWaiting)
	if waiter, ok := w.in.Source.(feed.Waiter); ok && !w.polls && w.awaitChanges(waiter) {
		return
	}
	w.polls = true
	pause.For(w.held.UntilCalled(), pause.Doubled(instance.FirstPoll, w.idle-1, w.in.Options.Poll))
}

// awaitChanges waits until the source may have more changes, and reports whether the source can wait. A quiet range is
// still read now and then. So the position of the range advances with the container and stays within the retention.
func (w *worker) awaitChanges(waiter feed.Waiter) (canWait bool) {
	// Writes to other leases of the partition wake us too: do not read after each of them.
	if w.idle > 1 && pause.For(w.held.UntilCalled(),
		pause.Doubled(time.Millisecond, w.idle, instance.MaxGather)) != nil {
		return true
	}
	most := w.in.Options.Renew
	if unsaved, every := w.dispatcher.Pending(); unsaved > 0 && every > 0 {
		most = min(most, every)
	}
	waiting, cancel := context.WithTimeout(w.held.UntilCalled(), most)
	defer cancel()
	begun := time.Now()
	err := waiter.Wait(waiting, w.held.Lease.Range, w.dispatcher.ReadFrom())
	if errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	waited := time.Since(begun)
	instance.CallHook(w.in, w.in.Hooks.WaitDone, feed.WaitDone{Lease: w.held.Lease.Token, Duration: waited, Err: err})
	if err != nil && waiting.Err() == nil {
		w.held.Report(w.held.UntilStopped, feed.OriginSource, err)
		pause.For(w.held.UntilStopped, w.in.Options.Poll)
	}
	if waited > instance.MaxGather {
		w.idle = 0
	}
	return true
}
