package docstore

import "sync"

// gate wakes all goroutines that wait for the next event. The order of use is: take the channel, check whether the
// event has happened already, and if not, wait for the channel. In this order you cannot miss an event between check
// and wait. An idle gate has no channel, so an event costs no allocation if no goroutine waits.
type gate struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel closed at the next event.
func (g *gate) next() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	return g.ch
}

// open announces the event.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}
