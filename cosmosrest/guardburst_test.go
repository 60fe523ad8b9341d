package cosmosrest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A program that creates 1,000 items at once opens as many connections. None of its requests
// may be lost, also while others, from its own address, hold all the places of strangers.
func TestABurstOfOneAddressLosesNoRequest(t *testing.T) {
	const burst = 1000
	w, _ := newContainer(t, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	guard := NewGuard(4096)
	web := &http.Server{Handler: w}
	guard.Protect(web)
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(guard.Listener(l)) }()
	defer func() {
		_ = web.Close()
		<-ended
	}()
	for range burst { // these say nothing
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	g := guardedWorld{world: w}
	var all sync.WaitGroup
	failed := make(chan error, burst)
	for i := range burst {
		request := g.request(t, "POST", docs, under("p"), fmt.Sprintf(`{"id":"%d","pk":"p"}`, i), true)
		all.Go(func() { failed <- createOver(l.Addr().String(), request) })
	}
	all.Wait()
	close(failed)
	lost := 0
	for err := range failed {
		if err != nil {
			if lost++; lost == 1 {
				t.Error(err)
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d creates were lost", lost, burst)
	}
}

// createOver sends a create on a connection of its own.
func createOver(address, request string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusCreated {
		return fmt.Errorf("status %d, want 201", a.StatusCode)
	}
	return nil
}

// A guard of 100 has 25 places for strangers.
func TestANewConnectionWaitsWhileTheRequestsOfStrangersAreBeingRead(t *testing.T) {
	for _, c := range []struct {
		name, sent string
		want       time.Duration // for which the new connection waits
	}{
		{"silent", "", silentPatience},
		{"half a header", "GET / HTTP/1.1\r\n", strangerPatience},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuardedWorld(t, 100)
				var held []net.Conn
				for range 25 {
					conn := g.dial(t)
					if _, err := io.WriteString(conn, c.sent); err != nil {
						t.Fatal(err)
					}
					held = append(held, conn)
				}
				begun := time.Now()
				if a := ask(t, g.dial(t), g.request(t, "GET", "/dbs/db", nil, "",
					true)); a.StatusCode != http.StatusOK {
					t.Errorf("status %d", a.StatusCode)
				}
				if took := time.Since(begun); took < c.want || took > c.want+2*placeLook {
					t.Errorf("the new connection waited %v, want %v", took, c.want)
				}
				// The oldest has made room, and no other.
				for i, conn := range held {
					if open := isOpen(conn); open != (i > 0) {
						t.Errorf("connection %d of 25 is open: %v", i, open)
					}
				}
			})
		})
	}
}

// A request that waits for a processor, or for whoever says who sent it, is not lost to a
// connection that comes later.
func TestAConnectionWhoseRequestWaitsIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := make(chan struct{})
		w, _ := newContainer(t, Options{})
		g := w.guarded(t, 100, http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
			<-begin
			w.ServeHTTP(a, r)
		}))
		signed := g.request(t, "GET", "/dbs/db", nil, "", true)
		var status sync.WaitGroup
		for range 25 {
			conn := g.dial(t)
			status.Go(func() {
				if a := ask(t, conn, signed); a.StatusCode != http.StatusOK {
					t.Errorf("a waiting request got %d", a.StatusCode)
				}
			})
		}
		synctest.Wait()
		status.Go(func() {
			if a := ask(t, g.dial(t), signed); a.StatusCode != http.StatusOK {
				t.Errorf("a later request got %d", a.StatusCode)
			}
		})
		time.Sleep(2 * strangerPatience) // virtual: the later one has no place yet
		close(begin)
		status.Wait()
	})
}

// Strangers of one address make room for each other before those of other addresses do, and
// those that have said nothing before those that have.
func TestWhoHasMostStrangersMakesRoomFirst(t *testing.T) {
	now := time.Now()
	g := NewGuard(64) // 16 strangers
	open := func(from string, heard bool, at time.Duration) *guarded {
		conn, _ := net.Pipe()
		c := &guarded{Conn: conn, guard: g, since: now.Add(at - time.Hour)}
		c.from = addressOf(addressed{conn, from})
		c.heard.Store(heard)
		c.reading.Store(true)
		if left, found := g.admitConnection(c); left != nil || found != placeFound {
			t.Fatalf("admit: %v, %v", left, found)
		}
		return c
	}
	lone := open("10.0.0.1:1", false, 0)
	begun := open("10.0.0.2:1", true, time.Second)
	silent := open("10.0.0.2:2", false, 2*time.Second)
	if found := g.longestLoiterer(); found != silent {
		t.Errorf("the first to make room is that of %v, silent %v: want the silent one of the address with two",
			found.from, !found.heard.Load())
	}
	g.leaveGuard(silent)
	busy := open("10.0.0.2:3", false, 3*time.Second)
	busy.busy.Store(true)
	if found := g.longestLoiterer(); found != begun {
		t.Errorf("want the one of the address with two that has no request")
	}
	begun.busy.Store(true)
	if found := g.longestLoiterer(); found != lone {
		t.Errorf("want the one whose address has no request")
	}
	lone.reading.Store(false)
	if found := g.longestLoiterer(); found != nil {
		t.Errorf("want none: all are at work")
	}
	busy.refused.Store(true)
	if found := g.longestLoiterer(); found != busy {
		t.Errorf("want the one that is being refused")
	}
}

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	from string
}

func (a addressed) RemoteAddr() net.Addr {
	host, port, _ := strings.Cut(a.from, ":")
	return &net.TCPAddr{IP: net.ParseIP(host), Port: len(port)}
}

// isOpen reports whether the server has left a connection open.
func isOpen(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := conn.Read(make([]byte, 1))
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
