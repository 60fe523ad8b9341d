package dashboard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// lone is a listener of one connection in memory.
type lone chan net.Conn

func (l lone) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, errors.New("closed")
	}
	return c, nil
}

func (lone) Addr() net.Addr { return new(net.TCPAddr) }
func (lone) Close() error   { return nil }

// posted sends a part of a command that says it is longer, and the rest after a while, through a real connection. It
// returns the status of the answer, and when that came.
func posted(t *testing.T, serve http.Handler, first, rest string, after time.Duration) (status int,
	took time.Duration,
) {
	here, there := net.Pipe()
	l := make(lone, 1)
	l <- there
	server := &http.Server{Handler: serve}
	go func() { _ = server.Serve(l) }()
	defer func() {
		_ = here.Close()
		close(l)
		_ = server.Shutdown(context.WithoutCancel(t.Context()))
	}()
	begun := time.Now()
	_, _ = fmt.Fprintf(here, "POST /steer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(first)+len(rest), first)
	later := time.AfterFunc(after, func() { _, _ = io.WriteString(here, rest) })
	defer later.Stop()
	answer, err := http.ReadResponse(bufio.NewReader(here), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode, time.Since(begun)
}

// A command that ends midway is refused after a while: it holds no connection for ever, and nothing is done.
func TestACommandThatEndsMidwayIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{Write: true})
		defer d.Show(w.unit(nil))()
		status, took := posted(t, d, `{"unit":"mailer","action":"pause"`, "}", time.Hour)
		if status != http.StatusBadRequest || took != readTimeout {
			t.Errorf("%d after %v, want 400 after %v", status, took, readTimeout)
		}
		status, took = posted(t, d, `{"unit":"nobody","action":"pause"`, "}", readTimeout-time.Second)
		if status != http.StatusNotFound || took >= readTimeout {
			t.Errorf("%d after %v, want that a slow command is read", status, took)
		}
	})
}

// An answer may take longer than the next bytes of a body.
func TestAnAnswerMayTakeLongerThanABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Write: true})
		slow := d.guardRequests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-time.After(2 * readTimeout):
				w.WriteHeader(http.StatusOK)
			case <-r.Context().Done():
				w.WriteHeader(http.StatusBadGateway)
			}
		}))
		if status, took := posted(t, slow, "{", "}", time.Second); status != http.StatusOK || took < 2*readTimeout {
			t.Errorf("%d after %v, want 200 after %v", status, took, 2*readTimeout)
		}
	})
}
