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
// the instances that are left obey when they read the request. To pause a paused range is no error: the reason of the
// first pause stays, see [Step.Earlier].
//
// If somebody has deleted a lease, Pause waits until an instance has made another one, because the owner of the first
// may not know and still work.
//
// Errors: [feed.ErrNotFound] for a unit without leases in the selection, [feed.ErrBadRequest] for a range that cuts a
// lease, [feed.ErrConflict] if somebody ends the pause meanwhile, or if a lease was joined with one outside of the
// range, [feed.ErrForeignOwner] for a lease of another kind of processor, and those of the lease store.
func (u *Unit) Pause(ctx context.Context, s Selection) ([]Step, error) {
	v, err := u.list(ctx)
	if err != nil {
		return nil, err
	}
	chosen, err := u.choose(v, s)
	steps := stepsOf(ActionPause, chosen)
	addEarlier(v, s.of, steps)
	if err != nil || u.options.DryRun {
		return steps, err
	}
	old, err := u.postPause(ctx, v, s.of)
	if err == nil {
		err = until(ctx, func() (bool, string, error) { return u.settlePause(ctx, s.of, old, steps) })
	}
	if errors.Is(err, errJoined) { // other keys would wait too
		err = errors.Join(err, u.resume(ctx, s.of, []feed.Range{s.of}))
	}
	if errors.Is(err, ErrNotServed) {
		done := len(slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return !s.Done }))
		err = fmt.Errorf("%w: %d of %d leases are paused, and the request stays: the others follow when their owners "+
			"read it, and a resume ends it", err, done, len(steps))
	} else {
		for i := range steps {
			steps[i].Done = err == nil
		}
	}
	return steps, u.record(ctx, ActionPause, s.of, steps, err)
}

// addEarlier adds the request that pauses a range already to the steps of a pause.
func addEarlier(v *records.View, of feed.Range, steps []Step) {
	for _, record := range v.Kind(feed.KindRequest) {
		if q := describeRequest(record, v.Now()); q.pauses(of) {
			for i := range steps {
				steps[i].Earlier = &q
			}
			return
		}
	}
}

// errJoined means that a lease of a range was joined with one outside of it.
var errJoined = errors.New("its lease was joined with a neighbouring lease meanwhile")

// stepsOf returns a step for each lease.
func stepsOf(action Action, leases []feed.Record) []Step {
	steps := make([]Step, len(leases))
	for i, lease := range leases {
		steps[i] = Step{Action: action, Lease: lease.Lease()}
	}
	return steps
}

// postPause writes the request, unless there is one for the range. old are the ETags of the leases whose marks may be
// older than the request: instances remove marks without a request, so these are written anew.
func (u *Unit) postPause(ctx context.Context, v *records.View, of feed.Range) (old map[string]string, err error) {
	if !slices.ContainsFunc(v.Pauses(), func(r feed.Range) bool { return r.Contains(of) }) {
		c := u.newControl(notes.Pause, of)
		request := feed.Record{Kind: feed.KindRequest, Token: c.Token(), Properties: c.Properties(nil)}
		stamp(&request)
		_, err := u.leases.Create(ctx, request)
		if errors.Is(err, feed.ErrConflict) { // of an earlier pause, which is over
			ended, found := findRequest(v, c.Token())
			if !found {
				return nil, fmt.Errorf("pause %s: %w: somebody else pauses it now: try again", of, feed.ErrConflict)
			}
			if ended.Err != nil {
				return nil, fmt.Errorf("pause %s: document %s should be a request, and is invalid: %w: delete it and try "+
					"again", of, ended.ID, ended.Err)
			}
			ended.State, ended.TTL, ended.Properties = feed.StateLive, 0, request.Properties
			stamp(&ended)
			_, err = u.leases.Update(ctx, ended)
		}
		if err != nil {
			return nil, fmt.Errorf("pause %s: %w", of, err)
		}
	}
	if v, err = u.list(ctx); err != nil {
		return nil, err
	}
	old = map[string]string{}
	for _, lease := range v.LeasesWhere(records.IsMarkedPaused) {
		old[lease.ID] = lease.ETag
	}
	return old, nil
}

// isDown returns whether a lease is paused: it has a mark that is newer than the request, and nobody works on it.
func isDown(old map[string]string) func(feed.Record, time.Time) bool {
	return func(l feed.Record, now time.Time) bool {
		return records.IsMarkedPaused(l) && l.Free() && !l.Fence.After(now) && old[l.ID] != l.ETag
	}
}

// isUp reports whether the pause of a lease is over.
func isUp(l feed.Record, _ time.Time) bool { return !records.IsMarkedPaused(l) }

// markPaused marks a lease. A mark that it has stays.
func markPaused(l *feed.Record, now time.Time) {
	if !records.IsMarkedPaused(*l) {
		records.MarkPaused(l, now)
	}
}

// unmark removes the mark of a lease.
func unmark(l *feed.Record, _ time.Time) { records.SetProperty(l, notes.PausedProperty, "") }

// findRequest finds the record of a request.
func findRequest(v *records.View, token string) (feed.Record, bool) {
	all := v.Kind(feed.KindRequest)
	i := slices.IndexFunc(all, func(r feed.Record) bool { return r.Token == token })
	if i < 0 {
		return feed.Record{}, false
	}
	return all[i], true
}

// settlePause marks the leases of a range that nobody works on, notes the steps of leases that are paused, and reports
// whether all are. left names a lease that is left.
func (u *Unit) settlePause(ctx context.Context, of feed.Range, old map[string]string, steps []Step) (bool, string,
	error,
) {
	v, err := u.list(ctx)
	if err != nil {
		return false, "", err
	}
	for i, s := range steps {
		lease, there := v.Get(s.Lease.ID)
		steps[i].Done = there && isDown(old)(lease, v.Now())
	}
	if !slices.ContainsFunc(v.Pauses(), func(r feed.Range) bool { return r.Contains(of) }) {
		return false, "", fmt.Errorf("%w: somebody has ended the pause of %s meanwhile", feed.ErrConflict, of)
	}
	leases, _ := v.Leases()
	for _, lease := range leases {
		if lease.State == feed.StateLive && of.Overlaps(lease.Range) && !of.Contains(lease.Range) {
			return false, "", fmt.Errorf("%w: pause %s: %w: nothing is paused: try again with %s", feed.ErrConflict, of,
				errJoined, lease.Range)
		}
	}
	left, err := u.settle(ctx, v, of, isDown(old), markPaused)
	// If somebody has deleted a lease, its owner does not know, and may still work.
	if holes := records.Holes(of, leases); len(holes) > 0 && err == nil {
		left = fmt.Sprintf("no lease holds %s, until an instance makes one", holes[0])
	}
	return left == "" && err == nil, left, err
}

// settleResume removes the marks of a range, and reports whether none is left. A new pause writes each mark anew before
// it returns, so a mark listed before the pause cannot be removed.
func (u *Unit) settleResume(ctx context.Context, of feed.Range) (bool, string, error) {
	v, err := u.list(ctx)
	if err != nil {
		return false, "", err
	}
	if slices.ContainsFunc(v.Pauses(), of.Overlaps) {
		return false, "", fmt.Errorf("%w: somebody has paused %s again meanwhile", feed.ErrConflict, of)
	}
	left, err := u.settle(ctx, v, of, isUp, unmark)
	return left == "" && err == nil, left, err
}

// settle changes the leases of a range that are not done and that nobody works on. left names one that was not done.
func (u *Unit) settle(ctx context.Context, v *records.View, of feed.Range,
	isDone func(feed.Record, time.Time) bool, edit func(*feed.Record, time.Time),
) (left string, err error) {
	leases, _ := v.Leases()
	for _, lease := range leases {
		if !of.Overlaps(lease.Range) || isDone(lease, v.Now()) {
			continue
		}
		if work := workOn(lease, v.Now()); work != "" {
			left = work
			continue
		}
		if _, err := u.changeLease(ctx, lease, func(l *feed.Record) { edit(l, v.Now()) }); err != nil {
			return left, err
		}
		left = fmt.Sprintf("lease %s was written just now", lease.Token)
	}
	return left, nil
}

// Resume ends the pause of a selection. The instances take the leases in their next round, within about a second if the
// lease store is a [feed.Follower]. To resume a range that is not paused is no error.
//
// A range paused as a part of a larger one cannot be resumed alone: the error is a [feed.ErrBadRequest] that
// names the larger range. Other errors are those of [Unit.Pause].
func (u *Unit) Resume(ctx context.Context, s Selection) ([]Step, error) {
	v, chosen, err := listChosen(ctx, u, s)
	if err != nil {
		return nil, err
	}
	pauses := v.Pauses()
	for _, r := range pauses {
		if r.Overlaps(s.of) && !s.of.Contains(r) {
			lease := ""
			if r != feed.FullRange() {
				lease = " --lease " + r.String()
			}
			return nil, fmt.Errorf("%w: range %s is paused as a part of %s: resume that one: changefeed leases resume%s",
				feed.ErrBadRequest, s.of, r, lease)
		}
	}
	chosen = slices.DeleteFunc(chosen, func(l feed.Record) bool { return !records.IsPaused(l, pauses) })
	steps := stepsOf(ActionResume, chosen)
	if u.options.DryRun {
		return steps, nil
	}
	ended := slices.DeleteFunc(pauses, func(r feed.Range) bool { return !s.of.Contains(r) })
	err = u.resume(ctx, s.of, ended)
	for i := range steps {
		steps[i].Done = err == nil
	}
	if len(steps) == 0 && len(ended) == 0 && err == nil { // nothing was paused
		return nil, nil
	}
	return steps, u.record(ctx, ActionResume, s.of, steps, err)
}

// resume ends the pauses of some ranges, and removes the marks of a range.
func (u *Unit) resume(ctx context.Context, of feed.Range, pauses []feed.Range) error {
	for _, r := range pauses {
		if err := u.endPause(ctx, r); err != nil {
			return err
		}
	}
	return until(ctx, func() (bool, string, error) { return u.settleResume(ctx, of) })
}

// endPause makes the request for a range retired. The instances follow writes, and would not notice a delete.
func (u *Unit) endPause(ctx context.Context, of feed.Range) error {
	err := until(ctx, func() (bool, string, error) {
		v, err := u.list(ctx)
		if err != nil {
			return false, "", err
		}
		request, found := findRequest(v, u.newControl(notes.Pause, of).Token())
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
