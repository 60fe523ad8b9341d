package cosmosrest

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Which connections a server keeps. A limit on connections alone would let anybody shut all
// others out by opening that many, so connections on which nobody has authenticated are
// limited by themselves.

// The limits of a server that a [Guard] protects. See docs/server.md.
const (
	guardHeader      = 10 * time.Second // for a handshake, and for the headers of a request
	guardRequest     = 2 * time.Minute  // for a request and its answer, which leaves room for the longest poll
	guardIdle        = 3 * time.Minute
	guardHeaderBytes = 64 << 10

	strangeShare   = 4  // a stranger's may be 1 of so many connections
	addressShare   = 16 // and of a single address 1 of so many
	strangersKept  = 64 // that are not closed to make room, as long as an idle connection is left to close
	leastStrangers = 8  // for the smallest of guards
)

// A Guard keeps strangers from using up the connections of a server. A connection is a
// stranger's until a request on it was authenticated. Strangers have a small part of all
// connections, and a smaller one for each address; the oldest of theirs is closed for the
// next one. So a client with a key gets in however many strangers hold on, also from their
// address, and a client that is in stays in.
//
//	guard := cosmosrest.NewGuard(4096)
//	web := http.Server{Handler: server}
//	guard.Protect(&web)
//	err := web.Serve(guard.Listener(l))
//
// Several servers may share a Guard.
type Guard struct {
	most, mostStrangers, mostOfAddress int

	mu        sync.Mutex
	open      map[*guarded]struct{}
	strangers list.List          // of *guarded, the oldest in front
	of        map[netip.Addr]int // strangers of an address
}

// NewGuard allows so many connections.
func NewGuard(connections int) *Guard {
	return &Guard{
		most:          connections,
		mostStrangers: max(leastStrangers, connections/strangeShare),
		mostOfAddress: max(leastStrangers, connections/addressShare),
		open:          map[*guarded]struct{}{},
		of:            map[netip.Addr]int{},
	}
}

// Protect sets the limits of a server in time and in bytes, and lets its handler, a
// [Server], say who is no stranger.
func (g *Guard) Protect(s *http.Server) {
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = guardHeader, guardRequest, guardRequest
	s.IdleTimeout, s.MaxHeaderBytes = guardIdle, guardHeaderBytes
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, guardedKey{}, unwrap(c))
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if known := unwrap(c); known != nil {
			known.rest(state == http.StateIdle)
		}
	}
}

// guardedKey is the key of a connection in the contexts of its requests.
type guardedKey struct{}

// unwrap is the connection below TLS; nil for a connection that did not come through a
// guard.
func unwrap(c net.Conn) *guarded {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	known, _ := c.(*guarded)
	return known
}

// vouch notes that a request of this context was authenticated, so that its connection is a
// stranger's no longer.
func vouch(ctx context.Context) {
	if c, _ := ctx.Value(guardedKey{}).(*guarded); c != nil && !c.known.Swap(true) {
		c.guard.welcome(c)
	}
}

// Listener is l, whose connections are counted.
func (g *Guard) Listener(l net.Listener) net.Listener { return guardedListener{l, g} }

// guardedListener admits connections.
type guardedListener struct {
	net.Listener
	guard *Guard
}

// Accept waits for a connection, and closes another to make room if there are too many. If
// all are at work, the new connection is closed.
func (l guardedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &guarded{Conn: conn, guard: l.guard, from: addressOf(conn)}
		left, ok := l.guard.admit(c)
		if left != nil {
			_ = left.Conn.Close() // whoever serves it sees that
		}
		if ok {
			return c, nil
		}
		_ = conn.Close() // nobody has used it yet
	}
}

// addressOf is the address of a client. All clients that are not of an IP network count as
// the same.
func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// admit counts a connection, and returns the connection that has to make room for it, if
// any has to. It is not ok if none can.
func (g *Guard) admit(c *guarded) (left *guarded, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.of[c.from] >= g.mostOfAddress:
		left = g.oldest(func(s *guarded) bool { return s.from == c.from })
	case g.strangers.Len() >= g.mostStrangers:
		left = g.oldest(nil)
	case len(g.open) >= g.most:
		if left = g.spare(); left == nil {
			return nil, false
		}
	}
	if left != nil {
		g.drop(left)
	}
	g.open[c] = struct{}{}
	g.of[c.from]++
	c.place = g.strangers.PushBack(c)
	return left, true
}

// spare is the connection whose loss costs least when all are taken: the oldest of many
// strangers, the client that has been idle for longest, or else the oldest of few
// strangers.
func (g *Guard) spare() *guarded {
	if g.strangers.Len() <= strangersKept {
		if c := g.idlest(); c != nil {
			return c
		}
	}
	return g.oldest(nil)
}

// oldest is the oldest stranger that matches; nil for none.
func (g *Guard) oldest(match func(*guarded) bool) *guarded {
	for e := g.strangers.Front(); e != nil; e = e.Next() {
		if c, _ := e.Value.(*guarded); match == nil || match(c) {
			return c
		}
	}
	return nil
}

// idlest is the connection of a client with a key that has been idle for longest; nil if
// all are at work.
func (g *Guard) idlest() (found *guarded) {
	least := int64(0)
	for c := range g.open {
		if since := c.idle.Load(); since != 0 && c.known.Load() && (found == nil || since < least) {
			found, least = c, since
		}
	}
	return found
}

// welcome takes a connection off the strangers, whose places are few.
func (g *Guard) welcome(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unlist(c)
}

// leave stops counting a connection that was closed.
func (g *Guard) leave(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(c)
}

// drop forgets a connection, which may be forgotten already: it was closed to make room.
func (g *Guard) drop(c *guarded) {
	delete(g.open, c)
	g.unlist(c)
}

// unlist takes a connection off the strangers, if it is among them.
func (g *Guard) unlist(c *guarded) {
	if c.place == nil {
		return
	}
	g.strangers.Remove(c.place)
	c.place = nil
	if g.of[c.from]--; g.of[c.from] == 0 {
		delete(g.of, c.from)
	}
}
