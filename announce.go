package changefeed

import (
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/delivery"
)

// wake has the dispatcher and the reader look at the engine, to which something has happened, and says what the engine has
// noticed.
func (d *dispatcher) wake() {
	notify(d.news)
	notify(d.space)
	d.announce()
}

// announce calls the hooks for the keys that the engine treats differently since it was called last, and for the outages
// that have begun or ended.
func (d *dispatcher) announce() {
	d.mu.Lock()
	keys := d.engine.News()
	d.mu.Unlock()
	for _, k := range keys {
		d.r.hooks.Key(feed.KeyEvent{Lease: d.lease.Token, Key: feed.PartitionKey(k.Key), Became: keyStates[k.Became]})
	}
	for _, o := range d.r.breaker.News() {
		if o.Ended.IsZero() {
			d.raise(feed.OriginHandler, fmt.Errorf("%w: %d changes fail and hardly any succeeds, so none is parked for it", feed.ErrOutage, o.Changes))
		}
		d.r.hooks.Outage(feed.Outage(o))
	}
}

var keyStates = map[delivery.KeyState]feed.KeyState{
	delivery.BecameAside: feed.KeySetAside, delivery.CaughtUp: feed.KeyCaughtUp, delivery.BecameHeld: feed.KeyHeld, delivery.BecameFree: feed.KeyReleased,
}
