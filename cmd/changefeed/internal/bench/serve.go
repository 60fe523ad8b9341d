package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// The benchmarks of single operations over HTTP. Each takes turns with an echo of as many bytes by net/http.

const (
	// As many connections as durable_overwrite has writers.
	serveSockets = 16
	serveDocs    = 20_000
	serveMore    = 200_000
	serveSlice   = 1500 * time.Millisecond
	serveRounds  = 5
	rivalRounds  = 21 // two builds differ less than a server and an echo
	serveBatch   = 10
	partitionRU  = 10_000 // throughput per partition of a new container

	benchDB      = "/dbs/bench"
	benchDocs    = benchDB + "/colls/documents/docs"
	benchLink    = "dbs/bench/colls/documents"
	jsonHeader   = "Content-Type: application/json\r\n"
	upsertHeader = "x-ms-documentdb-is-upsert: true\r\n"
)

// wired is a server that benchmarks load, together with the server that is its baseline. The baseline only echoes or,
// if a benchmark compares builds, is another build with the same documents.
type wired struct {
	served, base *host
	rival        bool // the baseline is another build
	docs         int
	partitions   int // their ids are 0, 1, …
}

// startWired starts a server over a new store, fills a container with a single partition, and starts the baseline.
func (s *Site) startWired(ctx context.Context, name string, docs int, flags ...string) (*wired, error) {
	return s.wiredOver(ctx, name, 1, docs, flags...)
}

// wiredOver is wired with a container of several partitions and without throttling.
func (s *Site) wiredOver(ctx context.Context, name string, partitions, docs int, flags ...string) (t *wired,
	err error,
) {
	t = &wired{docs: docs, partitions: partitions, rival: s.Against != ""}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if t.served, err = t.start(ctx, s, own, name, flags); err != nil {
		return nil, err
	}
	if t.rival {
		t.base, err = t.start(ctx, s, s.Against, name+"-against", flags)
	} else {
		t.base, err = startHost(ctx, own, serveSockets, EchoName)
	}
	if err != nil {
		return nil, t.end(err)
	}
	return t, nil
}

// start starts the server of a build over a new store, and fills the store.
func (t *wired) start(ctx context.Context, s *Site, binary, name string, flags []string) (*host, error) {
	// Throttling is off; otherwise the benchmark would measure the throttle.
	args := append([]string{
		"serve", "--http", "--listen", "127.0.0.1:0", "--db", filepath.Join(s.dir, name), "--ru",
		"-1", "-o", "json",
	}, flags...)
	h, err := startHost(ctx, binary, serveSockets, args...)
	if err != nil {
		return nil, err
	}
	s.reportProgress("filling a served container with %d documents", t.docs)
	if err := t.fillContainer(ctx, h); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// end stops both servers and returns the first error.
func (t *wired) end(err error) error {
	for _, h := range []*host{t.served, t.base} {
		if h == nil {
			continue
		}
		if failed := h.Close(); err == nil {
			err = failed
		}
	}
	return err
}

// fillContainer creates the container and its documents, with batches over all connections.
func (t *wired) fillContainer(ctx context.Context, h *host) error {
	w := h.sockets[0]
	make := []request{
		{method: "POST", path: "/dbs", kind: "dbs", header: jsonHeader, body: []byte(`{"id":"bench"}`)},
		{
			method: "POST", path: benchDB + "/colls", kind: "colls", link: "dbs/bench",
			header: fmt.Sprintf("%sx-ms-offer-throughput: %d\r\n", jsonHeader, t.partitions*partitionRU),
			body:   []byte(`{"id":"documents","partitionKey":{"paths":["/city"],"kind":"Hash","version":2}}`),
		},
	}
	for _, r := range make {
		a, err := w.sendAndRead(r)
		if err == nil {
			err = a.wantStatus(http.StatusCreated)
		}
		if err != nil {
			return fmt.Errorf("set up container: %w", err)
		}
	}
	cities := t.docs / docsPerCity
	return h.onEachConnection(func(w *socket, worker int) error {
		for city := worker; city < cities; city += serveSockets {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if err := postBatch(w, city*docsPerCity, docsPerCity, http.StatusOK); err != nil {
				return err
			}
		}
		return nil
	})
}

// onEachConnection runs a job once on each connection, all at the same time.
func (h *host) onEachConnection(job func(w *socket, worker int) error) error {
	errs := make([]error, len(h.sockets))
	var working sync.WaitGroup
	for i, w := range h.sockets {
		working.Go(func() { errs[i] = job(w, i) })
	}
	working.Wait()
	return errors.Join(errs...)
}

// postBatch upserts n documents of a city in a batch.
func postBatch(w *socket, first, n, status int) error {
	var ops bytes.Buffer
	key, _ := docOf(first)
	separator := byte('[')
	for i := range n {
		_, body := docOf(first + i)
		ops.WriteByte(separator)
		separator = ','
		fmt.Fprintf(&ops, `{"operationType":"Upsert","resourceBody":%s}`, body)
	}
	ops.WriteByte(']')
	a, err := w.sendAndRead(request{
		method: "POST", path: benchDocs, kind: "docs", link: benchLink, body: ops.Bytes(),
		header: jsonHeader +
			"x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\nPrefer: return=minimal\r\n" +
			"x-ms-documentdb-partitionkey: " + string(key) + "\r\n",
	})
	if err != nil {
		return err
	}
	return a.wantStatus(status)
}

// measureLoad measures an operation in turns with an echo of as many bytes, or with the same operation on another
// build.
func (t *wired) measureLoad(ctx context.Context, s *Site, f *Figure, op func(*socket) error, echo request) error {
	own, base := &strain{on: t.served, op: op}, &strain{on: t.base, op: op}
	rounds := serveRounds
	if t.rival {
		rounds = rivalRounds
	} else {
		base.op = func(w *socket) error {
			a, err := w.sendAndRead(echo)
			if err != nil {
				return err
			}
			return a.wantStatus(http.StatusOK)
		}
	}
	err := s.compareInTurns(ctx, f, rounds,
		func() (float64, error) { return own.runSlice(ctx) },
		func() (float64, error) { return base.runSlice(ctx) })
	if err != nil {
		return err
	}
	f.Detail = fmt.Sprintf("%d keep-alive connections, signed, %d documents of %d bytes, %.0f µs of the server's "+
		"processor time each; baseline: net/http echoing as many bytes",
		serveSockets, t.docs, docBytes, own.timePerOperation())
	if t.rival {
		f.Detail = fmt.Sprintf("%d keep-alive connections, signed, %d documents of %d bytes; processor time of the "+
			"server each: %.1f µs, of the baseline %.1f µs; baseline: %s",
			serveSockets, t.docs, docBytes, own.timePerOperation(), base.timePerOperation(), s.Against)
	}
	return nil
}

// strain is the load of an operation on a server.
type strain struct {
	on  *host
	op  func(*socket) error
	cpu time.Duration // processor time of the server
	ops float64
}

// runSlice loads the server for a while, and returns the operations per second.
func (l *strain) runSlice(ctx context.Context) (perSecond float64, err error) {
	before := l.on.processorTime()
	perSecond, err = crowd(ctx, len(l.on.sockets), serveSlice, func(_ context.Context, i int) error {
		return l.op(l.on.sockets[i])
	})
	// The last operations end after the slice, so this counts slightly too few operations. The time per operation is
	// therefore too high, never too low.
	l.cpu += l.on.processorTime() - before
	l.ops += perSecond * serveSlice.Seconds()
	return perSecond, err
}

// timePerOperation returns the server's processor time per operation, in µs.
func (l *strain) timePerOperation() float64 { return float64(l.cpu.Microseconds()) / l.ops }

// served returns a benchmark of an operation on a separate server.
func served(name string, docs int, least float64, echo func() request, op func(docs int) func(*socket) error,
	flags ...string,
) func(context.Context, *Site) (Figure, error) {
	return func(ctx context.Context, s *Site) (f Figure, err error) {
		f.Unit = "requests/s"
		t, err := s.startWired(ctx, name, docs, flags...)
		if err != nil {
			return f, err
		}
		defer func() { err = t.end(err) }()
		if err := t.measureLoad(ctx, s, &f, op(docs), echo()); err != nil {
			return f, err
		}
		f.atLeast(least)
		return f, nil
	}
}

// atLeast sets the target: the figure must be at least least.
func (f *Figure) atLeast(least float64) {
	f.Target, f.OK = fmt.Sprintf("≥ %g %s", least, f.Unit), f.Value >= least
}

// upsertOne overwrites a random document. readOne, queryOne and batchOfTen read, query and write at random too, so a
// cache of a few documents would not help.
func upsertOne(docs int) func(*socket) error {
	return func(w *socket) error {
		key, body := docOf(rand.IntN(docs))
		a, err := w.sendAndRead(request{
			method: "POST", path: benchDocs, kind: "docs", link: benchLink, body: body,
			header: jsonHeader + upsertHeader + "x-ms-documentdb-partitionkey: " + string(key) + "\r\n",
		})
		if err != nil {
			return err
		}
		return a.wantStatus(http.StatusOK)
	}
}

func readOne(docs int) func(*socket) error {
	return func(w *socket) error {
		n := rand.IntN(docs)
		id := "doc-" + strconv.Itoa(n)
		a, err := w.sendAndRead(request{
			method: "GET", path: benchDocs + "/" + id, kind: "docs", link: benchLink + "/docs/" + id,
			header: "x-ms-documentdb-partitionkey: [\"city-" + strconv.Itoa(n/docsPerCity) + "\"]\r\n",
		})
		if err != nil {
			return err
		}
		return a.wantStatus(http.StatusOK)
	}
}

func queryOne(docs int) func(*socket) error {
	return func(w *socket) error {
		n := rand.IntN(docs)
		body := fmt.Appendf(nil,
			`{"query":"SELECT * FROM c WHERE c.id = @id","parameters":[{"name":"@id","value":"doc-%d"}]}`, n)
		a, err := w.sendAndRead(request{
			method: "POST", path: benchDocs, kind: "docs", link: benchLink, body: body,
			header: "Content-Type: application/query+json\r\nx-ms-documentdb-isquery: " +
				"true\r\nx-ms-documentdb-partitionkey: [\"city-" + strconv.Itoa(n/docsPerCity) + "\"]\r\n",
		})
		if err != nil {
			return err
		}
		// The answer is parsed although that takes time, because a server that finds no rows would be fast.
		var rows struct {
			Count int `json:"_count"`
		}
		if err := json.Unmarshal(a.body, &rows); err != nil || rows.Count != 1 {
			return fmt.Errorf("query for doc-%d gave %d documents: want 1: %w", n, rows.Count,
				a.wantStatus(http.StatusOK))
		}
		return a.wantStatus(http.StatusOK)
	}
}

func batchOfTen(docs int) func(*socket) error {
	return func(w *socket) error {
		city := rand.IntN(docs / docsPerCity)
		return postBatch(w, city*docsPerCity+rand.IntN(docsPerCity-serveBatch), serveBatch, http.StatusOK)
	}
}

// echoBody is the baseline of a write: a document in both directions, because the service answers a write with the
// document.
func echoBody() request {
	_, body := docOf(0)
	return request{method: "POST", path: "/echo", header: jsonHeader, body: body}
}

// echoBatch is the baseline of a batch.
func echoBatch() request {
	return request{method: "POST", path: "/echo", header: jsonHeader, body: prosePage(serveBatch * docBytes)}
}

// echoPage is the baseline of a read: a document in the answer.
func echoPage() request { return request{method: "GET", path: "/" + strconv.Itoa(docBytes)} }
