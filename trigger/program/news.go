package program

import (
	"maps"
	"slices"
	"sync"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
)

// news tells a program what happens in the processor. A program that begins later, such as one that is started again,
// hears first what still holds: that the unit is ready, the leases of the instance, and an outage.
type news struct {
	hint func(error) string

	mu      sync.Mutex
	host    *contract.Host // of the present program; nil before the first
	isReady bool
	leases  map[string]contract.Event // acquired, by their tokens
	outage  *contract.Event           // that lasts
}

// Hooks returns hooks that tell the program the events of the processor, if the hello of the program asks for them.
// Join them with those of the processor.
func (n *news) Hooks() feed.Hooks { return contract.EventHooks(n.tellEvent, n.hint) }

// tellEvent notes an event, and tells the program.
func (n *news) tellEvent(e contract.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case e.Type == contract.KindReady:
		n.isReady = true
	case e.Type == contract.KindLease && e.What == contract.Acquired:
		if n.leases == nil {
			n.leases = map[string]contract.Event{}
		}
		n.leases[e.Lease] = e
	case e.Type == contract.KindLease:
		delete(n.leases, e.Lease)
	case e.Type == contract.KindOutage && e.What == contract.Began:
		n.outage = &e
	case e.Type == contract.KindOutage:
		n.outage = nil
	}
	if n.host != nil {
		n.host.Tell(e)
	}
}

// greet tells a program that begins what still holds, and from then on what happens.
func (n *news) greet(host *contract.Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.host = host
	if n.isReady {
		host.Tell(contract.Event{Type: contract.KindReady})
	}
	for _, lease := range slices.Sorted(maps.Keys(n.leases)) {
		host.Tell(n.leases[lease])
	}
	if n.outage != nil {
		host.Tell(*n.outage)
	}
}
