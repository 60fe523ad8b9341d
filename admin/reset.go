package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/parallel"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Reset makes the leases of a selection continue at a start: the beginning, now, or a time that is past. A lease that
// is paused stays paused, with the new position. Reset returns when each lease has its position. If ctx ends before,
// the error is [ErrNotServed], and the steps say which leases have theirs.
//
// If Reset ends early, a request that has not been served is withdrawn. If the caller dies, the request stays until a
// minute after the deadline of ctx, at most for a day, unless another reset of the lease replaces it.
//
// All positions are read before the first write, so a start that the feed does not offer changes nothing: the error is
// then a [feed.ErrBadRequest], [feed.ErrAhead] or [feed.ErrTooOld]. Other errors are those of [Unit.Pause].
func (u *Unit) Reset(ctx context.Context, s Selection, to feed.Start) ([]Step, error) {
	if to.IsZero() {
		return nil, fmt.Errorf("%w: the start is not set: want feed.FromBeginning, feed.FromNow or feed.FromTime",
			feed.ErrBadRequest)
	}
	return u.resetEach(ctx, ActionReset, s, func(ctx context.Context, lease feed.Record) (feed.Position, error) {
		return u.resolve(ctx, lease, feed.Position{Start: to.AsAgo(0)})
	})
}

// ResetTo makes the single lease of a selection continue at a position, such as the position of a [feed.Lease] or of a
// page. ResetTo is otherwise like [Unit.Reset].
func (u *Unit) ResetTo(ctx context.Context, s Selection, to feed.Position) ([]Step, error) {
	v, err := u.list(ctx)
	if err != nil {
		return nil, err
	}
	if chosen, err := u.choose(v, s); err != nil {
		return nil, err
	} else if len(chosen) > 1 {
		return nil, fmt.Errorf("%w: range %s has %d leases, and a position is that of one: want the range of a lease, "+
			"such as %s", feed.ErrBadRequest, s.of, len(chosen), chosen[0].Range)
	}
	return u.resetEach(ctx, ActionReset, s, func(ctx context.Context, lease feed.Record) (feed.Position, error) {
		return u.resolve(ctx, lease, to)
	})
}

// resolve checks a position with the source, and returns the token of a start if the source has such a token. If the
// partition of the lease has been split and nobody has noticed, the position stays as it is: the leases of the parts
// begin there.
func (u *Unit) resolve(ctx context.Context, lease feed.Record, to feed.Position) (feed.Position, error) {
	at := to
	if to.Token == "" && to.Start.IsNow() {
		at.Start = feed.Start{} // the source begins at its end
	}
	page, err := u.source.Read(ctx, lease.Range, at, feed.ReadOptions{Mode: lease.Mode, MaxItems: 1})
	if errors.Is(err, feed.ErrGone) {
		if at.Start.IsZero() && at.Token == "" {
			return to, fmt.Errorf("%w: lease %s is to begin now, and its partition has been split: start an instance, "+
				"which splits the lease, and try again", feed.ErrConflict, lease.Token)
		}
		if err := u.readPart(ctx, lease, at); err != nil {
			return to, fmt.Errorf("lease %s: read position %s: %w", lease.Token, to, err)
		}
		return to, nil
	}
	if err == nil {
		err = aheadError(page)
	}
	if err != nil {
		return to, fmt.Errorf("lease %s: read position %s: %w", lease.Token, to, err)
	}
	if _, ok := u.source.(feed.Sequencer); ok && to.Token != "" {
		if _, known := records.TokenLSN(u.source, to.Token); !known {
			return to, fmt.Errorf("lease %s: read position %q: %w: want a continuation token of this source, as changefeed "+
				"leases shows it", lease.Token, to.Token, feed.ErrBadRequest)
		}
	}
	if to.Token != "" {
		return to, nil
	}
	return instance.StartOfPage(u.source, page, at), nil
}

// readPart reads from a position in a part of a lease whose partition has been split, because the source may not look
// at the position of a range that is gone.
func (u *Unit) readPart(ctx context.Context, lease feed.Record, at feed.Position) error {
	partitions, err := u.source.Partitions(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(partitions, func(p feed.Partition) bool { return p.Range.Overlaps(lease.Range) })
	if i < 0 {
		return fmt.Errorf("%w: no partition holds %s", feed.ErrHole, lease.Range)
	}
	of := partitions[i].Range
	part := feed.Range{Min: max(of.Min, lease.Range.Min), Max: min(of.Max, lease.Range.Max)}
	page, err := u.source.Read(ctx, part, at, feed.ReadOptions{Mode: lease.Mode, MaxItems: 1})
	return cmp.Or(err, aheadError(page))
}

// aheadError returns an error if a page was read after the end of the feed.
func aheadError(page feed.Page) error {
	if !page.Ahead {
		return nil
	}
	return fmt.Errorf("%w: %w: the feed ends at LSN %d", feed.ErrBadRequest, feed.ErrAhead, page.Head)
}

// resetEach resets the leases of a selection to positions that are found first. action is that of the history.
func (u *Unit) resetEach(ctx context.Context, action Action, s Selection,
	find func(context.Context, feed.Record) (feed.Position, error),
) ([]Step, error) {
	if err := needSource(u); err != nil {
		return nil, err
	}
	v, chosen, err := listChosen(ctx, u, s)
	if err != nil {
		return nil, err
	}
	steps, on := stepsOf(ActionReset, chosen), v.Now().UnixMilli()
	for i, lease := range chosen {
		on = max(on, records.LastReset(lease).On+1)
		if lease.State != feed.StateLive {
			return nil, replacedError(v, lease)
		}
		if steps[i].To, err = find(ctx, lease); err != nil {
			return nil, err
		}
		if start := steps[i].To.Start.Time(); start.After(v.Now().Add(records.ClockGrain)) {
			return nil, fmt.Errorf("%w: start %s is in the future, by the clock of the lease store: changes until then "+
				"would be skipped without a sign: want a time that is past, or now", feed.ErrBadRequest,
				start.UTC().Format(time.RFC3339))
		}
	}
	if u.options.DryRun {
		return steps, nil
	}
	return steps, u.record(ctx, action, s.of, steps, u.resetAll(ctx, v, steps, on))
}

// resetsAtOnce is how many owners are asked at the same time.
const resetsAtOnce = 16

// resetAll resets leases, and returns the first error. Other leases are reset all the same.
func (u *Unit) resetAll(ctx context.Context, v *records.View, steps []Step, on int64) error {
	errs := make([]error, len(steps))
	parallel.Each(ctx, len(steps), resetsAtOnce, func(i int) {
		errs[i] = resetLease(ctx, u, v, steps[i], on)
		steps[i].Done = errs[i] == nil
	})
	first, left := -1, 0
	for i, s := range steps {
		if s.Done {
			continue
		}
		if left++; first < 0 {
			first = i
		}
	}
	if left == 0 {
		return nil
	}
	err := errs[first]
	if err == nil { // ctx has ended before its turn
		err = &unserved{"leases of a paused unit are reset sooner", context.Cause(ctx)}
	}
	return fmt.Errorf("%d of %d leases are not reset, lease %s: %w", left, len(steps), steps[first].Lease.Token, err)
}

// resetLease gives a lease the new position. listed is the listing that all leases share, and on orders the resets.
func resetLease(ctx context.Context, u *Unit, listed *records.View, step Step, on int64) error {
	by := notes.LastReset{On: on, Caller: rand.Text()}
	c := u.newControl(notes.Reset, step.Lease.Range)
	c.To, c.On = records.TargetOf(step.To), on
	e := errand{
		lease: step.Lease.ID, control: c, caller: by.Caller, listed: listed,
		isDone: func(l feed.Record) bool { return records.LastReset(l).Caller == by.Caller },
		edit: func(context.Context, feed.Record) (func(*feed.Record), error) {
			return func(l *feed.Record) { records.ResetTo(l, step.To, by) }, nil
		},
	}
	return e.carryOut(ctx, u)
}
