// Package memnet is a network in memory: a [Listener] whose connections are pipes.
//
//	l := memnet.Listen()
//	server := &http.Server{Handler: handler}
//	go server.Serve(l)
//	client := &http.Client{Transport: &http.Transport{DialContext: l.DialContext}}
//
// No connection is a system call, so client and server may live in a bubble of
// testing/synctest, where time passes as soon as both wait. A real socket would not
// count as waiting, and time would stand still.
package memnet

import (
	"context"
	"net"
	"sync"
)

// Listener is a server's end of the network, a [net.Listener].
type Listener struct {
	calls chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Listen makes a listener.
func Listen() *Listener {
	return &Listener{calls: make(chan net.Conn), done: make(chan struct{})}
}

// Accept waits for a connection. After Close it returns [net.ErrClosed].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close refuses connections from now on; open connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr returns the same address for all listeners.
func (l *Listener) Addr() net.Addr { return address{} }

// Dial connects to the listener, or returns a [net.OpError] after Close.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	mine, theirs := net.Pipe()
	var err error
	select {
	case l.calls <- theirs:
		return mine, nil
	case <-l.done:
		err = net.ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, &net.OpError{Op: "dial", Net: address{}.Network(), Addr: address{}, Err: err}
}

// DialContext is Dial in the form that [net/http.Transport] wants. The address is
// ignored.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return l.Dial(ctx)
}

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }
