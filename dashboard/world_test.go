package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// world is a store in memory with a unit, within a bubble of virtual time.
type world struct {
	t      *testing.T
	db     *docstore.DB
	orders *docstore.Container
	leases *docstore.Leases
	lists  atomic.Int64 // of the lease store by the dashboard
}

// newWorld makes a store.
func newWorld(t *testing.T, ranges int) *world {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w := &world{t: t, db: db}
	spec := docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: ranges}
	if w.orders, err = db.CreateContainer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	records, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	if w.leases, err = docstore.NewLeases(t.Context(), records, "mailer", w.orders); err != nil {
		t.Fatal(err)
	}
	return w
}

// counting is a lease store that counts how often it is listed.
type counting struct {
	feed.LeaseStore
	n *atomic.Int64
}

func (c counting) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	c.n.Add(1)
	return c.LeaseStore.List(ctx)
}

// unit is the unit of the world for a dashboard.
func (w *world) unit(p *changefeed.Processor) Unit {
	return Unit{
		Name: "mailer", Container: "orders", Source: w.orders, Leases: counting{w.leases, &w.lists}, Processor: p,
	}
}

// start starts an instance, which ends with the test.
func (w *world) start(name string, h feed.Handler, o changefeed.Options) *changefeed.Processor {
	w.t.Helper()
	return w.startOn(w.leases, name, h, o)
}

// startOn is start with a lease store of its own.
func (w *world) startOn(leases feed.LeaseStore, name string, h feed.Handler,
	o changefeed.Options,
) *changefeed.Processor {
	w.t.Helper()
	o.Instance, o.Start = name, feed.FromBeginning()
	p, err := changefeed.New(w.orders, leases, h, o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("instance %s: %v", name, err)
		}
	})
	return p
}

// write writes a document.
func (w *world) write(city, body string) {
	w.t.Helper()
	key := feed.PartitionKey(`["` + city + `"]`)
	write := feed.Write{Op: feed.WriteUpsert, Body: []byte(body)}
	if _, err := w.orders.Commit(w.t.Context(), key, []feed.Write{write}); err != nil {
		w.t.Fatal(err)
	}
}

// done is a handler that succeeds.
var done = feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })

var errBroken = errors.New("the mail server says <b>no</b>")

// ask asks a dashboard as somebody on the same machine does, and decodes the answer.
func ask[T any](t *testing.T, d *Dashboard, path string) (status int, answer T) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost:8090"
	d.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("GET %s: %d %s: %v", path, w.Code, w.Body.String(), err)
	}
	return w.Code, answer
}

// network serves a dashboard on connections in memory, within a bubble.
type network struct {
	conns chan net.Conn
	over  chan struct{}
}

func (n network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.over:
		return nil, net.ErrClosed
	}
}

func (network) Addr() net.Addr { return &net.TCPAddr{} }

func (network) Close() error { return nil }

// serve serves a dashboard until the test ends.
func serve(t *testing.T, d *Dashboard) network {
	n := network{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: d}
	ended := make(chan error)
	go func() { ended <- server.Serve(n) }()
	t.Cleanup(func() {
		close(n.over)
		_ = server.Close()
		<-ended
	})
	return n
}

// connect sends a request for events. Whoever reads the connection gets the answer.
func (n network) connect(t *testing.T, header string) net.Conn {
	t.Helper()
	return n.dial(t, "GET /events HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n")
}

// dial sends a request.
func (n network) dial(t *testing.T, request string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	n.conns <- theirs
	if _, err := io.WriteString(ours, request); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	return ours
}

// partsOf reads the parts of an answer of events as they come.
func partsOf(conn net.Conn) <-chan string {
	parts := make(chan string, 1000)
	go func() {
		defer close(parts)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return
		}
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		var part []string
		for lines.Scan() {
			if lines.Text() != "" {
				part = append(part, lines.Text())
				continue
			}
			parts <- strings.Join(part, "\n")
			part = nil
		}
	}()
	return parts
}

// received are the parts that have come, once nothing more happens.
func received(parts <-chan string) (all []string) {
	synctest.Wait()
	for {
		select {
		case part, isOpen := <-parts:
			if !isOpen {
				return all
			}
			all = append(all, part)
		default:
			return all
		}
	}
}

// count is how many parts contain a text.
func count(parts []string, text string) (n int) {
	for _, part := range parts {
		if strings.Contains(part, text) {
			n++
		}
	}
	return n
}
