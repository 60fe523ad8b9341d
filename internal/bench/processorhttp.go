package bench

import (
	"context"
	"encoding/base64"
	"fmt"
	"runtime"

	"github.com/millrace/changefeed/cosmos"
)

// clientRounds is how often a processor works off the feed over HTTP.
const clientRounds = 7

// processorHTTP is a benchmark of a processor over HTTP, with pages of so many items, in turns with the raw stream of
// serve_feed: the processor has four connections and the server serves several at once, but both share the machine with
// it, so the stream is what is left when nobody keeps a position or cuts a page into changes.
func processorHTTP(name string, items int, least float64) func(context.Context, *Site) (Figure, error) {
	return func(ctx context.Context, s *Site) (f Figure, err error) {
		f.Unit = "documents/s"
		t, err := s.wiredOver(ctx, name, libraryRanges, libraryDocs)
		if err != nil {
			return f, err
		}
		defer func() { err = t.end(err) }()
		w, err := dialWorker(ctx, s, t, items)
		if err != nil {
			return f, err
		}
		defer w.client.Close()
		var page int
		for range feedWarmUp { // until the server's cache is full
			if _, err := t.readFeed(&page); err != nil {
				return f, err
			}
		}
		value, baseline, err := s.inTurns(ctx, clientRounds, f.Unit,
			func() (float64, error) { return w.workOff(ctx) },
			func() (float64, error) { return t.readFeed(&page) })
		if err != nil {
			return f, err
		}
		f.Value = value
		f.Against(baseline)
		f.ratioOf(least)
		f.Detail = fmt.Sprintf("%d documents of 1 KB in %d partitions in pages of %d; one instance with a lease for each, a durable checkpoint after each page, from its start to the last batch; "+
			"%.1f s of the client's processor time and %.1f s of the server's; baseline: serve_feed's stream of these documents, one connection, pages of %d",
			libraryDocs, libraryRanges, items, median(w.used), median(w.served), feedPageItems)
		return f, nil
	}
}

// worker is a client that runs processors, and the seconds of processor time that each took.
type worker struct {
	s         *Site
	t         *wired
	client    *cosmos.Client
	documents *cosmos.Container
	records   *cosmos.Container // of leases
	items     int               // of a page

	used, served []float64 // by the client and by the server
}

func dialWorker(ctx context.Context, s *Site, t *wired, items int) (w *worker, err error) {
	w = &worker{s: s, t: t, items: items}
	key := cosmos.Key(base64.StdEncoding.EncodeToString(t.served.key))
	if w.client, err = cosmos.Open(ctx, "http://"+t.served.addr, key, cosmos.Options{}); err != nil {
		return nil, err
	}
	if w.documents, err = w.client.Container(ctx, "bench", "documents"); err != nil {
		return nil, err
	}
	w.records, err = w.client.CreateLeaseContainer(ctx, "bench", "leases")
	return w, err
}

// workOff runs a processor of a new unit over everything.
func (w *worker) workOff(ctx context.Context) (perSecond float64, err error) {
	runtime.GC()
	used, served := busy(), w.t.served.busy()
	leases, err := cosmos.OpenLeases(ctx, w.records, fmt.Sprint("unit-", len(w.used)), w.documents, cosmos.LeaseOptions{})
	if err != nil {
		return 0, err
	}
	spent, err := w.s.workOff(ctx, w.documents.Source(), leases, libraryDocs, w.items)
	w.used = append(w.used, (busy() - used).Seconds())
	w.served = append(w.served, (w.t.served.busy() - served).Seconds())
	return libraryDocs / spent.Seconds(), err
}
