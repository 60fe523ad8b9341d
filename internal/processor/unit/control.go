package unit

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How an instance obeys the requests about whole leases; package notes describes them.

// comparePauses tells the hook which pauses have ended and begun since the last round. A pause of the same range that
// somebody has asked for anew is another one.
func (b *balancer) comparePauses() {
	now := map[feed.Range]feed.Pause{}
	for _, p := range b.in.View.PausesAsked() {
		now[p.Range] = p
	}
	for r, p := range b.paused {
		if now[r] != p {
			p.Ended = b.in.View.Now()
			instance.CallHook(b.in, b.in.Hooks.Paused, p)
		}
	}
	for r, p := range now {
		if b.paused[r] != p {
			instance.CallHook(b.in, b.in.Hooks.Paused, p)
		}
	}
	b.paused = now
}

// obeyPauses stops the workers of paused leases, and releases paused leases that have no worker yet.
func (b *balancer) obeyPauses(ctx context.Context, leases []feed.Record) {
	pauses := b.in.View.Pauses()
	for _, lease := range leases {
		held, _ := b.in.Claims.Held(lease.Range)
		if held != nil && records.OwnerOf(lease) == b.in.Me && records.IsPaused(lease, pauses) {
			held.Stop(instance.Ending{Why: feed.ReasonPaused})
		}
	}
	for _, lease := range b.ownedWithoutWork(leases) {
		if !records.IsPaused(lease, pauses) || !b.in.Claims.Claim(lease.Range) {
			continue
		}
		lease.Owner, lease.Epoch, lease.Timestamp = "", "", instance.Timestamp()
		records.MarkPaused(&lease, b.in.View.Now())
		b.writeUnowned(ctx, lease, "pause")
		b.in.Claims.Free(lease.Range)
	}
}

// hasOldMarks reports whether a lease has the mark of a pause of which the view has no request.
func (b *balancer) hasOldMarks() bool {
	return len(b.in.View.LeasesWhere(records.HasOldMark(b.in.View.Pauses()))) > 0
}

// dropOldMarks removes marks that a pause has left: the caller of the resume has died, or an instance has given a lease
// up for a pause that was over by then. Two listings must show the same version of the lease. The request of a pause is
// written before the first mark, so if the second listing does not show the request, the pause is over.
func (b *balancer) dropOldMarks(ctx context.Context, leases []feed.Record) {
	isOld, seen := records.HasOldMark(b.in.View.Pauses()), map[string]string{}
	for _, lease := range leases {
		if !isOld(lease) || !lease.Free() && !records.IsExpired(lease, b.planned, b.in.Options.Expiration) {
			continue
		}
		if b.marked[lease.ID] != lease.ETag {
			seen[lease.ID] = lease.ETag
			continue
		}
		lease.Owner, lease.Epoch, lease.Timestamp = "", "", instance.Timestamp()
		records.SetProperty(&lease, notes.PausedProperty, "")
		b.writeUnowned(ctx, lease, "end of a pause")
	}
	b.marked = seen
}

// writeUnowned writes a lease without an owner.
func (b *balancer) writeUnowned(ctx context.Context, lease feed.Record, why string) {
	got, err := b.in.Store.Update(ctx, lease)
	switch {
	case err == nil:
		b.in.View.Put(got)
		b.in.Wake()
	case errors.Is(err, feed.ErrConflict):
		b.in.View.Distrust()
	default:
		b.in.Report(ctx, feed.OriginLeaseStore, lease.Token, fmt.Errorf("%s: %w", why, err))
	}
}

// endings is why a lease is given up for a request.
var endings = map[string]feed.Reason{
	notes.Reset: feed.ReasonReset, notes.SkipChanges: feed.ReasonSkipped, notes.Replay: feed.ReasonReplayed,
}

// serveControl serves a request to reset a lease, to skip some of its changes or to replay a key, if this instance has
// the lease.
func (u *Unit) serveControl(ctx context.Context, held []*instance.Held, request feed.Record) {
	control, err := notes.ReadControl(request.Properties)
	if control.Action == notes.Pause {
		return
	}
	for _, h := range held {
		if h.Lease.Range != (feed.Range{Min: control.Min, Max: control.Max}) {
			continue
		}
		if err == nil {
			err = checkControl(control)
		}
		lease, _ := u.in.View.Get(h.Lease.ID)
		if lease.Fence.After(u.in.View.Now()) {
			continue // an earlier owner may still deliver, from the old position: a later round serves the request
		}
		switch caller := request.Properties[notes.CallerProperty]; {
		case err != nil:
			u.retire(ctx, request, notes.Outcome{Result: notes.Failed, Cause: err.Error()})
		case records.IsServed(lease, caller): // the outcome is missing alone
			u.retire(ctx, request, notes.Outcome{Result: notes.Handled})
		default:
			h.Stop(instance.Ending{Why: endings[control.Action], Asked: &request})
		}
	}
}

// checkControl checks what a request names.
func checkControl(c notes.Control) error {
	switch {
	case c.Action == notes.SkipChanges && len(c.Changes) == 0:
		return errors.New("the request names no changes")
	case c.Action == notes.SkipChanges:
		return nil
	case c.Action == notes.Replay && c.Key == "":
		return errors.New("the request names no key")
	}
	_, err := records.PositionOf(c.To)
	return err
}

// retire writes the outcome of a request. If ctx ends before, the next owner does that.
func (u *Unit) retire(ctx context.Context, request feed.Record, o notes.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, records.StoreTimeout)
	defer cancel()
	u.in.Report(ctx, feed.OriginLeaseStore, "", u.in.RetireRequest(ctx, request, o))
}
