package outboxtest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
)

// Line is a network between a client and its broker that can be cut. A client has its own
// option for the function that dials; it gets Dial.
type Line struct {
	flows sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	mends chan struct{} // closed when bytes flow; open while the line is stalled
	ends  map[net.Conn]bool
}

// NewLine makes a line that works. At the end of the test it is cut, and its connections are waited for.
func NewLine(t *testing.T) *Line {
	flowing := make(chan struct{})
	close(flowing)
	l := &Line{mends: flowing, ends: map[net.Conn]bool{}}
	t.Cleanup(func() {
		l.Cut()
		l.flows.Wait()
	})
	return l
}

// errCut is what dialing gives while the line is cut.
var errCut = errors.New("the line is cut")

// Dial connects through the line.
func (l *Line) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errCut}
	}
	far, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return l.Connect(far)
}

// Connect puts the line before a connection to the broker, and returns the client's end.
func (l *Line) Connect(far net.Conn) (net.Conn, error) {
	near, inner := net.Pipe()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.Join(&net.OpError{Op: "dial", Net: "line", Err: errCut}, far.Close(), near.Close())
	}
	l.ends[inner], l.ends[far] = true, true
	l.flows.Go(func() { l.flow(inner, far) })
	l.flows.Go(func() { l.flow(far, inner) })
	return near, nil
}

// flow passes bytes on in one direction, until either end is closed.
func (l *Line) flow(from, to net.Conn) {
	defer l.hangUp(from, to)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		mends := l.mends
		l.mu.Unlock()
		<-mends
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *Line) hangUp(ends ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range ends {
		_ = end.Close() // that it is closed already is what its other end has noticed
		delete(l.ends, end)
	}
}

// Cut breaks all connections, and lets none be made until Mend.
func (l *Line) Cut() {
	l.mend(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for end := range l.ends {
		_ = end.Close()
	}
}

// Stall keeps all bytes on their way until Mend or Cut; connections are made as before.
func (l *Line) Stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.mends:
		l.mends = make(chan struct{})
	default:
	}
}

// Mend lets bytes flow and connections be made.
func (l *Line) Mend() { l.mend(false) }

func (l *Line) mend(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	select {
	case <-l.mends:
	default:
		close(l.mends)
	}
}
