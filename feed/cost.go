package feed

import (
	"context"
	"slices"
	"sync"
)

// Cost is the cost of calls to a database.
type Cost struct {
	Requests int     // sent requests, also those that were refused or had no answer
	Charge   float64 // request units that the answers report
}

// Meter adds up the cost of all calls with a context of [WithMeter]. The zero value is ready, and all methods may be
// called concurrently. Calls to an embedded store send no request and cost nothing.
type Meter struct {
	mu  sync.Mutex
	sum Cost
}

// Cost returns the cost so far.
func (m *Meter) Cost() Cost {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum
}

// WithMeter returns a context for calls to a [Source] or a [LeaseStore] whose cost m adds up. Meters of ctx count these
// calls too. Whether a call is counted depends on the source or store: package cosmos counts.
func WithMeter(ctx context.Context, m *Meter) context.Context {
	return context.WithValue(ctx, meterKey{}, append(slices.Clone(metersOf(ctx)), m))
}

// AddCost adds a cost to the meters of ctx. A source or a store that sends requests calls AddCost for each of them.
func AddCost(ctx context.Context, c Cost) {
	for _, m := range metersOf(ctx) {
		m.mu.Lock()
		m.sum.Requests += c.Requests
		m.sum.Charge += c.Charge
		m.mu.Unlock()
	}
}

// meterKey is the key of the meters in a context.
type meterKey struct{}

// metersOf returns the meters of a context.
func metersOf(ctx context.Context) []*Meter {
	all, _ := ctx.Value(meterKey{}).([]*Meter)
	return all
}
