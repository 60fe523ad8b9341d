package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// The performatives, by the number of their descriptors.
const (
	performOpen        = 0x10
	performBegin       = 0x11
	performAttach      = 0x12
	performFlow        = 0x13
	performTransfer    = 0x14
	performDisposition = 0x15
	performDetach      = 0x16
	performEnd         = 0x17
	performClose       = 0x18

	saslMechanisms = 0x40
	saslInit       = 0x41
	saslOutcome    = 0x44
)

const (
	maxFrame   = 64 << 10
	minFrame   = 512
	window     = 1<<31 - 1 // of transfers: no test sends so many
	frameAMQP  = 0
	frameSASL  = 1
	headerSize = 8
)

// conn is a connection. Only the goroutine for the frames uses the state.
type conn struct {
	broker   *Broker
	nc       net.Conn
	out      []byte
	maxFrame int // of the client
	sessions map[uint16]*session
	woken    chan struct{}
}

// frame is a frame from the reader.
type frame struct {
	kind    byte
	channel uint16
	number  uint64 // of the performative
	list
	payload []byte
}

// Serve serves each client that connects, until the listener is closed and the last client is gone. Serve returns the
// clients' violations of the protocol.
func (b *Broker) Serve(l net.Listener) error {
	var serving sync.WaitGroup
	var mu sync.Mutex
	var broken error
	for {
		nc, err := l.Accept()
		if err != nil {
			serving.Wait()
			if errors.Is(err, net.ErrClosed) {
				return broken
			}
			return errors.Join(broken, err)
		}
		serving.Go(func() {
			err := b.ServeConn(nc)
			mu.Lock()
			defer mu.Unlock()
			broken = errors.Join(broken, err)
		})
	}
}

// ServeConn serves one client, until the client closes the connection or violates the protocol.
func (b *Broker) ServeConn(nc net.Conn) error {
	c := &conn{broker: b, nc: nc, maxFrame: minFrame, sessions: map[uint16]*session{}, woken: make(chan struct{}, 1)}
	frames := make(chan frame)
	done := make(chan struct{})
	var reading sync.WaitGroup
	var readErr error
	reading.Go(func() {
		defer close(frames)
		readErr = read(nc, frames, done)
	})
	b.addConnection(c)
	err := c.serveFrames(frames)
	b.removeConnection(c)
	c.hangUp()
	close(done)
	err = errors.Join(err, nc.Close())
	reading.Wait()
	if errors.Is(readErr, errMalformed) {
		err = errors.Join(err, readErr)
	}
	return err // a violation of the protocol: a client may leave at any time
}

// wake makes the connection look for messages to deliver.
func (c *conn) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

func (c *conn) serveFrames(frames <-chan frame) error {
	for {
		select {
		case f, ok := <-frames:
			if !ok {
				return nil
			}
			if err := c.handleFrame(f); err != nil || f.number == performClose {
				_ = c.flush() // the client may not have waited for this
				return err
			}
		case <-c.woken:
		}
		for _, s := range c.sessions {
			s.deliverMessages()
		}
		if err := c.flush(); err != nil {
			return nil // the client is gone
		}
	}
}

// read passes frames on. A protocol header becomes a frame of kind 'A' with the protocol's id.
func read(r io.Reader, frames chan<- frame, done <-chan struct{}) error {
	for {
		f, err := readFrame(r)
		if err != nil {
			return err
		}
		select {
		case frames <- f:
		case <-done:
			return nil
		}
	}
}

func readFrame(r io.Reader) (f frame, err error) {
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return f, err
	}
	if string(head[:4]) == "AMQP" {
		return frame{kind: 'A', channel: uint16(head[4])}, nil
	}
	size, offset := binary.BigEndian.Uint32(head), int(head[4])*4
	if size < headerSize || size > maxFrame || offset < headerSize || offset > int(size) {
		return f, fmt.Errorf("frame of %d bytes with offset %d: %w", size, offset, errMalformed)
	}
	body := make([]byte, size-headerSize)
	if _, err := io.ReadFull(r, body); err != nil {
		return f, err
	}
	f = frame{kind: head[5], channel: binary.BigEndian.Uint16(head[6:])}
	d := decoder{b: body[offset-headerSize:]}
	if len(d.b) == 0 {
		return f, nil // an empty frame only keeps the connection alive
	}
	f.number, f.list = fields(d.readValue(0))
	f.payload = d.b
	return f, d.err
}

func (c *conn) handleFrame(f frame) error {
	switch {
	case f.kind == 'A':
		c.out = append(c.out, 'A', 'M', 'Q', 'P', byte(f.channel), 1, 0, 0)
		if f.channel == 3 {
			c.bufferFrame(frameSASL, 0, saslMechanisms, list{symbols{"ANONYMOUS"}}, nil)
		}
	case f.kind == frameSASL && f.number == saslInit:
		c.bufferFrame(frameSASL, 0, saslOutcome, list{uint8(0)}, nil)
	case f.kind != frameAMQP:
		return errMalformed
	case f.number == performOpen:
		c.maxFrame = maxFrame
		if f.fieldAt(2) != nil {
			c.maxFrame = int(max(minFrame, min(maxFrame, f.uint32At(2))))
		}
		c.bufferFrame(frameAMQP, 0, performOpen, list{"peer", nil, uint32(maxFrame), uint16(255)}, nil)
	case f.number == performBegin:
		c.sessions[f.channel] = &session{
			conn: c, channel: f.channel, links: map[uint32]*link{},
			lent: map[uint32]loan{},
		}
		c.bufferFrame(frameAMQP, f.channel, performBegin, list{
			f.channel, uint32(0), uint32(window), uint32(window),
			uint32(1023),
		}, nil)
	case f.number == performClose:
		c.bufferFrame(frameAMQP, 0, performClose, list{}, nil)
	case f.number != 0:
		s := c.sessions[f.channel]
		if s == nil {
			return fmt.Errorf("channel %d has no session: %w", f.channel, errMalformed)
		}
		return s.handleFrame(f)
	}
	return nil
}

// bufferFrame adds a frame to the buffer, which flush sends.
func (c *conn) bufferFrame(kind byte, channel uint16, number uint64, l list, payload []byte) {
	begin := len(c.out)
	c.out = append(c.out, 0, 0, 0, 0, 2, kind, byte(channel>>8), byte(channel))
	c.out = append(appendValue(c.out, described{number, l}), payload...)
	binary.BigEndian.PutUint32(c.out[begin:], uint32(len(c.out)-begin))
}

func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.nc.Write(c.out)
	c.out = nil
	return err
}

// hangUp returns the messages of the connection's receivers.
func (c *conn) hangUp() {
	for _, s := range c.sessions {
		s.releaseLinks()
	}
}
