package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/memory"
)

// The memory of a server: the resident memory of its process, including the pages of the binary, at the end of a load
// and at its peak.

// serveMemory measures the server's memory under a load on documents of 1 KB: upserts, reads and queries in turn, and
// then, for the duration of the plan, all of these together with batches and the feed.
func serveMemory(ctx context.Context, s *Site) (f Figure, err error) {
	f.Unit = "MB"
	t, err := s.startWired(ctx, "serve-memory", serveDocs)
	if err != nil {
		return f, err
	}
	defer func() { err = t.end(err) }()
	var rates []float64
	load := func(op func(*socket) error, d time.Duration) error {
		rate, err := crowd(ctx, serveSockets, d, func(_ context.Context, i int) error {
			return op(t.served.sockets[i])
		})
		rates = append(rates, rate)
		s.reportProgress("%s requests/s; resident %s", amount(rate), t.served.readFootprint())
		return err
	}
	for _, op := range []func(*socket) error{upsertOne(serveDocs), readOne(serveDocs), queryOne(serveDocs)} {
		if err := load(op, serveSlice); err != nil {
			return f, err
		}
	}
	for left := s.Load; left > 0; left -= memorySlice {
		if err := load(mixed(serveDocs), min(left, memorySlice)); err != nil {
			return f, err
		}
	}
	h := t.served.readFootprint()
	f.Value = float64(h.peak) / bytesPerMB
	f.AtMost(memory.Default / bytesPerMB)
	f.Detail = fmt.Sprintf("the most that was resident with %d documents, under %v of upserts, reads and queries (%s "+
		"requests/s) and %v of all at once (%s requests/s) by %d connections; at the end %s",
		serveDocs, 3*serveSlice, perSecond(rates[:3]), s.Load, perSecond(rates[3:]), serveSockets, h)
	if f.Value == 0 {
		f.Detail, f.OK = "this system does not tell the memory of another process", false
	}
	return f, nil
}

const memorySlice = 30 * time.Second // part of the mixed load after which the memory is reported

// mixed is the mixed load of clients: of 100 requests, 40 are upserts, 40 reads, 14 queries, 5 batches, and 1 reads
// the new changes of the feed.
func mixed(docs int) func(*socket) error {
	upsert, read, query, batch := upsertOne(docs), readOne(docs), queryOne(docs), batchOfTen(docs)
	feed := func(w *socket) error {
		a, err := w.sendAndRead(feedRequest(0, cmp.Or(w.followed, "*"), "x-ms-max-item-count: 1000\r\n"))
		if err != nil {
			return err
		}
		w.followed = a.etag
		return a.wantStatus(http.StatusOK, http.StatusNotModified)
	}
	return func(w *socket) error {
		switch n := rand.IntN(100); {
		case n < 40:
			return upsert(w)
		case n < 80:
			return read(w)
		case n < 94:
			return query(w)
		case n < 99:
			return batch(w)
		}
		return feed(w)
	}
}

// perSecond returns the mean of rates measured for equal times, as text.
func perSecond(rates []float64) string {
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return amount(sum / float64(max(1, len(rates))))
}
