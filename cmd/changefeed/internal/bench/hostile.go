package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/internal/pause"
)

// Expensive queries that are short to write, and slow readers. Anyone with a read-only key can send these.

// The attack: the number of connections, the documents that the queries join, and how slow the readers are.
const (
	hostiles    = 16
	hostileDocs = 5         // documents that the queries read
	hostileKey  = "hostile" // their city
	hostileSize = 2000      // values in an array of each document
	slowReaders = 4         // of a page of 4 MB
	slowBytes   = 1 << 10   // bytes per read of a slow reader
	slowPause   = time.Second / 10
	cheap       = 1.5 // RU; a hostile query that was run must cost more
)

// hostileQueries take seconds, or hundreds of megabytes, or both.
var hostileQueries = []string{
	"SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a",
	"SELECT VALUE 1 FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a WHERE x + y + z < 0",
	"SELECT x, y FROM c JOIN x IN c.a JOIN y IN c.a ORDER BY x",
	"SELECT DISTINCT x, y FROM c JOIN x IN c.a JOIN y IN c.a",
	"SELECT x, y, COUNT(1) AS n FROM c JOIN x IN c.a JOIN y IN c.a GROUP BY x, y",
	"SELECT VALUE x FROM c JOIN x IN c.a JOIN y IN c.a WHERE RegexMatch(c.s, '(x+x+)+y') AND x < 0",
	"SELECT VALUE x FROM c JOIN x IN c.a JOIN y IN c.a WHERE c.s LIKE '%x%x%x%y' AND x < 0",
	"SELECT VALUE ARRAY_LENGTH(SetUnion(c.a, ARRAY_CONCAT(c.a, c.a))) FROM c JOIN x IN c.a JOIN y IN c.a WHERE y < 0 " +
		"OR x = -1",
}

// hostileDocument returns a document for the queries.
func hostileDocument(n int) []byte {
	var a strings.Builder
	for i := range hostileSize {
		a.WriteString("," + strconv.Itoa(i))
	}
	return fmt.Appendf(nil, `{"id":"hostile-%d","city":%q,"a":[%s],"s":%q}`, n, hostileKey, a.String()[1:],
		strings.Repeat("x", 10_000))
}

// attackQueries sends hostile queries, in turn on each of several connections, and reads pages slowly on others.
func attackQueries(ctx context.Context, g *siege) (string, error) {
	var met outcomes
	errs := make([]error, hostiles+slowReaders)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			if i < hostiles {
				errs[i] = g.sendHostileQueries(ctx, i, &met)
			} else {
				errs[i] = g.readSlowly(ctx, &met)
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("%d connections with hostile queries and %d slow readers of 4 MB: %v", hostiles, slowReaders,
		&met), errors.Join(errs...)
}

// hostileHeader names the partition of the documents, so the gateway's rules do not refuse the queries.
const hostileHeader = "x-ms-documentdb-partitionkey: [\"" + hostileKey + "\"]\r\n"

// writeDocuments writes the documents for the queries.
func (g *siege) writeDocuments() error {
	w, err := dialSocket(g.t.served.addr, g.t.served.key)
	if err != nil {
		return err
	}
	defer w.Close()
	for n := range hostileDocs {
		a, err := w.sendAndRead(request{
			method: "POST", path: benchDocs, kind: "docs", link: benchLink,
			body: hostileDocument(n), header: jsonHeader + hostileHeader,
		})
		if err == nil {
			err = a.wantStatus(http.StatusCreated)
		}
		if err != nil {
			return fmt.Errorf("write document for hostile queries: %w", err)
		}
	}
	return nil
}

// sendHostileQueries sends hostile queries until ctx ends. Each must be answered. The charge of a query that was run
// must be above the minimum, because a free query could be repeated for ever.
func (g *siege) sendHostileQueries(ctx context.Context, first int, met *outcomes) error {
	w, err := dialSocket(g.t.served.addr, g.t.served.key)
	if err != nil {
		return err
	}
	defer w.Close()
	for n := first; ctx.Err() == nil; n++ {
		text := hostileQueries[n%len(hostileQueries)]
		if n%5 == 4 { // each query is different, so the server must parse each
			text = fmt.Sprintf("SELECT * FROM c WHERE c.n IN (%s%d)", strings.Repeat("1,", 100_000), n)
		}
		body, err := json.Marshal(map[string]any{"query": text})
		if err != nil {
			return err
		}
		a, err := w.sendAndRead(request{
			method: "POST", path: benchDocs, kind: "docs", link: benchLink, body: body,
			header: "Content-Type: application/query+json\r\nx-ms-documentdb-isquery: " +
				"true\r\nx-ms-max-item-count: -1\r\n" + hostileHeader,
		})
		if err == nil {
			err = a.wantStatus(http.StatusOK, http.StatusBadRequest, http.StatusRequestTimeout,
				http.StatusTooManyRequests)
		}
		if err == nil && a.status != http.StatusTooManyRequests && a.charge < cheap {
			err = fmt.Errorf("it was charged %g RU", a.charge)
		}
		if err != nil {
			return fmt.Errorf("hostile query %.80s: %w", text, err)
		}
		met.add("status " + strconv.Itoa(a.status))
		if a.status == http.StatusTooManyRequests {
			_ = pause.For(ctx, time.Second) // the loop checks ctx
		}
	}
	return nil
}

// readSlowly reads large pages slowly until ctx ends. At 10 KB a second a page of 4 MB would take seven minutes, and a
// careless server would hold the whole page for this time.
func (g *siege) readSlowly(ctx context.Context, met *outcomes) error {
	for ctx.Err() == nil {
		w, err := dialSocket(g.t.served.addr, g.t.served.key)
		if err != nil {
			return err
		}
		if err := w.send(request{
			method: "GET", path: benchDocs, kind: "docs", link: benchLink,
			header: "x-ms-max-item-count: -1\r\n",
		}); err != nil {
			return errors.Join(err, w.Close())
		}
		n := int64(0)
		for pause.For(ctx, slowPause) == nil && err == nil {
			var m int64
			m, err = io.CopyN(io.Discard, w.conn, slowBytes)
			n += m
		}
		_ = w.Close() // the page is not read to its end
		if ctx.Err() != nil {
			met.add("slow page held")
		} else {
			met.add("slow page ended")
		}
	}
	return nil
}
