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

// Which connections a server keeps. With only a limit on all connections, an attacker could lock out every client by
// opening as many. So connections without an authenticated request have a limit of their own.

// The limits of a server protected by a [Guard]. See docs/server.md.
const (
	guardHeader      = 10 * time.Second // for a handshake, and for the headers of a request
	guardRequest     = 2 * time.Minute  // for a request and its answer, longer than the longest poll
	guardIdle        = 3 * time.Minute
	guardHeaderBytes = 64 << 10

	strangeShare   = 4  // strangers may have 1 of so many connections
	strangersKept  = 64 // number of strangers that are kept while an idle client connection can be closed instead
	leastStrangers = 8  // even for the smallest guard

	silentPatience   = 500 * time.Millisecond // a silent stranger is not closed to make room before this time
	strangerPatience = time.Second            // the same for a stranger that has begun a handshake or a request
	placeLook        = 20 * time.Millisecond  // how often a new connection without a place looks for a place
)

// A Guard prevents strangers from using up the connections of a server. A connection belongs to a stranger until a
// request on this connection was authenticated. Strangers have a small part of all connections. If this part is full,
// the next connection replaces a stranger for whom the server waits: a stranger from the address with the most
// strangers, and among these a silent stranger first. So a client with a key can always connect, however many strangers
// hold connections, even from the client's own address. A connected client stays connected. A connection whose request
// has arrived and waits for a processor is never closed: then the next connection waits for a place.
//
//	guard := cosmosrest.NewGuard(4096)
//	web := http.Server{Handler: server}
//	guard.Protect(&web)
//	err := web.Serve(guard.Listener(l))
//
// Several servers may share a Guard.
type Guard struct {
	most, mostStrangers int

	mu        sync.Mutex
	open      map[*guarded]struct{}
	strangers list.List          // of *guarded, the oldest first
	of        map[netip.Addr]int // number of strangers per address
}

// NewGuard returns a guard for so many connections.
func NewGuard(connections int) *Guard {
	return &Guard{
		most:          connections,
		mostStrangers: max(leastStrangers, connections/strangeShare),
		open:          map[*guarded]struct{}{},
		of:            map[netip.Addr]int{},
	}
}

// Protect sets the server's limits of time and of bytes, and its protocols. The server's handler must be a [Server],
// which reports to the guard which connections are authenticated.
func (g *Guard) Protect(s *http.Server) {
	s.Protocols = protocols()
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = guardHeader, guardRequest, guardRequest
	s.IdleTimeout, s.MaxHeaderBytes = guardIdle, guardHeaderBytes
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, guardedKey{}, unwrap(c))
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if known := unwrap(c); known != nil {
			known.enterState(state)
		}
	}
}

// protocols returns the protocols that SDKs speak: HTTP/1.1 and HTTP/2, the latter also without TLS, because the Rust
// SDK tries nothing else if a server without TLS closes its first connection.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// guardedKey is the key under which the contexts of requests contain their connection.
type guardedKey struct{}

// unwrap returns the connection below TLS, or nil if the connection did not come through a guard.
func unwrap(c net.Conn) *guarded {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	known, _ := c.(*guarded)
	return known
}

// vouch records the authentication of a request with this context. Its connection no longer belongs to a stranger.
func vouch(ctx context.Context) {
	if c, _ := ctx.Value(guardedKey{}).(*guarded); c != nil && !c.known.Swap(true) {
		c.guard.welcomeClient(c)
	}
}

// dismiss records the refusal of the request with this context, to a stranger. From then on the server waits only for
// the stranger, to read the answer or to end its request.
func dismiss(ctx context.Context) {
	if c, _ := ctx.Value(guardedKey{}).(*guarded); c != nil {
		c.refused.Store(true)
	}
}

// Listener returns a listener that accepts connections from l and counts them.
func (g *Guard) Listener(l net.Listener) net.Listener {
	return &guardedListener{Listener: l, guard: g, closed: make(chan struct{})}
}

// guardedListener admits connections.
type guardedListener struct {
	net.Listener
	guard  *Guard
	once   sync.Once
	closed chan struct{}
}

// Close implements [net.Listener].
func (l *guardedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Accept waits for a connection. If there are too many, Accept closes another connection to make room. If no stranger
// may be closed yet, Accept waits, and later connections stay in the system's queue. If clients with a key have all
// places and none of them is idle, the new connection is closed.
func (l *guardedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &guarded{Conn: conn, guard: l.guard, from: addressOf(conn), since: time.Now()}
		if l.placeOf(c) {
			return c, nil
		}
		_ = conn.Close() // this connection was never used
	}
}

// placeOf finds a place for a connection. placeOf returns false if there is no place, or if the listener is closed.
func (l *guardedListener) placeOf(c *guarded) bool {
	for {
		left, found := l.guard.admitConnection(c)
		if left != nil {
			_ = left.Conn.Close() // its goroutine sees the error
		}
		if found != placeLater {
			return found == placeFound
		}
		select {
		case <-time.After(placeLook):
		case <-l.closed:
			return false
		}
	}
}

// addressOf returns the address of a client. All clients outside IP networks share an address.
func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// placement is the result of admitting a connection.
type placement int

const (
	placeFound placement = iota
	placeNone            // clients with a key have all places, and none is idle
	placeLater           // strangers have the places, and their requests are being read or served
)

// admitConnection counts a connection if there is a free place. If another connection must make room, admitConnection
// returns the other one.
func (g *Guard) admitConnection(c *guarded) (left *guarded, found placement) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.strangers.Len() >= g.mostStrangers:
		left = g.longestLoiterer()
	case len(g.open) >= g.most:
		left = g.cheapestToLose()
	default:
		g.seatStranger(c)
		return nil, placeFound
	}
	switch {
	case left != nil:
		g.dropConnection(left)
		g.seatStranger(c)
		return left, placeFound
	case g.strangers.Len() > 0:
		return nil, placeLater
	}
	return nil, placeNone
}

// seatStranger counts a connection as a stranger's.
func (g *Guard) seatStranger(c *guarded) {
	g.open[c] = struct{}{}
	g.of[c.from]++
	c.place = g.strangers.PushBack(c)
}

// cheapestToLose returns the connection whose loss costs least when all places are taken. If there are many strangers,
// this is a stranger's. Otherwise, this is the connection of the longest idle client or, if no client is idle, a
// stranger's.
func (g *Guard) cheapestToLose() *guarded {
	if g.strangers.Len() <= strangersKept {
		if c := g.idlestClient(); c != nil {
			return c
		}
	}
	return g.longestLoiterer()
}

// longestLoiterer returns the stranger closed to make room. longestLoiterer considers the strangers for whom
// the server has waited long enough, and prefers the address with the most strangers, then silent strangers, then the
// oldest. longestLoiterer returns nil if there is no such stranger.
func (g *Guard) longestLoiterer() (found *guarded) {
	now := time.Now()
	for e := g.strangers.Front(); e != nil; e = e.Next() {
		c, _ := e.Value.(*guarded)
		more := found == nil || g.of[c.from] > g.of[found.from]
		quieter := !more && g.of[c.from] == g.of[found.from] && found.heard.Load() && !c.heard.Load()
		if (more || quieter) && c.loiters(now) {
			found = c
		}
	}
	return found
}

// idlestClient returns the connection of the longest idle client with a key, or nil if none is idle.
func (g *Guard) idlestClient() (found *guarded) {
	least := int64(0)
	for c := range g.open {
		if since := c.idle.Load(); since != 0 && c.known.Load() && (found == nil || since < least) {
			found, least = c, since
		}
	}
	return found
}

// welcomeClient removes a connection from the strangers, whose places are few.
func (g *Guard) welcomeClient(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unlistStranger(c)
}

// leaveGuard stops counting a closed connection.
func (g *Guard) leaveGuard(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropConnection(c)
}

// dropConnection removes a connection from the guard. The connection may be removed already, if room was needed.
func (g *Guard) dropConnection(c *guarded) {
	delete(g.open, c)
	g.unlistStranger(c)
}

// unlistStranger removes a connection from the list of strangers, if present.
func (g *Guard) unlistStranger(c *guarded) {
	if c.place == nil {
		return
	}
	g.strangers.Remove(c.place)
	c.place = nil
	if g.of[c.from]--; g.of[c.from] == 0 {
		delete(g.of, c.from)
	}
}
