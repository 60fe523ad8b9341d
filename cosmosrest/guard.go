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
	strangersKept  = 64 // that are not closed to make room, as long as an idle connection is left to close
	leastStrangers = 8  // for the smallest of guards

	silentPatience   = 500 * time.Millisecond // for which a stranger that has sent nothing is not closed to make room
	strangerPatience = time.Second            // the same for a stranger that has begun a handshake or a request
	placeLook        = 20 * time.Millisecond  // after which a new connection without a place looks for one again
)

// A Guard keeps strangers from using up the connections of a server. A connection is a
// stranger's until a request on it was authenticated. Strangers have a small part of all
// connections. When that part is taken, a stranger for whom the server waits is closed for
// the next one: of the address with the most of them, and before all others a silent one.
// So a client with a key gets in however many strangers hold on, also from their address,
// and a client that is in stays in. A connection whose request has come and waits for a
// processor is never closed: then the next one waits for a place.
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
	strangers list.List          // of *guarded, the oldest in front
	of        map[netip.Addr]int // strangers of an address
}

// NewGuard allows so many connections.
func NewGuard(connections int) *Guard {
	return &Guard{
		most:          connections,
		mostStrangers: max(leastStrangers, connections/strangeShare),
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
			known.enterState(state)
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
		c.guard.welcomeClient(c)
	}
}

// dismiss notes that the request of this context is being refused to a stranger, so that
// only the stranger is waited for: to take the answer, or to end its request.
func dismiss(ctx context.Context) {
	if c, _ := ctx.Value(guardedKey{}).(*guarded); c != nil {
		c.refused.Store(true)
	}
}

// Listener is l, whose connections are counted.
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

// Accept waits for a connection, and closes another to make room if there are too many.
// Where no stranger may be closed yet, Accept waits, and later connections stay in the queue
// of the system. If clients with a key have all the places and are at work, the new
// connection is closed.
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
		_ = conn.Close() // nobody has used it yet
	}
}

// placeOf finds a place for a connection. It is false when there is none, or the listener is
// closed.
func (l *guardedListener) placeOf(c *guarded) bool {
	for {
		left, found := l.guard.admitConnection(c)
		if left != nil {
			_ = left.Conn.Close() // whoever serves it sees that
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

// addressOf is the address of a client. All clients that are not of an IP network count as
// the same.
func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// placement is what became of a new connection.
type placement int

const (
	placeFound placement = iota
	placeNone            // all places are those of clients with a key, which are at work
	placeLater           // strangers have the places, whose requests are being read or served
)

// admitConnection counts a connection, if there is a place for it, and returns the connection that has
// to make room for it, if any has to.
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

// cheapestToLose is the connection whose loss costs least when all are taken: a stranger's if there
// are many, that of the client that has been idle for longest, or else a stranger's.
func (g *Guard) cheapestToLose() *guarded {
	if g.strangers.Len() <= strangersKept {
		if c := g.idlestClient(); c != nil {
			return c
		}
	}
	return g.longestLoiterer()
}

// longestLoiterer is the stranger that is closed to make room: of those for whom the server has
// waited long enough, one of the address that has the most strangers, a silent one before
// one that has sent something, and the oldest of these. It is nil if there is none.
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

// idlestClient is the connection of a client with a key that has been idle for longest; nil if
// all are at work.
func (g *Guard) idlestClient() (found *guarded) {
	least := int64(0)
	for c := range g.open {
		if since := c.idle.Load(); since != 0 && c.known.Load() && (found == nil || since < least) {
			found, least = c, since
		}
	}
	return found
}

// welcomeClient takes a connection off the strangers, whose places are few.
func (g *Guard) welcomeClient(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unlistStranger(c)
}

// leaveGuard stops counting a connection that was closed.
func (g *Guard) leaveGuard(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropConnection(c)
}

// dropConnection forgets a connection, which may be forgotten already: it was closed to make room.
func (g *Guard) dropConnection(c *guarded) {
	delete(g.open, c)
	g.unlistStranger(c)
}

// unlistStranger takes a connection off the strangers, if it is among them.
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
