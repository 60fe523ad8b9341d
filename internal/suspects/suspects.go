// Package suspects finds the batch that ends a program. If a program ends with several batches in hand, nobody knows
// which of them is at fault. Their leases are then suspects, and the next program receives one batch at a time until
// the suspects have come again: if one of them ends the program once more, that batch alone is blamed.
package suspects

import (
	"context"
	"sync"
	"time"
)

// carefulTime is how long a program receives a single batch at a time, at most, after its predecessor has ended with
// several batches in hand.
const carefulTime = time.Minute

// Suspects are the leases whose batches may have ended the last program. The zero value has none.
type Suspects struct {
	mu     sync.Mutex
	leases map[string]bool
}

// A Turn belongs to one run of a program.
type Turn struct {
	taken chan struct{} // has an element while a batch is alone
	until time.Time     // batches come one at a time until then
}

// NewTurn makes the Turn of a program that runs from now on.
func NewTurn() *Turn { return &Turn{make(chan struct{}, 1), time.Now().Add(carefulTime)} }

// Add makes a lease a suspect.
func (s *Suspects) Add(lease string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases == nil {
		s.leases = map[string]bool{}
	}
	s.leases[lease] = true
}

// Acquit clears a lease: a program has survived its batch.
func (s *Suspects) Acquit(lease string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, lease)
}

// Enter waits until a batch may go to the program: at once, unless there are suspects. Call leave after the batch.
func (s *Suspects) Enter(ctx context.Context, t *Turn) (leave func(), err error) {
	if !s.isCareful(t) {
		return func() {}, nil
	}
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	free := func() { <-t.taken }
	if s.isCareful(t) {
		return free, nil
	}
	free()
	return func() {}, nil
}

// isCareful reports whether batches come one at a time.
func (s *Suspects) isCareful(t *Turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leases) > 0 && time.Now().Before(t.until)
}
