package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
	"github.com/millrace/changefeed/internal/pause"
)

// Connections of strangers: opened, and held without a signed request as long as the server allows.

const (
	strangers      = 10_000 // connections without a key at the same time
	strangerPause  = 5 * time.Second
	strangerRate   = 2000 // new connections per second
	strangerSource = 4    // number of source addresses; the first is also that of clients with a key
)

// strangerLines are sent by strangers: nothing, half a header, and a whole request without a signature. With each,
// the server holds the connection in another state.
var strangerLines = []string{"", "GET / HTTP/1.1\r\nHost: x\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"}

// attackConnections holds many connections without any signed request. A connection that the server closes is opened
// again after a while.
func attackConnections(ctx context.Context, g *siege) (string, error) {
	if limit := web.Descriptors(); limit > 0 && limit < strangers+1000 {
		return "", fmt.Errorf("the system allows %d open files: want %d", limit, strangers+1000)
	}
	var met outcomes
	var open, most atomic.Int64
	pace := time.NewTicker(time.Second / strangerRate)
	defer pace.Stop()
	var all sync.WaitGroup
	for i := range strangers {
		all.Go(func() {
			for ctx.Err() == nil {
				select {
				// All strangers together share a rate. Ten thousand connections at once would overflow the system's
				// queue of new connections, and the benchmark would measure that.
				case <-pace.C:
				case <-ctx.Done():
					return
				}
				conn, err := dialFrom(ctx, i%strangerSource, g.t.served.addr)
				if err != nil {
					met.add("refused")
				} else {
					most.Store(max(most.Load(), open.Add(1)))
					met.add(holdOn(ctx, conn, strangerLines[i%len(strangerLines)]))
					open.Add(-1)
				}
				_ = pause.For(ctx, strangerPause) // the loop checks ctx
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("%d strangers, %d of them connected at once: %v", strangers, most.Load(), &met), nil
}

// dialFrom connects from one of several loopback addresses, because a guard may count by address.
func dialFrom(ctx context.Context, source int, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: socketTimeout}
	if source > 0 {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+source))}
	}
	return d.DialContext(ctx, "tcp", to)
}

// holdOn holds a connection as long as the server allows, and returns the kind of its end.
func holdOn(ctx context.Context, conn net.Conn, line string) string {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, line); err != nil {
		return "closed"
	}
	n, _ := io.Copy(io.Discard, conn) // however it ends
	switch {
	case ctx.Err() != nil:
		return "held to the end"
	case n > 0:
		return "answered and closed"
	}
	return "closed"
}
