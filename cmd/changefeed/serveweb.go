package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// Limits of a server, besides those of its guard.
const (
	webConnections = 4096            // of all addresses together
	webDrain       = 7 * time.Second // a new connection may send its first request for 5
	webCut         = 2 * time.Second // for requests that are told to end

	serverHeap = 768 << 20 // bytes; what queries, answers and connections may hold together leaves room below it

	spareDescriptors = 64 // for listeners, logs, certificates, keys
	leastConnections = 8  // however few descriptors the system allows
)

// connections is how many the server takes: no more than leave the store its descriptors.
func connections() int { return connectionsWithin(descriptors(), int64(docstore.Descriptors())) }

// connectionsWithin is how many there can be with so many descriptors, of which the store needs some; 0 is any number.
func connectionsWithin(limit, store int64) int {
	if limit == 0 {
		return webConnections
	}
	return int(min(webConnections, max(limit-store-spareDescriptors, leastConnections)))
}

// web is an address on which the store is served.
type web struct {
	listener  net.Listener // counted by the guard
	server    http.Server
	dedicated bool
}

type webs []*web

// webs listens on the addresses.
func (o *serveOptions) webs(ctx context.Context) (all webs, err error) {
	guard := cosmosrest.NewGuard(connections())
	for _, at := range []struct {
		flag, address string
		dedicated     bool
	}{{"listen", o.listen, false}, {"dedicated-gateway", o.dedicated, true}} {
		if at.address == "" {
			continue
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", at.address)
		if err != nil {
			all.close()
			return nil, fmt.Errorf("--%s is %s: %w: want a free address of this machine, such as 127.0.0.1:0", at.flag, at.address, cmp.Or(errors.Unwrap(err), err))
		}
		w := &web{listener: guard.Listener(l), dedicated: at.dedicated}
		guard.Protect(&w.server)
		all = append(all, w)
	}
	return all, nil
}

// close ends listening; a server that has ended has done so already.
func (all webs) close() {
	for _, w := range all {
		_ = w.listener.Close()
	}
}

// serve serves until ctx ends, and then what it has. It calls ready when clients may
// connect.
func (all webs) serve(ctx context.Context, ready func() error) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	ended := make(chan error, len(all))
	var work sync.WaitGroup
	for _, w := range all {
		s := &w.server
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
	if all.shutdown(ctx, webDrain) != nil {
		cut()
		if all.shutdown(ctx, webCut) != nil {
			for _, w := range all {
				_ = w.server.Close()
			}
		}
	}
	work.Wait()
	return err
}

func (w *web) serve() error {
	var err error
	if w.server.TLSConfig == nil {
		err = w.server.Serve(w.listener)
	} else {
		err = w.server.ServeTLS(w.listener, "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// shutdown waits until all requests are answered, for so long at most.
func (all webs) shutdown(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	failed := make([]error, len(all))
	var work sync.WaitGroup
	for i, w := range all {
		work.Go(func() { failed[i] = w.server.Shutdown(ctx) })
	}
	work.Wait()
	return errors.Join(failed...)
}

// serving is what serve tells of itself.
type serving struct {
	Endpoint    string `json:"endpoint"`
	Dedicated   string `json:"dedicated_endpoint,omitempty"`
	Key         string `json:"key"`
	Connection  string `json:"connection_string"`
	Certificate string `json:"certificate,omitempty"` // file that clients must trust
	Store       string `json:"store,omitempty"`       // directory; none is memory
}

// tell says how to connect.
func (o *serveOptions) tell(to io.Writer, all webs, certificate string) error {
	s := serving{Key: cosmosrest.EmulatorKey, Certificate: certificate}
	if len(o.keys) > 0 {
		s.Key = o.keys[0]
	}
	for _, w := range all {
		if w.dedicated {
			s.Dedicated = o.url(w.listener.Addr())
		} else {
			s.Endpoint = o.url(w.listener.Addr())
		}
	}
	var err error
	if o.db != "" {
		if s.Store, err = filepath.Abs(o.db); err != nil {
			return err
		}
	}
	if o.output.value == "json" {
		s.Connection = cosmosrest.ConnectionString(s.Endpoint, s.Key)
		return json.NewEncoder(to).Encode(s)
	}
	return s.write(to)
}

// url is the address for clients: of this machine, when it is that of all interfaces.
func (o *serveOptions) url(address net.Addr) string {
	scheme, text := "https", address.String()
	if o.plain {
		scheme = "http"
	}
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		text = net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return scheme + "://" + text + "/"
}

// write writes it for people. A key that not everybody knows is left out.
func (s serving) write(to io.Writer) error {
	key := s.Key
	if key != cosmosrest.EmulatorKey {
		key = "KEY"
	}
	lines := []string{"endpoint", s.Endpoint, "connection string", cosmosrest.ConnectionString(s.Endpoint, key)}
	if s.Dedicated != "" {
		lines = append(lines, "dedicated gateway", s.Dedicated)
	}
	if s.Certificate != "" {
		lines = append(lines,
			"certificate", s.Certificate,
			"to trust it", "export SSL_CERT_FILE='"+s.Certificate+"'        # Go",
			"", "export REQUESTS_CA_BUNDLE='"+s.Certificate+"'   # Python",
			"", "export NODE_EXTRA_CA_CERTS='"+s.Certificate+"'  # Node")
	}
	lines = append(lines, "store", cmp.Or(s.Store, "in memory: it is gone when the server ends; --db DIR keeps one"))
	for i := 0; i < len(lines); i += 2 {
		if _, err := fmt.Fprintf(to, "%-18s %s\n", lines[i], lines[i+1]); err != nil {
			return err
		}
	}
	return nil
}
