// Package unit runs a deployment unit together with other instances. Package unit makes the leases of the unit, shows
// the instance to the others, follows their writes, and takes and gives leases. The work on a lease is package tenure.
package unit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/latest"
)

// Unit is the part of an instance in a deployment unit.
type Unit struct {
	in       *instance.Instance
	balancer *balancer
	follower *follower
	presence *presence

	ready atomic.Bool                  // the unit's leases exist
	began atomic.Pointer[feed.NewUnit] // set if this instance has made the unit
	last  latest.Value[feed.Round]

	variants latest.Value[feed.Variants] // of the live instances, in the last round
}

// New makes a Unit for an instance. [Unit.Run] does the work.
func New(in *instance.Instance) *Unit {
	u := &Unit{in: in, follower: &follower{in: in}, presence: &presence{in: in}}
	u.balancer = newBalancer(u)
	return u
}

// Run works until ctx ends, then gives the leases back and returns nil. Run calls ready when the leases of the unit
// exist. Run returns an error only if a retry cannot help: at the start, or because the leases or the monitored
// container are gone.
func (u *Unit) Run(ctx context.Context, ready func()) error {
	if err := u.bootstrap(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ready()
	u.ready.Store(true)
	if ready := u.in.Hooks.Ready; ready != nil {
		ready(u.in.Base)
	}
	working, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(working, u.in.Claims.Stop)()
	var around sync.WaitGroup
	around.Go(func() { u.follower.run(working) })
	around.Go(func() { u.presence.run(working) })
	gone := u.balancer.runRounds(working)
	end()
	around.Wait()
	u.leaveUnit(errors.Is(gone, feed.ErrLeasesGone))
	return gone
}

// leaveUnit ends the work: tells the other instances, waits for the batches in the handler, and releases the leases
// unless they are gone.
func (u *Unit) leaveUnit(gone bool) {
	ctx, cancel := context.WithTimeout(u.in.Base, u.in.Options.Drain)
	defer cancel()
	if !gone {
		u.presence.announceLeaving(ctx)
		u.balancer.declineGifts(ctx)
	}
	u.in.Work.Wait()
	if !gone && ctx.Err() == nil { // a worker may have made or kept a lease that no worker works on
		u.in.Report(ctx, feed.OriginLeaseStore, "", u.balancer.freeUnbegun(ctx))
	}
}

// IsReady reports whether the unit's leases exist.
func (u *Unit) IsReady() bool { return u.ready.Load() }

// Began returns where the unit begins, if this instance has made the leases; otherwise nil.
func (u *Unit) Began() *feed.NewUnit { return u.began.Load() }

// Variants returns what the live instances run, as seen in the last round.
func (u *Unit) Variants() feed.Variants {
	all, _ := u.variants.Get()
	return all
}

// LastRound returns the last round, and its end.
func (u *Unit) LastRound() (feed.Round, time.Time) { return u.last.Get() }
