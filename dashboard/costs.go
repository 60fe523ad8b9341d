package dashboard

import (
	"context"
	"math"
	"sync"

	"github.com/millrace/changefeed/feed"
)

// The costs of a unit in an account. A store in a directory sends no requests, and costs nothing.

// Cost is the spending of this process for a unit since the start, by purpose: requests that the account has charged,
// and their request units.
type Cost struct {
	For      string  `json:"for"` // reads, leases or listings
	Requests int64   `json:"requests"`
	Charge   float64 `json:"request_units"`
}

// The purposes of costs: reads of the monitored container, writes of leases, and the listings of the dashboard.
const (
	forReads = iota
	forLeases
	forListings
	purposes
)

// costs are the spending of the process for a unit.
type costs struct {
	mu    sync.Mutex
	spent [purposes]Cost
}

// addRequests adds requests with a charge. An account may send a charge that is no number, or with which the sum is
// none; such a charge is not counted, because no JSON could have the sum.
func (c *costs) addRequests(purpose int, requests int64, charge float64) {
	if !(charge > 0) || math.IsInf(charge, 0) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if math.IsInf(c.spent[purpose].Charge+charge, 0) {
		return
	}
	c.spent[purpose].Requests += requests
	c.spent[purpose].Charge += charge
}

// hooks count the requests of a processor.
func (c *costs) hooks() feed.Hooks {
	return feed.Hooks{
		ReadDone:  func(_ context.Context, d feed.ReadDone) { c.addRequests(forReads, 1, d.Charge) },
		StoreDone: func(_ context.Context, d feed.StoreDone) { c.addRequests(forLeases, 1, d.Charge) },
	}
}

// listSpent lists the spending.
func (c *costs) listSpent() []Cost {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []Cost{}
	for purpose, of := range [purposes]string{forReads: "reads", forLeases: "leases", forListings: "listings"} {
		if spent := c.spent[purpose]; spent.Requests > 0 {
			spent.For = of
			all = append(all, spent)
		}
	}
	return all
}

// ledger has the costs of units, which live as long as the dashboard.
type ledger struct {
	mu    sync.Mutex
	costs map[name]*costs
}

// costsOf returns the costs of a unit.
func (l *ledger) costsOf(unit name) *costs {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.costs[unit]
	if c == nil {
		c = new(costs)
		l.costs[unit] = c
	}
	return c
}
