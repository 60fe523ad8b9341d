package outboxtest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Line is a network between a client and its broker that you can cut. Pass Dial to the client's option for its dial
// function.
type Line struct {
	flows sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	mends chan struct{} // closed when bytes flow; open while the line is stalled
	ends  map[net.Conn]bool

	accidents map[string]accident // by the text that triggers each once
}

// accident is an accident of the connection on which a text goes to the broker.
type accident int

const (
	noAccident accident = iota
	tornMessage
	lostAnswer
	lateAnswer
)

// Misbehaviours returns the ways in which a line makes a broker fail at a message, for [Broker.Misbehave]: the
// connection breaks in the middle of the message; the connection breaks when the broker answers, and the broker may
// have kept the message; the answer is late. The line finds the message by the id, and must be able to read the
// client's bytes: use no TLS and no compression.
func (l *Line) Misbehaviours() map[string]func(*testing.T, string) {
	at := func(a accident) func(*testing.T, string) {
		return func(_ *testing.T, id string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.accidents[id] = a
		}
	}
	return map[string]func(*testing.T, string){
		"torn-message": at(tornMessage), "lost-answer": at(lostAnswer),
		"late-answer": at(lateAnswer),
	}
}

// NewLine makes a working line. At the end of the test NewLine cuts the line and waits for the connections.
func NewLine(t *testing.T) *Line {
	flowing := make(chan struct{})
	close(flowing)
	l := &Line{mends: flowing, ends: map[net.Conn]bool{}, accidents: map[string]accident{}}
	t.Cleanup(func() {
		l.Cut()
		l.flows.Wait()
	})
	return l
}

// errCut is the error of Dial while the line is cut.
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

// Connect puts the line in front of a connection to the broker, and returns the client's end.
func (l *Line) Connect(far net.Conn) (net.Conn, error) {
	near, inner := net.Pipe()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.Join(&net.OpError{Op: "dial", Net: "line", Err: errCut}, far.Close(), near.Close())
	}
	l.ends[inner], l.ends[far] = true, true
	c := &crossing{}
	l.flows.Go(func() { l.flow(inner, far, func(sent []byte) ([]byte, bool) { return l.sent(c, sent) }) })
	l.flows.Go(func() { l.flow(far, inner, c.answered) })
	return near, nil
}

// crossing is a connection through the line.
type crossing struct {
	before []byte       // the end of the sent bytes, because a text may arrive in two pieces
	answer atomic.Int32 // the accident for the broker's next answer
}

// longestID is the largest number of bytes that a text may have in an earlier piece.
const longestID = 256

// sent triggers the accident of the sent bytes, if they have one. sent returns the bytes for the broker, and whether
// the connection survives.
func (l *Line) sent(c *crossing, piece []byte) (passed []byte, lives bool) {
	all := append(c.before, piece...)
	a, end := l.accidentIn(all)
	if a == tornMessage {
		return piece[:max(end-len(c.before)-1, 0)], false
	}
	if a != noAccident {
		c.answer.Store(int32(a))
	}
	c.before = bytes.Clone(all[max(len(all)-longestID, 0):])
	return piece, true
}

// accidentIn finds the accident of a text in the sent bytes, and the end of that text. Each accident happens once.
func (l *Line) accidentIn(sent []byte) (a accident, end int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text, a := range l.accidents {
		if i := bytes.Index(sent, []byte(text)); i >= 0 {
			delete(l.accidents, text)
			return a, i + len(text)
		}
	}
	return noAccident, 0
}

// lateBy is the delay of a late answer.
const lateBy = 100 * time.Millisecond

// answered triggers the accident of an answer.
func (c *crossing) answered(piece []byte) (passed []byte, lives bool) {
	switch accident(c.answer.Swap(int32(noAccident))) {
	case lostAnswer:
		return nil, false
	case lateAnswer:
		<-time.After(lateBy)
	}
	return piece, true
}

// flow passes bytes on in one direction, until either end is closed or an accident ends the connection.
func (l *Line) flow(from, to net.Conn, happen func([]byte) ([]byte, bool)) {
	defer l.hangUp(from, to)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		mends := l.mends
		l.mu.Unlock()
		<-mends
		if n > 0 {
			passed, lives := happen(buf[:n])
			if _, err := to.Write(passed); err != nil || !lives {
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
		_ = end.Close() // if closed already, the other end has noticed
		delete(l.ends, end)
	}
}

// Cut breaks all connections, and refuses new ones until Mend.
func (l *Line) Cut() {
	l.mend(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for end := range l.ends {
		_ = end.Close()
	}
}

// Stall holds all bytes back until Mend or Cut; new connections are still made.
func (l *Line) Stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.mends:
		l.mends = make(chan struct{})
	default:
	}
}

// Mend lets bytes flow again, and allows connections.
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
