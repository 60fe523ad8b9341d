package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// The benchmarks of the change feed over HTTP, and of a server's start.

const (
	feedDocs       = 100_000
	feedPageItems  = 1000
	feedWarmUp     = 20
	feedPasses     = 11
	startRounds    = 15
	followRate     = 200 // writes a second
	followFor      = 10 * time.Second
	followPatience = 5 * time.Second // wait for the last changes
	feedPoll       = "x-ms-cosmos-max-polling-interval: 5000\r\n"
)

// serveFeed measures a client that reads a feed from the beginning and only counts. The server's memory must not grow
// from pass to pass.
func serveFeed(ctx context.Context, s *Site) (f Figure, err error) {
	f.Unit = "documents/s"
	t, err := s.startWired(ctx, "serve-feed", feedDocs)
	if err != nil {
		return f, err
	}
	defer func() { err = t.end(err) }()
	var page int           // bytes of the largest page
	for range feedWarmUp { // until the server's cache is full
		if _, err := t.readFeed(t.served, &page); err != nil {
			return f, err
		}
	}
	rounds, base, from := feedPasses, func() (float64, error) {
		return t.readEcho(page)
	}, "net/http sending as many bytes"
	if t.rival {
		rounds, base, from = rivalRounds, func() (float64, error) { return t.readFeed(t.base, &page) }, s.Against
		for range feedWarmUp {
			if _, err := base(); err != nil {
				return f, err
			}
		}
	}
	before := t.served.memoryNow()
	if err := s.compareInTurns(ctx, &f, rounds, func() (float64, error) {
		return t.readFeed(t.served, &page)
	}, base); err != nil {
		return f, err
	}
	after := t.served.memoryNow()
	f.atLeast(100_000)
	f.OK = f.OK && after <= before*11/10
	f.Target += ", memory flat"
	f.Detail = fmt.Sprintf("%d documents of %d bytes in pages of %d, one connection, signed; the server's memory "+
		"after %d passes to fill its cache: %d MB, after %d more: %d MB; baseline: %s",
		feedDocs, docBytes, feedPageItems, feedWarmUp, before>>20, rounds, after>>20, from)
	return f, nil
}

// readFeed reads the whole feed over a single connection, partition by partition, and raises page to the bytes of the
// largest page.
func (t *wired) readFeed(from *host, page *int) (perSecond float64, err error) {
	begun := time.Now()
	total := 0
	for partition := range t.partitions {
		n, err := readPartition(from.sockets[0], partition, page)
		if err != nil {
			return 0, err
		}
		total += n
	}
	if total != t.docs {
		return 0, fmt.Errorf("feed has %d documents: want %d", total, t.docs)
	}
	return float64(total) / time.Since(begun).Seconds(), nil
}

// readPartition counts the documents in the feed of a partition.
func readPartition(w *socket, partition int, page *int) (n int, err error) {
	for etag := ""; ; {
		a, err := w.sendAndRead(feedRequest(partition, etag,
			"x-ms-max-item-count: "+strconv.Itoa(feedPageItems)+"\r\n"))
		if err == nil {
			err = a.wantStatus(http.StatusOK, http.StatusNotModified)
		}
		if err != nil || a.status == http.StatusNotModified {
			return n, err
		}
		n, etag, *page = n+a.items, a.etag, max(*page, len(a.body))
	}
}

// feedRequest returns a request for the changes of a partition after an ETag; without an ETag, from the beginning.
func feedRequest(partition int, etag, header string) request {
	header += "A-IM: Incremental Feed\r\nx-ms-documentdb-partitionkeyrangeid: " + strconv.Itoa(partition) + "\r\n"
	if etag != "" {
		header += "If-None-Match: " + etag + "\r\n"
	}
	return request{method: "GET", path: benchDocs, kind: "docs", link: benchLink, header: header}
}

// readEcho reads as many pages of as many bytes from the echo server.
func (t *wired) readEcho(page int) (perSecond float64, err error) {
	begun := time.Now()
	for range feedDocs / feedPageItems {
		a, err := t.base.sockets[0].sendAndRead(request{method: "GET", path: "/" + strconv.Itoa(page)})
		if err == nil {
			err = a.wantStatus(http.StatusOK)
		}
		if err != nil {
			return 0, err
		}
	}
	return feedDocs / time.Since(begun).Seconds(), nil
}

// serveFollow measures the time from an acknowledged write to its arrival at a waiting reader.
func serveFollow(ctx context.Context, s *Site) (f Figure, err error) {
	f.Unit = "ms"
	t, err := s.startWired(ctx, "serve-follow", serveDocs)
	if err != nil {
		return f, err
	}
	defer func() { err = t.end(err) }()
	g := &following{t: t, sent: map[string]time.Time{}, seen: map[string]time.Time{}}
	if err := g.runBoth(ctx); err != nil {
		return f, err
	}
	var waits []float64
	for id, at := range g.sent {
		waits = append(waits, float64(g.seen[id].Sub(at).Microseconds())/1000)
	}
	slices.Sort(waits)
	// A wait is negative if the reader gets a document before its writer gets the answer.
	f.Value = max(waits[len(waits)*99/100], 0)
	f.AtMost(10)
	f.Detail = fmt.Sprintf("%d writes at %d a second, none missed, none repeated; half of them within %.2f ms of the "+
		"acknowledgement", len(waits), followRate, max(waits[len(waits)/2], 0))
	return f, nil
}

// following is a writer and a reader at the same time, with the times at which each saw a document.
type following struct {
	t          *wired
	mu         sync.Mutex
	sent, seen map[string]time.Time
	done       bool // all documents were sent
}

// runBoth asks for the present position, and then runs the writer and the reader. Each has its own connection, because
// a connection answers a single request at a time, and the server holds the reader's requests.
func (g *following) runBoth(ctx context.Context) error {
	a, err := g.t.served.sockets[0].sendAndRead(feedRequest(0, "*", ""))
	if err == nil {
		err = a.wantStatus(http.StatusNotModified)
	}
	if err != nil {
		return err
	}
	from := a.etag
	var wrote, read error
	var work sync.WaitGroup
	work.Go(func() { wrote = g.writeSteadily(ctx) })
	work.Go(func() { read = g.readUntilAllCame(ctx, from) })
	work.Wait()
	return errors.Join(wrote, read)
}

// writeSteadily creates documents at a steady rate.
func (g *following) writeSteadily(ctx context.Context) error {
	tick := time.NewTicker(time.Second / followRate)
	defer tick.Stop()
	// This also runs after an error; otherwise the reader would wait for documents that are never written.
	defer g.finish()
	for n := range followRate * int(followFor.Seconds()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		id := "new-" + strconv.Itoa(n)
		a, err := g.t.served.sockets[1].sendAndRead(request{
			method: "POST", path: benchDocs, kind: "docs", link: benchLink,
			body:   fmt.Appendf(nil, `{"id":%q,"city":"x","text":%q}`, id, prosePage(docBytes-60)),
			header: jsonHeader + "x-ms-documentdb-partitionkey: [\"x\"]\r\nPrefer: return=minimal\r\n",
		})
		if err == nil {
			err = a.wantStatus(http.StatusCreated)
		}
		if err != nil {
			return err
		}
		g.mu.Lock()
		g.sent[id] = time.Now()
		g.mu.Unlock()
	}
	return nil
}

// finish records that all documents are written.
func (g *following) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = true
}

// readUntilAllCame reads the feed until all written documents have come.
func (g *following) readUntilAllCame(ctx context.Context, etag string) error {
	for last := time.Now(); ctx.Err() == nil; {
		a, err := g.t.served.sockets[2].sendAndRead(feedRequest(0, etag, feedPoll))
		if err != nil {
			return err
		}
		etag = a.etag
		if a.status == http.StatusOK {
			last = time.Now()
			if err := g.notePage(a.body); err != nil {
				return err
			}
		}
		// Changes may still come after the last write, so only a long silence means a loss.
		if finished, missing := g.countMissing(); finished && (missing == 0 || time.Since(last) > followPatience) {
			if missing > 0 {
				return fmt.Errorf("%d of %d changes did not come", missing, len(g.sent))
			}
			return nil
		}
	}
	return context.Cause(ctx)
}

// notePage records the documents of a page. A document that comes twice is an error.
func (g *following) notePage(page []byte) error {
	var body struct {
		Documents []struct{ ID string }
	}
	now := time.Now()
	if err := json.NewDecoder(bytes.NewReader(page)).Decode(&body); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range body.Documents {
		if _, again := g.seen[d.ID]; again {
			return fmt.Errorf("change of %q came twice", d.ID)
		}
		g.seen[d.ID] = now
	}
	return nil
}

// countMissing returns how many documents have not come yet; finished is true if no more will be written.
func (g *following) countMissing() (finished bool, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done, len(g.sent) - len(g.seen)
}

// serveStart measures how soon a server answers after its start. The longest of many starts counts, because a test
// that starts a server waits for this start.
func serveStart(ctx context.Context, s *Site) (f Figure, err error) {
	f.Unit = "ms"
	own, err := os.Executable()
	if err != nil {
		return f, err
	}
	var waits []float64
	for range startRounds {
		begun := time.Now()
		h, err := startHost(ctx, own, 1, "serve", "--http", "--listen", "127.0.0.1:0", "--db",
			filepath.Join(s.dir, "serve-start"), "-o", "json")
		if err != nil {
			return f, err
		}
		a, err := h.sockets[0].sendAndRead(request{method: "GET", path: "/"})
		if err == nil {
			err = a.wantStatus(http.StatusOK)
		}
		waits = append(waits, float64(time.Since(begun).Microseconds())/1000)
		if err = errors.Join(err, h.Close()); err != nil {
			return f, err
		}
	}
	slices.Sort(waits)
	f.Value = waits[len(waits)-1]
	f.AtMost(100)
	f.Detail = fmt.Sprintf("from the start of the process to its first answer, the longest of %d on one store; half "+
		"of them within %.0f ms", startRounds, waits[len(waits)/2])
	return f, nil
}
