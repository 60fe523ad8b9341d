package bench

import (
	"context"
	"fmt"
)

// A single lease over HTTP, as for a user whose container has a single partition.
//
// Pages come in sequence, and so do checkpoints, so the rate is 1 divided by the time of a page.

// leaseItems is the number of changes in a page, as requested by the service's own processors.
const leaseItems = 100

// processorHTTPLease measures a processor with a single lease.
func processorHTTPLease(ctx context.Context, s *Site) (f Figure, err error) {
	f.Unit = "changes/s"
	t, err := s.startWired(ctx, "processor-http-lease", libraryDocs)
	if err != nil {
		return f, err
	}
	defer func() { err = t.end(err) }()
	own, err := dialLease(ctx, s, t, t.served)
	if err != nil {
		return f, err
	}
	defer own.client.Close()
	base := func() (float64, error) { return t.readFeed(t.served, new(int)) }
	if err := s.compareInTurns(ctx, &f, clientRounds, func() (float64, error) {
		return own.workOff(ctx)
	}, base); err != nil {
		return f, err
	}
	f.atLeast(80_000)
	f.Detail = fmt.Sprintf("%d documents of 1 KB in one partition in pages of %d; one instance with one lease, a "+
		"durable checkpoint after each page, from its start to the last batch; %s; baseline: serve_feed's stream of "+
		"these documents, one connection, pages of %d",
		libraryDocs, leaseItems, own.timePerTurn(), feedPageItems)
	return f, nil
}

// dialLease returns a worker for a server whose block cache is full.
func dialLease(ctx context.Context, s *Site, t *wired, from *host) (*worker, error) {
	var page int
	for range feedWarmUp {
		if _, err := t.readFeed(from, &page); err != nil {
			return nil, err
		}
	}
	return dialWorker(ctx, s, from, leaseItems)
}

// timePerTurn returns the processor time of a turn.
func (w *worker) timePerTurn() string {
	return fmt.Sprintf("%.2f s of the client's processor time and %.2f s of the server's", median(w.used),
		median(w.served))
}
