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

// Line is a network between a client and its broker that can be cut. A client has its own
// option for the function that dials; it gets Dial.
type Line struct {
	flows sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	mends chan struct{} // closed when bytes flow; open while the line is stalled
	ends  map[net.Conn]bool

	accidents map[string]accident // by the text at which each happens once
}

// accident is what happens to the connection over which a text goes to the broker.
type accident int

const (
	noAccident accident = iota
	tornMessage
	lostAnswer
	lateAnswer
)

// Misbehaviours are the ways in which a line makes a broker fail at one message, for [Broker.Misbehave]: the connection
// breaks in the middle of the message; it breaks when the broker answers, which may have kept the message; the answer comes
// late. The line finds the message by its id, so it must be able to read what the client sends: without TLS and compression.
func (l *Line) Misbehaviours() map[string]func(*testing.T, string) {
	at := func(a accident) func(*testing.T, string) {
		return func(_ *testing.T, id string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.accidents[id] = a
		}
	}
	return map[string]func(*testing.T, string){"torn-message": at(tornMessage), "lost-answer": at(lostAnswer), "late-answer": at(lateAnswer)}
}

// NewLine makes a line that works. At the end of the test it is cut, and its connections are waited for.
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
	c := &crossing{}
	l.flows.Go(func() { l.flow(inner, far, func(sent []byte) ([]byte, bool) { return l.sent(c, sent) }) })
	l.flows.Go(func() { l.flow(far, inner, c.answered) })
	return near, nil
}

// crossing is a connection through the line.
type crossing struct {
	before []byte       // the end of what was sent, because a text may come in two pieces
	answer atomic.Int32 // the accident that waits for the broker's next answer
}

// longestID is for how many bytes a text may be spread over two pieces.
const longestID = 256

// sent has the accident happen that what is sent is to have. It returns what reaches the broker, and whether the
// connection lives.
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

// accidentIn finds the accident of a text in what is sent, and where that text ends. It happens once.
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

// lateBy is how late a late answer comes.
const lateBy = 100 * time.Millisecond

// answered has the accident happen that waits for an answer.
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
