package changefeed

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// failingFor is how long the oldest change of a lease may fail before the lease counts as stuck: longer than the
// restart of a system that a handler needs.
const failingFor = 5 * time.Minute

// Healthy returns nil if the running calls of [Processor.Run] work as far as they know, or else the worst problem:
//
//   - [ErrNotRunning]: no call of Run is running, or all of them are about to return
//   - the lease store has not answered for an [Options.Expiration], so leases are lost; or the unit has had no leases
//     for so long
//   - [feed.ErrHandlerStuck]: a handler has not returned within [Options.Drain] after its context had ended, as it does
//     after [Options.HandlerTimeout]
//   - a lease document is invalid: [feed.ErrBadLease], [feed.ErrForeignLease], [feed.ErrOverlap] or [feed.ErrNoStart]
//   - [feed.ErrOutage]: a system that the handler needs seems to be away
//   - [feed.ErrNoProgress]: the oldest change of a lease has failed for five minutes
//   - the last request to the source or the lease store has failed, a lease cannot be renewed, or nobody may own a
//     lease ([feed.ErrNoOwner])
//
// An error about a lease is a [*feed.Error] with the token of the lease. Healthy makes no request and waits for
// nothing, so a health check may call it often. Use it for readiness and alarms. Do not restart the process for each
// error: no restart mends a lease store that is away. Whether the unit keeps up with the feed is another question: see
// [Estimate].
func (p *Processor) Healthy() error {
	running := slices.DeleteFunc(p.Status(), func(s Status) bool { return s.Stopping })
	if len(running) == 0 {
		return ErrNotRunning
	}
	for _, problemOf := range []func(Status) error{
		p.storeProblem, stuckHandler, brokenLease, outageOf, stuckLease, lastFailure,
	} {
		for i := range running {
			if err := problemOf(running[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// storeProblem reports a lease store that does not answer, or that has no leases.
func (p *Processor) storeProblem(s Status) error {
	answered := s.View
	if answered.IsZero() {
		answered = s.Since
	}
	silent, made := time.Since(answered), time.Since(s.Since)
	switch {
	case silent > p.opts.Expiration:
		return fmt.Errorf("the lease store has not answered for %v: %w", silent.Round(time.Second), causeOf(s))
	case !s.Ready && made > p.opts.Expiration:
		return fmt.Errorf("the unit has no leases after %v: %w", made.Round(time.Second), causeOf(s))
	}
	return nil
}

// causeOf returns the last failures of an instance that concern no single lease.
func causeOf(s Status) error {
	all := make([]error, len(s.Errors))
	for i, err := range s.Errors {
		all[i] = err
	}
	if len(all) == 0 {
		return errors.New("its last request has no answer")
	}
	return errors.Join(all...)
}

// stuckHandler reports a handler that has not returned after its context had ended. The lease is left to expire.
func stuckHandler(s Status) error {
	for _, l := range s.Leases {
		for _, err := range l.Errors {
			if errors.Is(err, feed.ErrHandlerStuck) {
				return err
			}
		}
	}
	return nil
}

// brokenLease reports a lease that nobody works on.
func brokenLease(s Status) error {
	if len(s.Broken) > 0 {
		return s.Broken[0]
	}
	return nil
}

// outageOf reports an outage of a system that the handler needs.
func outageOf(s Status) error {
	if s.Outage {
		return feed.ErrOutage
	}
	return nil
}

// stuckLease reports a lease whose oldest change fails again and again.
func stuckLease(s Status) error {
	for _, l := range s.Leases {
		if failing := time.Since(l.Failing); !l.Failing.IsZero() && l.Failures > 0 && failing > failingFor {
			return &feed.Error{
				Origin: feed.OriginHandler, Lease: l.Lease.Token,
				Err: fmt.Errorf("%w: its oldest change has failed for %v, after %d calls", feed.ErrNoProgress,
					failing.Round(time.Second), l.Failures),
			}
		}
	}
	return nil
}

// lastFailure reports a request that has failed since the last success of the same kind. A failure of the handler is no
// problem yet.
func lastFailure(s Status) error {
	if len(s.Errors) > 0 {
		return s.Errors[0]
	}
	for _, l := range s.Leases {
		for _, err := range l.Errors {
			if err.Origin != feed.OriginHandler {
				return err
			}
		}
	}
	return nil
}
