package dispatch

import "github.com/millrace/changefeed/internal/processor/delivery"

// asideNote compares the notes about keys set aside in the stored lease with the engine's keys. A key that has caught
// up leaves the lease with the next write. Of an idle lease that may be the renewal, and until then operators would
// read that changes of the key wait. So the lease is written once for that.
type asideNote struct {
	stored []string // keys that the stored lease names
	asked  bool     // a write was requested since the last write
}

// isOutdated reports whether the stored lease names a key that has nothing left to be read, and nobody has asked for a
// write yet. The lock of the dispatcher is held.
func (n *asideNote) isOutdated(d *Dispatcher) bool {
	if n.asked {
		return false
	}
	for _, key := range n.stored {
		if !delivery.IsNotedAside(d.engine, key) {
			return true
		}
	}
	return false
}

// forgetCaughtUp requests a write of the lease if the lease names a key that has caught up. The lock of the dispatcher
// is held.
func (n *asideNote) forgetCaughtUp(d *Dispatcher) {
	if n.isOutdated(d) {
		n.asked = true
		d.saver.Changed()
	}
}
