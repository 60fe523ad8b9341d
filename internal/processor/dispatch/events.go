package dispatch

import (
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// callNewsHooks calls the hooks for the keys that the engine treats differently since the last call, and for the
// outages that have begun or ended.
func (d *Dispatcher) callNewsHooks() {
	d.mu.Lock()
	keys := d.engine.News()
	d.mu.Unlock()
	for _, k := range keys {
		instance.CallHook(d.in, d.in.Hooks.Key, feed.KeyEvent{
			Lease: d.held.Lease.Token, Key: feed.PartitionKey(k.Key),
			Became: keyStates[k.Became],
		})
	}
	for _, o := range d.in.Breaker.News() {
		if o.Ended.IsZero() {
			d.held.Raise(feed.OriginHandler,
				fmt.Errorf("%w: %d changes fail and hardly any succeeds, so none is parked for it", feed.ErrOutage,
					o.Changes))
		}
		instance.CallHook(d.in, d.in.Hooks.Outage, feed.Outage(o))
	}
}

var keyStates = map[delivery.KeyState]feed.KeyState{
	delivery.BecameAside: feed.KeySetAside, delivery.CaughtUp: feed.KeyCaughtUp, delivery.BecameHeld: feed.KeyHeld,
	delivery.BecameFree: feed.KeyReleased,
}

// Describe adds the engine's state to a status.
func (d *Dispatcher) Describe(s *feed.LeaseStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, n := d.engine, d.engine.Counts()
	s.InHand, s.Buffered, s.Parked, s.Held, s.SetAside, s.Unsaved = n.InHand, n.Items, n.Parked, n.Held, n.SetAside,
		n.Unsaved
	s.Redriven, s.Released = d.requests.redriven, d.requests.released
	s.Lease.Position, s.Lease.Attempts = e.Position().(feed.Position), e.Attempts()
	s.Read = e.ReadFrom().(feed.Position)
	s.Failures, s.Failing = e.Oldest()
}
