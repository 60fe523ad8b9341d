package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/nethost"
)

// netHost is a host of the .NET processor in the unit. Its network is sound and its clock
// right, because it promises nothing else; it is stopped and killed.
type netHost struct {
	name  string
	world *world
	ended context.Context // kept from its handlers: it is dead then

	stop, kill func()
}

// netExpiration is how long a .NET host may be silent before others take its leases.
const netExpiration = nethost.Expiration

// String names the process, not only the host.
func (n *netHost) String() string { return fmt.Sprintf("%s@%p", n.name, n) }

// isDead reports whether the host was killed, or has ended.
func (n *netHost) isDead() bool { return n.ended.Err() != nil }

// isForeign reports that the promises of our processor do not hold for it.
func (n *netHost) isForeign() bool { return true }

// startNet starts a .NET host, or ends the present one.
func (w *world) startNet() {
	if n := w.net; n != nil {
		w.ledger.note("%s ends", n)
		w.net = nil
		if w.rng.IntN(2) == 0 {
			n.stop()
		} else {
			n.kill()
			w.noteStorm(time.Now().Add(netExpiration))
		}
		return
	}
	n := &netHost{name: fmt.Sprintf("net-%c", 'a'+rune(w.rng.IntN(2))), world: w}
	ended, end := context.WithCancel(w.ctx)
	n.ended = ended
	w.ledger.note("%s begins", n)
	h := &nethost.Host{
		Orders: w.orders, Leases: w.lobby, Prefix: w.unit.Prefix(), Name: n.name, Born: w.start0,
		Handle: n.handleChanges, Wrote: w.refreshModel,
		Failed: func(err error) { w.ledger.fail("%s: %v", n, err) },
	}
	stop, kill := h.Start(w.ctx)
	// A stopped host finishes its batch, so it has ended after stop; of a killed one nothing
	// counts any more, so it has ended before.
	n.stop, n.kill = func() { stop(); end() }, func() { end(); kill() }
	w.net = n
}

// handleChanges is the delegate of a .NET host.
func (n *netHost) handleChanges(ctx context.Context, token string, of feed.Range, changes []feed.Change) error {
	c := n.world.ledger.handOverTo(ctx, n, token, of, changes)
	err := pause.For(ctx, time.Duration(1+len(changes))*5*time.Millisecond)
	n.world.ledger.endCall(c, err == nil, c.changes)
	return err
}
