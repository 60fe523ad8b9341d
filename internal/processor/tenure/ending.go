package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// giveUp gives the lease up according to the reason.
func (w *worker) giveUp(e instance.Ending) feed.Reason {
	if e.Why != feed.ReasonStuck && e.Why != feed.ReasonLost {
		w.dispatcher.HandBack()
	}
	switch e.Why {
	case feed.ReasonSplit:
		if e.Into > 0 {
			return w.writeParts(e.Into)
		}
		return w.splitLease()
	case feed.ReasonJoined:
		return join{w, e.Seat}.joinLease()
	case feed.ReasonRedundant:
		return w.removeCovered()
	case feed.ReasonStopped, feed.ReasonGiven, feed.ReasonPaused, feed.ReasonUnconfirmed:
		return w.writeNextOwner(e)
	case feed.ReasonReset:
		return w.resetLease(*e.Asked)
	case feed.ReasonSkipped, feed.ReasonReplayed:
		return w.obeyRequest(e)
	}
	return e.Why // lost already; or stuck, and then the lease must expire, so that no instance starts too early
}

// writeNextOwner writes the next owner, or no owner.
func (w *worker) writeNextOwner(e instance.Ending) feed.Reason {
	// Derived from the base, because the context of the processor has usually ended by now.
	ctx, cancel := context.WithTimeout(w.in.Base, w.in.Options.Drain)
	defer cancel()
	err := w.keeper.storeWith(ctx, func(l *feed.Record) {
		records.GiveTo(l, e.To)
		if e.Undone {
			records.EndJoining(l)
		}
		if e.Why == feed.ReasonPaused {
			records.MarkPaused(l, w.in.View.Now())
		}
	})
	if err != nil {
		w.held.Report(w.held.UntilLost, feed.OriginLeaseStore, fmt.Errorf("release: %w", err))
		return feed.ReasonLost
	}
	return e.Why
}

// resetLease writes the position that an operator has asked for, without an owner, and then the outcome. The next owner
// begins there. If the outcome cannot be written, the next owner finds in the lease that the request is served.
func (w *worker) resetLease(request feed.Record) feed.Reason {
	ctx, cancel := context.WithTimeout(w.in.Base, w.in.Options.Drain)
	defer cancel()
	if !w.mayObey(ctx, request) {
		return w.writeNextOwner(instance.Ending{Why: feed.ReasonReset})
	}
	control, _ := notes.ReadControl(request.Properties) // the unit has read it before
	at, _ := records.PositionOf(control.To)
	by := notes.LastReset{On: control.On, Caller: request.Properties[notes.CallerProperty]}
	if err := w.keeper.storeInstead(ctx, func(l *feed.Record) { records.ResetTo(l, at, by) }); err != nil {
		w.held.Report(w.held.UntilLost, feed.OriginLeaseStore, fmt.Errorf("reset: %w", err))
		return feed.ReasonLost
	}
	w.held.Report(ctx, feed.OriginLeaseStore, w.in.RetireRequest(ctx, request, notes.Outcome{Result: notes.Handled}))
	return feed.ReasonReset
}

// replacedError returns an error if others are about to replace a lease, so nothing can be asked of it.
func replacedError(l feed.Record) error {
	if l.State == feed.StateLive {
		return nil
	}
	return fmt.Errorf("the lease is being %s: try again in a moment", records.Replaced(l))
}

// obeyRequest writes the lease without an owner, and with what an operator has asked for its changes: some are skipped,
// or those of a key come again. The next owner goes on from there. The request is refused if the lease, as it is after
// the last batch, does not allow it; then it is only given up.
func (w *worker) obeyRequest(e instance.Ending) feed.Reason {
	ctx, cancel := context.WithTimeout(w.in.Base, w.in.Options.Drain)
	defer cancel()
	free := instance.Ending{Why: e.Why}
	if !w.mayObey(ctx, *e.Asked) {
		return w.writeNextOwner(free)
	}
	partitions, err := records.Noted(ctx, w.in.Source)
	if err != nil { // the next owner is asked
		w.held.Report(ctx, feed.OriginSource, fmt.Errorf("%s: %w", e.Why, err))
		return w.writeNextOwner(free)
	}
	control, _ := notes.ReadControl(e.Asked.Properties) // the unit has read it before
	caller := e.Asked.Properties[notes.CallerProperty]
	var refused atomic.Pointer[error] // a renewal may make the change once more
	obey := func(l *feed.Record) {
		l.Owner, l.Epoch = "", ""
		properties, err := records.Obey(w.in.Source, *l, partitions, control, caller)
		if err != nil {
			refused.Store(&err)
			return
		}
		refused.Store(nil)
		l.Properties = properties
	}
	if err := w.keeper.storeLast(ctx, obey); err != nil {
		w.held.Report(w.held.UntilLost, feed.OriginLeaseStore, fmt.Errorf("%s: %w", e.Why, err))
		return feed.ReasonLost
	}
	outcome := notes.Outcome{Result: notes.Handled}
	if cause := refused.Load(); cause != nil {
		outcome = notes.Outcome{Result: notes.Failed, Cause: (*cause).Error()}
	} else if control.Action == notes.SkipChanges {
		instance.CallHook(w.in, w.in.Hooks.Skipped, skipOf(w.held.Lease.Token, control))
	}
	w.held.Report(ctx, feed.OriginLeaseStore, w.in.RetireRequest(ctx, *e.Asked, outcome))
	return e.Why
}

// skipOf describes a skip for the hook.
func skipOf(lease string, c notes.Control) feed.Skip {
	s := feed.Skip{Lease: lease, By: c.By, Reason: c.Why}
	for _, n := range c.Changes {
		s.Changes = append(s.Changes, feed.SkippedChange{ID: n.ID, Key: feed.PartitionKey(n.Key), LSN: n.LSN})
	}
	return s
}

// mayObey reports whether a request is to be carried out now. The lease itself decides, because the view of the unit
// may be older than the lease.
func (w *worker) mayObey(ctx context.Context, request feed.Record) bool {
	if !w.isAsked(ctx, request) {
		return false
	}
	var outcome *notes.Outcome
	look := func(l *feed.Record) { outcome = outcomeBefore(*l, request.Properties[notes.CallerProperty]) }
	err := w.keeper.changeNextWrite(ctx, look)
	if err == nil && outcome != nil {
		err = w.in.RetireRequest(ctx, request, *outcome)
	}
	w.held.Report(ctx, feed.OriginLeaseStore, err)
	return err == nil && outcome == nil
}

// outcomeBefore returns the outcome of a caller's request that is not to be carried out; nil if it is. What an earlier
// owner has carried out, and only its outcome is missing, is not done again; a lease that is being split or joined is
// refused, because some leases of its successors may exist already.
func outcomeBefore(l feed.Record, caller string) *notes.Outcome {
	if records.IsServed(l, caller) {
		return &notes.Outcome{Result: notes.Handled}
	}
	if replaced := replacedError(l); replaced != nil {
		return &notes.Outcome{Result: notes.Failed, Cause: replaced.Error()}
	}
	return nil
}

// isAsked reports whether a request is still there. A request that was withdrawn or replaced is not served: a follower
// does not see deletes, so only a listing shows that.
func (w *worker) isAsked(ctx context.Context, request feed.Record) bool {
	if err := w.in.View.List(ctx, time.Now()); err != nil {
		w.held.Report(ctx, feed.OriginLeaseStore, fmt.Errorf("reset: %w", err))
		return false
	}
	now, there := w.in.View.Get(request.ID)
	return there && now.State == feed.StateLive &&
		now.Properties[notes.CallerProperty] == request.Properties[notes.CallerProperty]
}

// removeCovered removes a redundant lease. If the lease has changed meanwhile, or cannot be removed now, removeCovered
// frees the lease instead, and the next owner decides again.
func (w *worker) removeCovered() feed.Reason {
	ctx, cancel := context.WithTimeout(w.held.UntilDrained, records.StoreTimeout)
	defer cancel()
	var mine feed.Record
	err := w.keeper.changeNextWrite(ctx, func(lease *feed.Record) { mine = *lease })
	if err == nil && w.in.View.IsRedundant(mine) {
		if err = w.deleteLease(ctx); err == nil {
			return feed.ReasonRedundant
		}
	}
	if w.held.UntilLost.Err() != nil {
		return feed.ReasonLost
	}
	w.held.Report(w.held.UntilLost, feed.OriginLeaseStore, err)
	pause.For(w.held.UntilStopped, w.in.Options.Poll)
	return w.writeNextOwner(instance.Ending{Why: feed.ReasonRedundant})
}

// deleteLease deletes the worker's lease, or retires the lease without the right to delete.
func (w *worker) deleteLease(ctx context.Context) error {
	var mine feed.Record
	if err := w.keeper.changeNextWrite(ctx, func(lease *feed.Record) { mine = *lease }); err != nil {
		return err
	}
	err := w.in.Store.Delete(ctx, mine)
	switch {
	case err == nil || errors.Is(err, feed.ErrNotFound):
		w.in.View.Drop(mine.ID)
		return nil
	case errors.Is(err, feed.ErrForbidden):
		return w.keeper.storeWith(ctx, func(lease *feed.Record) {
			lease.State, lease.Owner, lease.Epoch = feed.StateRetired, "", ""
		})
	}
	return fmt.Errorf("delete lease: %w", err)
}
