package program

import (
	"maps"
	"slices"
	"sync"
)

// inHand knows the leases whose batches a program has, and those whose batches it could not finish.
type inHand struct {
	mu      sync.Mutex
	batches map[string]int // number of batches, by lease
	cut     []string       // leases whose batches were interrupted because the processor stops
}

// count adds to the number of batches of a lease.
func (h *inHand) count(lease string, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.batches == nil {
		h.batches = map[string]int{}
	}
	if h.batches[lease] += by; h.batches[lease] == 0 {
		delete(h.batches, lease)
	}
}

// interrupted notes that a batch of a lease was interrupted because the processor stops.
func (h *inHand) interrupted(lease string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = append(h.cut, lease)
}

// Running returns, sorted, the tokens of the leases whose batches are in hand.
func (h *inHand) Running() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.batches))
}

// Unfinished returns, sorted, the tokens of the leases whose batches were interrupted because the processor stops,
// since the last call: these batches are redelivered.
func (h *inHand) Unfinished() (leases []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	leases, h.cut = h.cut, nil
	slices.Sort(leases)
	return slices.Compact(leases)
}
