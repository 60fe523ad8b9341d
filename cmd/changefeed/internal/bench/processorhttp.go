package bench

import (
	"context"
	"encoding/base64"
	"fmt"
	"runtime"

	"github.com/millrace/changefeed/cosmos"
)

// A processor over HTTP, compared with the raw stream of the same documents.
//
// The stream is that of serve_feed: a single connection, pages of 1,000, and a client that only counts. The processor
// has a connection for each of its leases and the same two processors, and does more: the processor splits pages into
// changes, passes them to the handler, and stores its position durably after each page, with a conditional write that
// waits for an fsync. The ratio is the cost of this work.

// clientRounds is how often a processor handles the whole feed.
const clientRounds = 7

// processorHTTP returns a benchmark of a processor with pages of so many items. The ratio to the stream must be at
// least least.
func processorHTTP(name string, items int, least float64) func(context.Context, *Site) (Figure, error) {
	return func(ctx context.Context, s *Site) (f Figure, err error) {
		f.Unit = "documents/s"
		t, err := s.wiredOver(ctx, name, libraryRanges, libraryDocs)
		if err != nil {
			return f, err
		}
		defer func() { err = t.end(err) }()
		w, err := dialWorker(ctx, s, t.served, items)
		if err != nil {
			return f, err
		}
		defer w.client.Close()
		var page int
		for range feedWarmUp { // until the server's cache is full
			if _, err := t.readFeed(t.served, &page); err != nil {
				return f, err
			}
		}
		value, baseline, err := s.inTurns(ctx, clientRounds, f.Unit,
			func() (float64, error) { return w.workOff(ctx) },
			func() (float64, error) { return t.readFeed(t.served, &page) })
		if err != nil {
			return f, err
		}
		f.Value = value
		f.Against(baseline)
		f.ratioOf(least)
		f.Detail = fmt.Sprintf("%d documents of 1 KB in %d partitions in pages of %d; one instance with a lease for "+
			"each, a durable checkpoint after each page, from its start to the last batch; "+
			"%.1f s of the client's processor time and %.1f s of the server's; baseline: serve_feed's stream of "+
			"these documents, one connection, pages of %d",
			libraryDocs, libraryRanges, items, median(w.used), median(w.served), feedPageItems)
		return f, nil
	}
}

// worker is a client that runs processors, with the processor time in seconds that each of them took.
type worker struct {
	s         *Site
	from      *host
	client    *cosmos.Client
	documents *cosmos.Container
	records   *cosmos.Container // the leases
	items     int               // per page

	used, served []float64 // processor time of the client and of the server
}

// dialWorker opens the containers of a server through the client, as a user's service would.
func dialWorker(ctx context.Context, s *Site, from *host, items int) (w *worker, err error) {
	w = &worker{s: s, from: from, items: items}
	key := cosmos.Key(base64.StdEncoding.EncodeToString(from.key))
	if w.client, err = cosmos.Open(ctx, "http://"+from.addr, key, cosmos.Options{}); err != nil {
		return nil, err
	}
	if w.documents, err = w.client.Container(ctx, "bench", "documents"); err != nil {
		return nil, err
	}
	w.records, err = w.client.CreateLeaseContainer(ctx, "bench", "leases")
	return w, err
}

// workOff runs a processor of a new unit over the whole feed. The rate includes its start, so leases are created and
// acquired within it.
func (w *worker) workOff(ctx context.Context) (perSecond float64, err error) {
	runtime.GC()
	used, served := busy(), w.from.processorTime()
	leases, err := cosmos.OpenLeases(ctx, w.records, fmt.Sprint("unit-", len(w.used)), w.documents,
		cosmos.LeaseOptions{})
	if err != nil {
		return 0, err
	}
	spent, err := w.s.workOff(ctx, w.documents, leases, libraryDocs, w.items)
	w.used = append(w.used, (busy() - used).Seconds())
	w.served = append(w.served, (w.from.processorTime() - served).Seconds())
	return libraryDocs / spent.Seconds(), err
}
