package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/internal/proof/memnet"
)

func TestHTTPOverItRunsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memnet.Listen()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(time.Hour):
				io.WriteString(w, "an hour later")
			case <-r.Context().Done():
			}
		})}
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("Serve: %v", err)
			}
		})
		defer serving.Wait()
		defer server.Close()
		transport := &http.Transport{DialContext: l.DialContext}
		defer transport.CloseIdleConnections()
		begun := time.Now()
		answer, err := (&http.Client{Transport: transport}).Get("http://anywhere/")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || string(body) != "an hour later" || time.Since(begun) != time.Hour {
			t.Errorf("got %q, %v after %v", body, err, time.Since(begun))
		}
	})
}

func TestAClosedListenerRefuses(t *testing.T) {
	l := memnet.Listen()
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v, want ErrClosed", err)
	}
	if _, err := l.Dial(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial: %v, want ErrClosed", err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	l := memnet.Listen()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := l.Dial(ctx); !errors.Is(err, enough) {
		t.Errorf("Dial: %v, want the cause", err)
	}
}
