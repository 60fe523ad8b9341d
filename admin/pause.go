package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Pause pauses the leases of a selection: no instance delivers their changes until [Unit.Resume]. Pause returns when
// each of the leases is without an owner. If ctx ends before, the error is [ErrNotServed]: the range stays paused, and
// the instances that are left obey when they read the request. To pause a paused range is no error.
//
// Errors: [feed.ErrNotFound] for a unit without leases in the selection, [feed.ErrBadRequest] for a range that cuts a
// lease, [feed.ErrForeignOwner] for a lease of another kind of processor, and those of the lease store.
func (u *Unit) Pause(ctx context.Context, s Selection) ([]Step, error) {
	v, err := u.list(ctx)
	if err != nil {
		return nil, err
	}
	chosen, err := u.choose(v, s)
	steps := stepsOf(ActionPause, chosen)
	if err != nil || u.options.DryRun {
		return steps, err
	}
	if err := u.postPause(ctx, v, s.of); err != nil {
		return steps, err
	}
	err = until(ctx, func() (bool, string, error) { return u.settlePause(ctx, s.of, true) })
	for i := range steps {
		steps[i].Done = err == nil
	}
	return steps, err
}

// stepsOf returns a step for each lease.
func stepsOf(action Action, leases []feed.Record) []Step {
	steps := make([]Step, len(leases))
	for i, lease := range leases {
		steps[i] = Step{Action: action, Lease: lease.Lease()}
	}
	return steps
}

// postPause writes the request, unless there is one for the range.
func (u *Unit) postPause(ctx context.Context, v *records.View, of feed.Range) error {
	if slices.ContainsFunc(v.Pauses(), func(r feed.Range) bool { return r.Contains(of) }) {
		return nil
	}
	c := u.control(notes.Pause, of)
	request := feed.Record{Kind: feed.KindRequest, Token: c.Token(), Properties: c.Properties(nil)}
	stamp(&request)
	_, err := u.leases.Create(ctx, request)
	if errors.Is(err, feed.ErrConflict) { // of an earlier pause, which is over
		old, found := findRequest(v, c.Token())
		if !found {
			return fmt.Errorf("pause %s: %w: somebody else pauses it now: try again", of, feed.ErrConflict)
		}
		old.State, old.TTL, old.Properties = feed.StateLive, 0, request.Properties
		stamp(&old)
		_, err = u.leases.Update(ctx, old)
	}
	if err != nil {
		return fmt.Errorf("pause %s: %w", of, err)
	}
	return nil
}

// findRequest finds the record of a request.
func findRequest(v *records.View, token string) (feed.Record, bool) {
	all := v.Kind(feed.KindRequest)
	i := slices.IndexFunc(all, func(r feed.Record) bool { return r.Token == token })
	if i < 0 {
		return feed.Record{}, false
	}
	return all[i], true
}

// settlePause marks the leases of a range that nobody works on, or removes their marks, and reports whether that is
// done for all. left names a lease that is left.
func (u *Unit) settlePause(ctx context.Context, of feed.Range, paused bool) (done bool, left string, err error) {
	v, err := u.list(ctx)
	if err != nil {
		return false, "", err
	}
	leases, _ := v.Leases()
	for _, lease := range leases {
		if !of.Overlaps(lease.Range) || records.IsMarkedPaused(lease) == paused && (!paused || lease.Free()) {
			continue
		}
		if !paused && !records.IsMarkedPaused(lease) {
			continue
		}
		if isAtWork(lease, v.Now()) || lease.State == feed.StateSplitting && !lease.Free() {
			left = fmt.Sprintf("lease %s belongs to %s, who last wrote it %v ago", lease.Token, lease.Owner,
				v.Now().Sub(lease.Updated).Round(time.Second))
			continue
		}
		changed, err := u.change(ctx, lease, func(l *feed.Record) {
			if paused {
				records.MarkPaused(l, v.Now())
			} else {
				records.SetProperty(l, notes.PausedProperty, "")
			}
		})
		if err != nil {
			return false, "", err
		}
		if !changed {
			left = fmt.Sprintf("lease %s was written meanwhile", lease.Token)
		}
	}
	return left == "", left, nil
}

// Resume ends the pause of a selection. The instances take the leases in their next round, within about a second if the
// lease store is a [feed.Follower]. To resume a range that is not paused is no error.
//
// A range that was paused as a part of a larger one cannot be resumed alone: the error is a [feed.ErrBadRequest] that
// names the larger range. Other errors are those of [Unit.Pause].
func (u *Unit) Resume(ctx context.Context, s Selection) ([]Step, error) {
	v, err := u.list(ctx)
	if err != nil {
		return nil, err
	}
	chosen, err := u.choose(v, s)
	if err != nil {
		return nil, err
	}
	pauses := v.Pauses()
	for _, r := range pauses {
		if r.Overlaps(s.of) && !s.of.Contains(r) {
			return nil, fmt.Errorf("%w: range %s is paused as a part of %s: want that one", feed.ErrBadRequest, s.of, r)
		}
	}
	chosen = slices.DeleteFunc(chosen, func(l feed.Record) bool { return !records.IsPaused(l, pauses) })
	steps := stepsOf(ActionResume, chosen)
	if u.options.DryRun {
		return steps, nil
	}
	for _, r := range pauses {
		if s.of.Contains(r) {
			if err := u.endPause(ctx, r); err != nil {
				return steps, err
			}
		}
	}
	err = until(ctx, func() (bool, string, error) { return u.settlePause(ctx, s.of, false) })
	for i := range steps {
		steps[i].Done = err == nil
	}
	return steps, err
}

// endPause makes the request for a range retired. The instances follow writes, and would not notice a delete.
func (u *Unit) endPause(ctx context.Context, of feed.Range) error {
	err := until(ctx, func() (bool, string, error) {
		v, err := u.list(ctx)
		if err != nil {
			return false, "", err
		}
		request, found := findRequest(v, u.control(notes.Pause, of).Token())
		if !found || request.State != feed.StateLive {
			return true, "", nil
		}
		request.State, request.TTL = feed.StateRetired, notes.OutcomeTTL
		stamp(&request)
		_, err = u.leases.Update(ctx, request)
		if errors.Is(err, feed.ErrConflict) || errors.Is(err, feed.ErrNotFound) {
			return false, "the request was written meanwhile", nil
		}
		return err == nil, "", err
	})
	if err != nil {
		return fmt.Errorf("resume %s: %w", of, err)
	}
	return nil
}
