// Package inhand knows the leases whose batches a handler has.
package inhand

import (
	"maps"
	"slices"
	"sync"
)

// Leases knows the leases whose batches a handler has, and those whose batches it could not finish. A handler embeds
// Leases for its exported methods; the functions [Count] and [Interrupt] are for the handler alone.
type Leases struct {
	mu      sync.Mutex
	batches map[string]int // number of batches, by lease
	cut     []string       // leases whose batches were interrupted because the processor stops
}

// Count adds to the number of batches of a lease.
func Count(h *Leases, lease string, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.batches == nil {
		h.batches = map[string]int{}
	}
	if h.batches[lease] += by; h.batches[lease] == 0 {
		delete(h.batches, lease)
	}
}

// Interrupt notes that a batch of a lease was interrupted because the processor stops.
func Interrupt(h *Leases, lease string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = append(h.cut, lease)
}

// Running returns, sorted, the tokens of the leases whose batches are in hand.
func (h *Leases) Running() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.batches))
}

// Unfinished returns, sorted, the tokens of the leases whose batches were interrupted because the processor stops,
// since the last call: these batches are redelivered.
func (h *Leases) Unfinished() (leases []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	leases, h.cut = h.cut, nil
	slices.Sort(leases)
	return slices.Compact(leases)
}
