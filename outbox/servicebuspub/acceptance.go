package servicebuspub

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Outcomes other than accepted
//
// A receiver of AMQP settles a message with an outcome: accepted, rejected, released or modified. The client reports an
// error for rejected only, so a released message would count as published. So the connection of a publisher reads the
// arriving frames, and replaces each outcome that is neither accepted nor rejected by a rejection. Such frames are
// short and rare; all others pass unchanged.

// The parts of a disposition frame, by their numbers in the standard.
const (
	performDisposition = 0x15
	outcomeReceived    = 0x23 // reports the progress of a transfer, and settles nothing
	outcomeAccepted    = 0x24
	outcomeRejected    = 0x25
	errorNumber        = 0x1d

	frameHeader      = 8
	maxDisposition   = 4096 // bytes of a frame that is examined
	conditionRefused = "com.microsoft:server-busy"
	textRefused      = "the service has settled the message without accepting it"
)

// strictConn is a connection whose client sees a rejection instead of each outcome that is no acceptance.
type strictConn struct {
	net.Conn
	ready   []byte // bytes for the client
	partial []byte // an incomplete frame
	pass    int    // remaining bytes of a long frame, which pass at once
}

// Read implements [net.Conn].
func (c *strictConn) Read(p []byte) (int, error) {
	var chunk [4096]byte
	for len(c.ready) == 0 {
		n, err := c.Conn.Read(chunk[:])
		c.takeBytes(chunk[:n])
		if err != nil && len(c.ready) == 0 {
			if err == io.EOF { // if a frame ends early, the client reports that
				c.ready, c.partial = c.partial, nil
			}
			if len(c.ready) == 0 {
				return 0, err
			}
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// takeBytes divides received bytes into frames.
func (c *strictConn) takeBytes(b []byte) {
	for len(b) > 0 {
		if c.pass > 0 {
			n := min(c.pass, len(b))
			c.ready, b, c.pass = append(c.ready, b[:n]...), b[n:], c.pass-n
			continue
		}
		want := frameHeader
		if len(c.partial) >= frameHeader {
			want = int(binary.BigEndian.Uint32(c.partial))
		}
		n := min(want-len(c.partial), len(b))
		c.partial, b = append(c.partial, b[:n]...), b[n:]
		c.decideFrame()
	}
}

// decideFrame passes a frame on if the frame is complete, or too long to be a disposition.
func (c *strictConn) decideFrame() {
	if len(c.partial) < frameHeader {
		return
	}
	size := int(binary.BigEndian.Uint32(c.partial))
	switch {
	// the protocol's name, or an empty or broken frame
	case bytes.HasPrefix(c.partial, []byte("AMQP")), size <= frameHeader:
		c.ready = append(c.ready, c.partial...)
	case size > maxDisposition:
		c.ready, c.pass = append(c.ready, c.partial...), size-len(c.partial)
	case len(c.partial) < size:
		return
	default:
		c.ready = append(c.ready, strict(c.partial)...)
	}
	c.partial = c.partial[:0]
}

// strict returns a frame; if the frame is a receiver's disposition that is no acceptance, strict returns a rejection
// instead.
func strict(frame []byte) []byte {
	head := int(frame[4]) * 4
	if frame[5] != 0 || head < frameHeader || head >= len(frame) {
		return frame
	}
	body, ok := bytes.CutPrefix(frame[head:], []byte{0x00, 0x53, performDisposition})
	if !ok {
		return frame
	}
	fields := listFields(body)
	if len(fields) < 2 || !isTrue(fields[0]) {
		return frame
	}
	isSettled := len(fields) > 3 && isTrue(fields[3])
	switch outcome := outcomeOf(fields); {
	case outcome == outcomeAccepted, outcome == outcomeRejected, outcome == outcomeReceived && !isSettled,
		outcome == 0 && !isSettled:
		return frame
	}
	return rejection(frame[:head], fields)
}

// rejection returns a disposition of the same deliveries with the outcome rejected.
func rejection(head []byte, fields [][]byte) []byte {
	for len(fields) < 4 {
		fields = append(fields, []byte{0x40})
	}
	reason := describedList(errorNumber, append(text(0xa3, conditionRefused), text(0xa1, textRefused)...), 2)
	state := describedList(outcomeRejected, reason, 1)
	body := describedList(performDisposition, append(bytes.Join(fields[:4], nil), state...), 5)
	frame := append(append([]byte{}, head...), body...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)))
	return frame
}

// describedList encodes a list with count fields, of a described type.
func describedList(number byte, fields []byte, count byte) []byte {
	return append([]byte{0x00, 0x53, number, 0xc0, byte(len(fields) + 1), count}, fields...)
}

// text encodes a symbol or a string of up to 255 bytes.
func text(code byte, s string) []byte { return append([]byte{code, byte(len(s))}, s...) }

func isTrue(field []byte) bool {
	return len(field) == 1 && field[0] == 0x41 || len(field) == 2 && field[0] == 0x56 && field[1] == 1
}

// outcomeOf returns the number of the outcome in the fields of a disposition, 0 if there is none.
func outcomeOf(fields [][]byte) uint64 {
	if len(fields) < 5 {
		return 0
	}
	state := fields[4]
	switch {
	case len(state) > 2 && state[0] == 0x00 && state[1] == 0x53:
		return uint64(state[2])
	case len(state) > 9 && state[0] == 0x00 && state[1] == 0x80:
		return binary.BigEndian.Uint64(state[2:])
	case len(state) > 0 && state[0] == 0x00: // a name describes the outcome
		return 1
	}
	return 0
}

// listFields returns the encoded fields of a list, up to the first unreadable field.
func listFields(b []byte) (fields [][]byte) {
	switch {
	case len(b) > 3 && b[0] == 0xc0:
		b = b[3:]
	case len(b) > 9 && b[0] == 0xd0:
		b = b[9:]
	default:
		return nil
	}
	for len(b) > 0 {
		n := valueSize(b)
		if n <= 0 || n > len(b) {
			return fields
		}
		fields, b = append(fields, b[:n]), b[n:]
	}
	return fields
}

// valueSize returns the size of an encoded value in bytes, 0 if the value is incomplete.
func valueSize(b []byte) int {
	if b[0] == 0x00 { // a descriptor and a value
		if len(b) < 2 {
			return 0
		}
		n := valueSize(b[1:])
		if n <= 0 || 1+n >= len(b) {
			return 0
		}
		if value := valueSize(b[1+n:]); value > 0 {
			return 1 + n + value
		}
		return 0
	}
	fixed := [16]int{0x4: 1, 0x5: 2, 0x6: 3, 0x7: 5, 0x8: 9, 0x9: 17}
	switch class := b[0] >> 4; {
	case class < 0xa:
		return fixed[class]
	case class%2 == 0 && len(b) > 1: // the size has 1 byte
		return 2 + int(b[1])
	case class%2 == 1 && len(b) > 4:
		return 5 + int(binary.BigEndian.Uint32(b[1:]))
	}
	return 0
}

// strictly makes a client use strict connections. If the options do not say how to connect, the connection is TCP, with
// TLS unless the service is an emulator.
func strictly(o azservicebus.ClientOptions, isPlain bool) azservicebus.ClientOptions {
	connect := o.NewWebSocketConn
	if connect == nil {
		connect = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return dial(ctx, o, args.Host, isPlain)
		}
	}
	o.NewWebSocketConn = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		conn, err := connect(ctx, args)
		if err != nil {
			return nil, err
		}
		return &strictConn{Conn: conn}, nil
	}
	return o
}

// dial connects as the client would.
func dial(ctx context.Context, o azservicebus.ClientOptions, address string, isPlain bool) (net.Conn, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	host := at.Host
	if o.CustomEndpoint != "" {
		host = o.CustomEndpoint
	}
	if isPlain {
		return (&net.Dialer{}).DialContext(ctx, "tcp", withPort(host, "5672"))
	}
	return (&tls.Dialer{Config: o.TLSConfig}).DialContext(ctx, "tcp", withPort(host, "5671"))
}

func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(host, port)
}
