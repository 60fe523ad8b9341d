package docstore

import "sync"

// gate wakes all who wait for the next event. Use: take the channel, look whether the
// event has happened already, and wait for the channel otherwise. In this order an
// event between look and wait is not missed. Idle gates have no channel, so an event
// costs no allocation when nobody waits.
type gate struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that is closed at the next event.
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
