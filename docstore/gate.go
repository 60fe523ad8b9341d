package docstore

import "sync"

// gate wakes everybody who waits for the next event. The use is: take the channel, look
// whether the event has happened already, and wait for the channel otherwise.
type gate struct {
	mu sync.Mutex
	ch chan struct{}
}

// next is closed at the next event.
func (g *gate) next() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	return g.ch
}

// open is the event.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}
