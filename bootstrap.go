package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The right to create leases lasts for lockTime. Its holder sends no request after
// createTime, so that none arrives when somebody else may create.
const (
	lockTime   = 30 * time.Second
	createTime = lockTime / 3
)

// bootstrap sees to it that the unit's leases exist and fit the options, trying again
// for as long as that can help.
func (r *run) bootstrap(ctx context.Context) error {
	rng := r.random("bootstrap")
	for failures := 1; ; failures++ {
		done, err := r.tryBootstrap(ctx)
		if done || ctx.Err() != nil || err != nil && hopeless(err) {
			return err
		}
		r.report(ctx, OriginBalancer, "", err)
		if !pause(ctx, r.backoff(rng, failures)) {
			return context.Cause(ctx)
		}
	}
}

// hopeless tells errors that trying again cannot mend.
func hopeless(err error) bool {
	return slices.ContainsFunc([]error{
		ErrModeChanged, ErrStartIgnored, ErrNotFound, ErrForbidden, ErrBadRequest,
	}, func(e error) bool { return errors.Is(err, e) })
}

// tryBootstrap tells whether the unit is ready. It is not, without an error, while
// another instance creates the leases.
func (r *run) tryBootstrap(ctx context.Context) (done bool, err error) {
	if err := r.view.list(ctx, time.Now()); err != nil {
		return false, err
	}
	if err := r.checkMode(); err != nil {
		return false, err
	}
	if info := r.view.kind(KindInfo); len(info) > 0 {
		return true, r.checkStart(info[0])
	}
	return r.locked(ctx, func(ctx context.Context) error {
		if err := r.cover(ctx, r.opts.Start); err != nil {
			return err
		}
		info := Lease{Kind: KindInfo, Timestamp: timestamp(), Properties: map[string]string{
			optionProperty: r.opts.Start.String(),
			originProperty: r.origin().String(),
		}}
		got, err := r.store.Create(ctx, info)
		if err == nil {
			r.view.put(got)
		}
		if errors.Is(err, ErrConflict) {
			return nil
		}
		return err
	})
}

// Properties of the marker.
const (
	optionProperty = "start"  // Options.Start as it was given
	originProperty = "origin" // where the unit began, as a start that means the same later
)

// origin is where a lease that is lost must begin again, so that nothing is skipped:
// where the unit began.
func (r *run) origin() Start {
	if r.opts.Start.IsNow() && r.opts.Mode == LatestVersion {
		return FromTime(r.view.now().Add(-clockGrain)) // start times are whole seconds and exclusive
	}
	return r.opts.Start
}

// checkMode refuses leases of the other mode: their positions mean something else.
func (r *run) checkMode() error {
	for _, l := range r.view.kind(KindLease) {
		if l.Err == nil && l.Mode != r.opts.Mode {
			return fmt.Errorf("%w: lease %s was made for %s, Options.Mode is %s: use another processor name, or delete its leases",
				ErrModeChanged, l.ID, l.Mode, r.opts.Mode)
		}
	}
	return nil
}

// checkStart refuses a start that the leases would ignore. The one that they were made
// with is welcome: programs set it at every start.
func (r *run) checkStart(info Lease) error {
	first := info.Properties[optionProperty]
	if r.opts.Start.IsNow() || r.opts.Start.String() == first {
		return nil
	}
	return fmt.Errorf("%w: Options.Start is %s, but leases exist since %s that began from %q: leave Start empty, use another processor name, or delete the leases",
		ErrStartIgnored, r.opts.Start, info.Updated.Format(time.RFC3339), first)
}

// locked runs f while this instance alone may create leases. It does nothing while
// another does.
func (r *run) locked(ctx context.Context, f func(context.Context) error) (done bool, err error) {
	if locks := r.view.kind(KindLock); len(locks) > 0 {
		if r.view.now().Sub(locks[0].Updated) <= lockTime+clockGrain {
			return false, nil
		}
		err := r.store.Delete(ctx, locks[0]) // its holder died; stores without TTL leave it to us
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
			return false, fmt.Errorf("remove expired lock: %w", err)
		}
	}
	lock, err := r.store.Create(ctx, Lease{Kind: KindLock, TTL: lockTime, Timestamp: timestamp()})
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock: %w", err)
	}
	creating, cancel := context.WithTimeout(ctx, createTime)
	defer cancel()
	if err := r.view.list(creating, time.Now()); err != nil {
		return false, err
	}
	if err := f(creating); err != nil {
		return false, err // a request may still be on its way: the lock is left to expire
	}
	unlocking, cancel := linger(ctx, r.opts.Drain)
	defer cancel()
	r.report(unlocking, OriginLeaseStore, "", r.store.Delete(unlocking, lock))
	return true, nil
}

// cover creates leases for the parts of the key space that have none.
func (r *run) cover(ctx context.Context, start Start) error {
	partitions, err := r.source.Partitions(ctx)
	if err != nil {
		return err
	}
	parts := cutAt(r.holes(), r.grid(partitions))
	errs := make([]error, len(parts))
	together(ctx, len(parts), func(i int) {
		if err := r.insistOn(ctx, parts[i], start); err != nil {
			errs[i] = fmt.Errorf("create lease %s: %w", parts[i], err)
		}
	})
	return cmp.Or(errors.Join(errs...), context.Cause(ctx))
}

// grid is the partitions, cut so finely that there are MinLeases. It is the same each
// time, so that a creation that was interrupted goes on with the same parts.
func (r *run) grid(partitions []Partition) (cells []Range) {
	finer := (r.opts.MinLeases + len(partitions) - 1) / max(1, len(partitions))
	for _, p := range partitions {
		cells = append(cells, p.Range.Cut(finer)...)
	}
	return cells
}

// insistOn creates a lease, trying again until ctx ends; it returns the last error.
func (r *run) insistOn(ctx context.Context, part Range, start Start) error {
	rng := r.random("create " + part.String())
	for failures := 1; ; failures++ {
		err := r.createLease(ctx, part, start)
		if err == nil || hopeless(err) || !pause(ctx, r.backoff(rng, failures)) {
			return err
		}
	}
}

// createLease creates a free lease whose position is fixed before the first read: "now"
// becomes a token here, so that what is written from here on is delivered, whatever
// happens before the first checkpoint.
func (r *run) createLease(ctx context.Context, part Range, start Start) error {
	at := Position{Start: start}
	if start.IsNow() {
		page, err := r.source.Read(ctx, part, at, ReadOptions{Mode: r.opts.Mode, MaxItems: 1})
		if err != nil {
			return fmt.Errorf("read position of now: %w", err)
		}
		at = page.Next
	}
	got, err := r.store.Create(ctx, Lease{
		Kind: KindLease, Version: 1, Token: part.String(), Range: part,
		Position: at, Mode: r.opts.Mode, Timestamp: timestamp(),
	})
	if err == nil {
		r.view.put(got)
	}
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// checkCover looks whether the leases tile the key space. A hole that is there in two
// listings in a row is repaired, under the lock, from where the unit began. Leases that
// overlap are reported: which of them is right cannot be told from here.
func (r *run) checkCover(ctx context.Context) {
	good, _ := r.view.leases()
	r.reportOverlaps(good)
	open := r.holes()
	if len(open) == 0 || !slices.Equal(open, r.suspectHole) {
		r.suspectHole = open
		return
	}
	start := r.recorded()
	r.hooks.Error(&Error{Origin: OriginBalancer, Err: fmt.Errorf("%w: %v; creating leases from %v", ErrHole, open, start)})
	_, err := r.locked(ctx, func(ctx context.Context) error { return r.cover(ctx, start) })
	r.report(ctx, OriginBalancer, "", err)
}

// holes are the ranges that have no lease. One that another kind of processor keeps, or
// that is damaged but tells its range, is reported and left alone: whoever reads there,
// or mends it, must not find a second one.
func (r *run) holes() []Range {
	all, bad := r.view.leases()
	all = slices.Concat(all, bad)
	slices.SortFunc(all, func(a, b Lease) int { return cmp.Compare(a.Range.Min, b.Range.Min) })
	return holes(FullRange(), all)
}

// recorded is the origin that the marker tells, else one from which nothing is skipped
// that the mode can still give.
func (r *run) recorded() Start {
	if r.opts.Mode == AllVersionsAndDeletes {
		return FromNow()
	}
	for _, info := range r.view.kind(KindInfo) {
		if start, err := ParseStart(info.Properties[originProperty]); err == nil {
			return start
		}
	}
	return FromBeginning()
}

func (r *run) reportOverlaps(good []Lease) {
	for i := 1; i < len(good); i++ {
		a, b := good[i-1], good[i]
		id := a.ID + " " + b.ID
		if a.State == StateSplitting || b.State == StateSplitting || !a.Range.Overlaps(b.Range) || r.reported[id] {
			continue
		}
		r.reported[id] = true
		r.hooks.Error(&Error{
			Origin: OriginBalancer, Lease: a.Token,
			Err: fmt.Errorf("%w: %s and %s: keys in both are delivered twice", ErrOverlap, a.ID, b.ID),
		})
	}
}
