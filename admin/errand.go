package admin

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inquiry"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/records"
)

// errand is a request to the owner of a lease, and the change of the lease if there is no owner.
type errand struct {
	lease   string // ID
	control notes.Control
	caller  string
	listed  *records.View // for the first try, if the caller has listed the leases; or nil
	isDone  func(feed.Record) bool
	// edit returns a function that changes the lease, or why the lease cannot be changed
	edit func(context.Context, feed.Record) (func(*feed.Record), error)
}

// carryOut asks the owner of a lease to obey, or changes the lease here if nobody works on the lease. If many leases
// share a listing, the price does not grow with the square of their number; a lease written since has another ETag.
func (e errand) carryOut(ctx context.Context, u *Unit) error {
	return until(ctx, func() (bool, string, error) {
		v, err := e.listed, error(nil)
		if e.listed = nil; v == nil {
			v, err = u.list(ctx)
		}
		if err != nil {
			return false, "", err
		}
		lease, there := v.Get(e.lease)
		switch {
		case !there:
			return false, "", fmt.Errorf("%w: the lease was replaced or deleted meanwhile: try again", feed.ErrConflict)
		case lease.State != feed.StateLive:
			return false, "", replacedError(v, lease)
		case e.isDone(lease): // an owner has obeyed, and has not answered
			return true, "", nil
		case isAtWork(lease, v.Now()):
			switch err := e.withdrawObeyed(ctx, u, v, lease); {
			case errors.Is(err, feed.ErrConflict):
				return false, "an earlier request is being answered", nil
			case err != nil:
				return false, "", err
			}
			return e.askOwner(ctx, u)
		}
		if work := workOn(lease, v.Now()); work != "" {
			return false, work, nil
		}
		if err := e.withdrawOthers(ctx, u, v); err != nil {
			return false, "", err
		}
		edit, err := e.edit(ctx, lease)
		if err != nil {
			return false, "", err
		}
		changed, err := u.changeLease(ctx, lease, edit)
		return changed, "it was written meanwhile", err
	})
}

// withdrawObeyed withdraws an equal request of another caller that was obeyed and has no outcome yet. Its outcome would
// count for the present errand too, and the lease may have gone on since. If the other caller still waits, they find in
// the lease that theirs is done or, after a later reset, ask again.
func (e errand) withdrawObeyed(ctx context.Context, u *Unit, v *records.View, lease feed.Record) error {
	q, found := findRequest(v, e.control.Token())
	if !found || !records.IsServed(lease, q.Properties[notes.CallerProperty]) {
		return nil
	}
	return withdrawEarlier(ctx, u, q)
}

// withdrawOthers withdraws an earlier request for a lease without an owner, if the caller of that request has died: the
// next owner would serve the request after the present errand.
func (e errand) withdrawOthers(ctx context.Context, u *Unit, v *records.View) error {
	q, found := findRequest(v, e.control.Token())
	if !found {
		return nil
	}
	if err := withdrawEarlier(ctx, u, q); !errors.Is(err, feed.ErrConflict) {
		return err
	}
	return nil
}

// withdrawEarlier withdraws a request, if it still waits for its outcome. A [feed.ErrConflict] means that somebody has
// written the request meanwhile.
func withdrawEarlier(ctx context.Context, u *Unit, q feed.Record) error {
	if q.State != feed.StateLive {
		return nil
	}
	if err := inquiry.Withdraw(ctx, u.leases, q); err != nil && !errors.Is(err, feed.ErrNotFound) {
		return fmt.Errorf("withdraw an earlier request: %w", err)
	}
	return nil
}

// askOwner asks the owner of a lease. If the owner dies, the request goes to the next owner. If nobody owns the lease
// any more, the request is withdrawn.
func (e errand) askOwner(ctx context.Context, u *Unit) (done bool, left string, err error) {
	asking, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { e.awaitNoOwner(asking, u, cancel) })
	o, err := inquiry.AskAs(asking, u.leases, e.control, e.caller)
	cancel()
	watching.Wait()
	switch {
	case errors.Is(err, ErrUnknownAction):
		return false, "", err
	case errors.Is(err, inquiry.ErrNotServed):
		return false, err.Error(), nil
	case err != nil:
		return false, "", err
	case o.Result != notes.Handled:
		return false, "", fmt.Errorf("%w: %s", feed.ErrConflict, o.Cause)
	}
	return true, "", nil
}

// awaitNoOwner calls then when nobody owns the lease, unless ctx ends before.
func (e errand) awaitNoOwner(ctx context.Context, u *Unit, then func()) {
	for pause.For(ctx, lastWait) == nil {
		if v, err := u.list(ctx); err == nil {
			if lease, there := v.Get(e.lease); !there || lease.State != feed.StateLive || !isAtWork(lease, v.Now()) {
				then()
			}
		}
	}
}

// obey carries out a skip or a replay.
func obey(ctx context.Context, u *Unit, lease string, c notes.Control, caller string) error {
	e := errand{
		lease: lease, control: c, caller: caller,
		isDone: func(l feed.Record) bool { return records.IsServed(l, caller) },
		edit: func(ctx context.Context, l feed.Record) (func(*feed.Record), error) {
			partitions, err := records.Noted(ctx, u.source)
			if err != nil {
				return nil, fmt.Errorf("read partitions: %w", err)
			}
			properties, err := records.Obey(u.source, l, partitions, c, caller)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", feed.ErrConflict, err)
			}
			return func(l *feed.Record) { l.Properties = properties }, nil
		},
	}
	return e.carryOut(ctx, u)
}

// only returns the single lease of a range, if that lease can be changed now.
func only(u *Unit, v *records.View, of feed.Range) (feed.Record, error) {
	chosen, err := u.choose(v, Of(of))
	switch {
	case err != nil:
		return feed.Record{}, err
	case len(chosen) > 1:
		return feed.Record{}, fmt.Errorf("%w: range %s has %d leases: want the range of one, such as %s",
			feed.ErrBadRequest, of, len(chosen), chosen[0].Range)
	case chosen[0].State != feed.StateLive:
		return feed.Record{}, replacedError(v, chosen[0])
	}
	return chosen[0], nil
}
