package cosmosrest

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// An answer is written in parts, and the client must read each part in time. So a client may be slow with a large
// page, but cannot hold a part as long as a whole request may take. The lowest rate is some 6 KB a second.
const (
	writePart  = 64 << 10
	writePause = 10 * time.Second
)

// guarded is a connection that a [Guard] counts.
type guarded struct {
	net.Conn
	guard *Guard
	from  netip.Addr
	place *list.Element // in the list of strangers; guarded by guard.mu
	known atomic.Bool   // a request was authenticated
	idle  atomic.Int64  // start of the wait for a request, in Unix nanoseconds; 0 while a request is served
	since time.Time     // time of opening

	heard   atomic.Bool // the client has sent something
	reading atomic.Bool // the server waits for more bytes
	busy    atomic.Bool // a request has come but was not answered yet
	refused atomic.Bool // that request is being refused

	mu   sync.Mutex
	last time.Time // deadline of the whole answer; zero means none
	due  time.Time // deadline of the present part, as set on the connection
}

// Close implements [net.Conn]. The guard forgets the connection first, so its place is free at once.
func (c *guarded) Close() error {
	c.guard.leaveGuard(c)
	return c.Conn.Close()
}

// enterState records the state of the connection.
func (c *guarded) enterState(state http.ConnState) {
	since := int64(0)
	if state == http.StateIdle {
		since = time.Now().UnixNano()
	}
	c.idle.Store(since)
	c.busy.Store(state == http.StateActive)
}

// loiters reports whether a stranger holds the connection without need: the server has waited long enough, and no
// bytes of the stranger are unread.
func (c *guarded) loiters(now time.Time) bool {
	patience := strangerPatience
	if !c.heard.Load() {
		patience = silentPatience
	}
	switch {
	case now.Sub(c.since) < patience:
		return false
	case c.refused.Load():
		return true
	}
	return c.reading.Load() && !c.busy.Load() && !hasUnread(c.Conn)
}

// Read implements [net.Conn].
func (c *guarded) Read(b []byte) (int, error) {
	if c.known.Load() {
		return c.Conn.Read(b)
	}
	c.reading.Store(true)
	n, err := c.Conn.Read(b)
	c.reading.Store(false)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, err
}

// Write implements [net.Conn]. Write writes part by part.
func (c *guarded) Write(b []byte) (n int, err error) {
	for {
		part := b[n:min(len(b), n+writePart)]
		if err := c.awaitPart(); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(part)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// awaitPart sets the deadline of the next part. A deadline that was set less than a second ago stays, because a
// system call for each part would cost too much.
func (c *guarded) awaitPart() error {
	now := time.Now()
	due := now.Add(writePause)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && c.last.Before(due) {
		due = c.last
	}
	if late := due.Sub(c.due); 0 <= late && late < time.Second {
		return nil
	}
	c.due = due
	return c.Conn.SetWriteDeadline(due)
}

// SetWriteDeadline implements [net.Conn]. A deadline later than that of a part limits the whole answer.
func (c *guarded) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = t
	if t.IsZero() || t.After(time.Now().Add(writePause)) {
		return nil
	}
	c.due = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements [net.Conn].
func (c *guarded) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}
