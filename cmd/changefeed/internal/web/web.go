// Package web serves a store at one or more addresses. The package respects the limits of the system. When its
// context ends, running requests may finish, within a time limit.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// Limits of a server, in addition to those of its guard.
const (
	mostConnections = 4096            // of all addresses together
	drainTime       = 7 * time.Second // a new connection may take 5 s to send its first request
	cutTime         = 2 * time.Second // for requests whose context has ended

	spareDescriptors = 64 // for listeners, logs, certificates, keys
	leastConnections = 8  // even if the system allows few descriptors
)

// Connections returns how many connections a server may accept, so the store keeps its descriptors.
func Connections() int { return connectionsWithin(Descriptors(), int64(docstore.Descriptors())) }

// connectionsWithin returns the number of connections for so many descriptors, of which the store needs some; a limit
// of 0 means any number.
func connectionsWithin(limit, store int64) int {
	if limit == 0 {
		return mostConnections
	}
	return int(min(mostConnections, max(limit-store-spareDescriptors, leastConnections)))
}

// A Site is an address at which the store is served.
type Site struct {
	Server    http.Server
	Dedicated bool // serves as a dedicated gateway

	listener net.Listener // limited by the guard
}

// Sites are the addresses of a server.
type Sites []*Site

// Listen adds an address, whose connections the guard limits.
func (all *Sites) Listen(ctx context.Context, guard *cosmosrest.Guard, address string, dedicated bool) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	w := &Site{listener: guard.Listener(l), Dedicated: dedicated}
	guard.Protect(&w.Server)
	*all = append(*all, w)
	return nil
}

// Addr returns the address that the site listens on.
func (w *Site) Addr() net.Addr { return w.listener.Addr() }

// Close stops listening. A server that has ended has done so already.
func (all Sites) Close() {
	for _, w := range all {
		_ = w.listener.Close()
	}
}

// Serve serves until ctx ends, and then finishes running requests. Serve calls ready when clients may connect.
func (all Sites) Serve(ctx context.Context, ready func() error) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	ended := make(chan error, len(all))
	var work sync.WaitGroup
	for _, w := range all {
		s := &w.Server
		// When ctx ends, requests do not end; the server only accepts no more. Requests that do not finish in time
		// are cut.
		s.BaseContext = func(net.Listener) context.Context { return base }
		work.Go(func() { ended <- w.serve() })
	}
	err := ready()
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-ended:
		}
	}
	if all.shutdown(ctx, drainTime) != nil {
		cut()
		if all.shutdown(ctx, cutTime) != nil {
			for _, w := range all {
				_ = w.Server.Close()
			}
		}
	}
	work.Wait()
	return err
}

func (w *Site) serve() error {
	var err error
	if w.Server.TLSConfig == nil {
		err = w.Server.Serve(w.listener)
	} else {
		err = w.Server.ServeTLS(w.listener, "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// shutdown waits until all requests are answered, at most for limit.
func (all Sites) shutdown(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	failed := make([]error, len(all))
	var work sync.WaitGroup
	for i, w := range all {
		work.Go(func() { failed[i] = w.Server.Shutdown(ctx) })
	}
	work.Wait()
	return errors.Join(failed...)
}
