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
		got, err := b.in.Store.Update(ctx, lease)
		switch {
		case err == nil:
			b.in.View.Put(got)
		case errors.Is(err, feed.ErrConflict):
			b.in.View.Distrust()
		default:
			b.in.Report(ctx, feed.OriginLeaseStore, lease.Token, fmt.Errorf("pause: %w", err))
		}
		b.in.Claims.Free(lease.Range)
	}
}

// reset serves a request for another position of a lease, if this instance has the lease.
func (u *Unit) reset(held []*instance.Held, request feed.Record) {
	control, err := notes.ReadControl(request.Properties)
	if err == nil && control.Action != notes.Reset {
		return
	}
	for _, h := range held {
		if h.Lease.Range != (feed.Range{Min: control.Min, Max: control.Max}) {
			continue
		}
		if err == nil {
			_, err = records.PositionOf(control.To)
		}
		lease, _ := u.in.View.Get(h.Lease.ID)
		switch caller := request.Properties[notes.CallerProperty]; {
		case err != nil:
			u.retire(request, notes.Outcome{Result: notes.Failed, Cause: err.Error()})
		case caller != "" && lease.Properties[notes.ResetProperty] == caller: // the outcome is missing alone
			u.retire(request, notes.Outcome{Result: notes.Handled})
		default:
			h.Stop(instance.Ending{Why: feed.ReasonReset, Asked: &request})
		}
	}
}

// retire writes the outcome of a request.
func (u *Unit) retire(request feed.Record, o notes.Outcome) {
	ctx, cancel := context.WithTimeout(u.in.Base, records.StoreTimeout)
	defer cancel()
	u.in.Report(ctx, feed.OriginLeaseStore, "", u.in.RetireRequest(ctx, request, o))
}
