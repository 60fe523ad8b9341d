// Package tenure is the work on a held lease: a worker keeps the lease, reads the range, passes the pages to package
// dispatch, replaces the lease when the partition has split, and gives the lease up in good order.
package tenure

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/dispatch"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// worker works on a held lease: reads, delivers and waits, and gives the lease up according to the reason.
type worker struct {
	in         *instance.Instance
	held       *instance.Held
	keeper     *keeper
	dispatcher *dispatch.Dispatcher
	meter      *meter     // nil if the unit does not share by load
	ahead      *readAhead // nil if no page is read ahead
	crashed    bool       // the last owner has ended unexpectedly
	polls      bool       // the source cannot wait

	idle    int       // consecutive reads without changes
	omitted int       // unwanted changes since the last wanted change, or since a read without changes
	tooFar  time.Time // since when, or since the last report, reads have found the position ahead of the feed

	end atomic.Pointer[feedEnd] // as the last read has told; nil before
}

// feedEnd is the end of a partition's feed.
type feedEnd struct {
	lsn int64     // of the newest change; 0 is unknown
	at  time.Time // when a read told
}

// newWorker makes the worker of a lease that is ours since a write begun at started. crashed: the last owner has ended
// unexpectedly.
func newWorker(in *instance.Instance, lease feed.Record, started time.Time, crashed bool) *worker {
	held := in.Hold(lease)
	w := &worker{in: in, held: held, keeper: newKeeper(in, held, started), crashed: crashed}
	w.dispatcher = dispatch.New(in, held, w.keeper.store)
	w.keeper.fill, w.keeper.saved = w.dispatcher.Fill, w.dispatcher.Written
	if in.Options.ShareByLoad {
		w.meter = newMeter()
		w.keeper.fill = func(lease *feed.Record) dispatch.Mark {
			w.meter.writeTo(lease)
			return w.dispatcher.Fill(lease)
		}
	}
	held.Status, held.Requests = w.status, w.dispatcher.Requests()
	return w
}

// Begin begins to work on a claimed lease that is ours since a write begun at started. crashed: the last owner has
// ended unexpectedly.
func Begin(in *instance.Instance, lease feed.Record, started time.Time, crashed bool) {
	w := newWorker(in, lease, started, crashed)
	if records.IsPaused(lease, in.View.Pauses()) { // a part of a lease that was about to be split when it was paused
		w.held.Stop(instance.Ending{Why: feed.ReasonPaused})
	}
	in.Claims.Begin(w.held)
	in.Work.Go(func() {
		if w.work() == feed.ReasonStuck {
			go func() { // runs on alone: the instance does not wait
				w.dispatcher.Wait()
				in.Claims.Free(lease.Range)
			}()
			return
		}
		in.Claims.Free(lease.Range)
		in.Wake()
	})
}

// work works until the lease must be given up, gives the lease up, and returns the reason.
func (w *worker) work() feed.Reason {
	var keeping sync.WaitGroup
	keeping.Go(w.keeper.keepRenewing)
	defer keeping.Wait()
	defer w.held.Lose(feed.ErrLeaseLost)
	defer func() {
		if seat := w.held.Seat(); seat != nil { // nobody must wait for this worker
			seat.End()
		}
	}()
	instance.CallHook(w.in, w.in.Hooks.Acquired, w.held.Lease.Lease())
	e := w.readAndDeliver()
	if w.dispatcher.Finish() {
		e = instance.Ending{Why: feed.ReasonStuck}
	}
	if e.Why != feed.ReasonStuck && w.held.UntilLost.Err() != nil {
		e = instance.Ending{Why: feed.ReasonLost}
	}
	w.held.Activity.WorkerDoes(feed.ActivityEnding)
	e.Why = w.dispatcher.Close(e.Why)
	why := w.giveUp(e)
	if e.Why == feed.ReasonSplit {
		w.dispatcher.LeaveOutage()
	}
	if released := w.in.Hooks.Released; released != nil {
		released(w.in.Base, w.held.Lease.Lease(), why)
	}
	return why
}

// readAndDeliver reads and delivers until the lease must be given up.
func (w *worker) readAndDeliver() instance.Ending {
	if e := w.begin(); !e.None() {
		return e
	}
	defer w.dropReadAhead()
	w.dispatcher.Start() // the last owner may have set keys aside, whose changes the feed does not deliver again
	for {
		if seat := w.held.Seat(); seat != nil {
			if e := (join{w, seat}).meet(); !e.None() {
				return e
			}
		}
		page, e := w.readNextPage()
		switch {
		case !e.None():
			return e
		case len(page.Changes) == 0:
			w.measure(page, 0)
			w.idle++
			w.lookAhead(page)
			if w.dispatcher.Pass(page.Next, w.omitted, true) {
				w.omitted = 0
			}
			w.waitAfterEmptyPage()
			continue
		}
		w.idle, w.tooFar = 0, time.Time{}
		// Read the next pages while the handler has this page.
		w.readAhead(page)
		read, whole := len(page.Changes), page
		page.Changes = w.in.Wanted(page.Changes)
		w.measure(whole, len(page.Changes))
		if len(page.Changes) == 0 {
			w.omitted += read
			w.dispatcher.Pass(page.Next, 0, false)
			continue
		}
		w.omitted = 0
		if e := w.dispatcher.Deliver(page); !e.None() {
			return e
		}
	}
}

// measure measures the load of the lease, if the instances share the leases by load.
func (w *worker) measure(page feed.Page, wanted int) {
	if w.meter != nil {
		w.meter.see(page, wanted)
	}
}

// begin waits until every earlier owner of the keys must have stopped, and opens the handler.
func (w *worker) begin() instance.Ending {
	switch {
	case !w.held.Ending().None(): // before any call of the handler
		return w.held.Ending()
	case w.held.Lease.State == feed.StateSplitting:
		return instance.Ending{Why: feed.ReasonSplit}
	case w.in.View.IsRedundant(w.held.Lease):
		return instance.Ending{Why: feed.ReasonRedundant}
	}
	if w.held.Lease.Position.Token == "" {
		if e := w.fixStart(); !e.None() {
			return e
		}
	}
	if !w.held.Lease.Fence.IsZero() {
		w.held.Activity.WorkerDoes(feed.ActivityFenced)
		if pause.For(w.held.UntilStopped, w.held.Lease.Fence.Sub(w.in.View.Now())) != nil {
			return w.held.Ending()
		}
		if err := w.keeper.changeNextWrite(w.held.UntilDrained, func(l *feed.Record) {
			l.Fence = time.Time{}
		}); err != nil {
			return w.held.Ending()
		}
	}
	if e := w.awaitOthers(); !e.None() {
		return e
	}
	if e := w.restoreNotes(); !e.None() {
		return e
	}
	return w.dispatcher.Open()
}

// awaitOthers waits while another lease is worked on that has keys in common with this lease: a late create has left
// one of the two. If one of the two is redundant, its worker removes that lease meanwhile. If none is, both are worked
// on after the time for which an owner may trust its lease, and the overlap is reported.
func (w *worker) awaitOthers() instance.Ending {
	end := time.Now().Add(w.in.Options.Expiration + records.ClockGrain)
	for w.held.Ending().None() && time.Now().Before(end) {
		switch {
		case w.in.View.IsRedundant(w.held.Lease):
			return instance.Ending{Why: feed.ReasonRedundant}
		case !w.in.View.IsWorkedOnBeside(w.held.Lease, w.in.Options.Expiration):
			return w.held.Ending()
		}
		w.held.Activity.WorkerDoes(feed.ActivityFenced)
		w.in.Relist()
		_ = pause.For(w.held.UntilStopped, w.in.Options.Poll)
	}
	return w.held.Ending()
}

// restoreNotes makes the lanes continue from the last owner's notes.
func (w *worker) restoreNotes() instance.Ending {
	for failures := 1; w.held.Ending().None(); failures++ {
		ctx, cancel := context.WithTimeout(w.held.UntilStopped, instance.ReadTimeout)
		e, err := w.dispatcher.Restore(ctx, w.crashed)
		cancel()
		if err == nil {
			return e
		}
		w.held.Report(w.held.UntilStopped, feed.OriginSource, err)
		w.held.Backoff(failures, 0)
	}
	return w.held.Ending()
}

// fixStart fixes where a lease without a token begins, before any change is handled.
func (w *worker) fixStart() instance.Ending {
	at := feed.Position{Start: w.held.Lease.Position.Start}
	if at.Start.IsNow() {
		at.Start = w.in.View.Recorded(w.in.Options.Mode)
	}
	w.dispatcher.BeginAt(at)
	page, e := w.readNextPage()
	switch e.Why {
	case "":
		// an earlier owner's failures then do not count
		if at = instance.StartOfPage(w.in.Source, page, at); len(page.Changes) == 0 {
			w.dispatcher.Pass(at, 0, false)
		}
	case feed.ReasonSplit: // the leases of the parts begin there
	default:
		return e
	}
	w.dispatcher.BeginAt(at)
	if err := w.keeper.store(w.held.UntilDrained); err != nil {
		return w.held.Ending()
	}
	return e
}

// status describes the work.
func (w *worker) status() feed.LeaseStatus {
	s := feed.LeaseStatus{Lease: w.held.Lease.Lease()}
	s.Activity, s.Since = w.held.Activity.Now()
	s.Errors = w.held.Troubles.Values()
	w.dispatcher.Describe(&s)
	w.describePending(&s)
	return s
}

// describePending describes what is not handled, as far as that is known without a request.
func (w *worker) describePending(s *feed.LeaseStatus) {
	end := w.end.Load()
	if end == nil {
		return
	}
	s.Seen, s.Pending = end.at, int64(s.Buffered)
	read, ok := records.TokenLSN(w.in.Source, s.Read.Token)
	if ok && end.lsn > 0 {
		distance := max(0, end.lsn-read)
		s.Pending += distance
		s.Exact = distance == 0 && s.SetAside == 0
	}
}
