package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// Reading: the feed of the embedded store, a processor over this feed, and the time from a write to its handler.

const (
	// Bodies of 200 MB, twice the size of the store's block cache.
	libraryDocs   = 200_000
	libraryRanges = 4
	readRounds    = 9
	steadyRate    = 200 // writes a second
	steadySlice   = 4 * time.Second
	steadyRounds  = 3
)

// library is a store with a long feed, and the same bytes in the bare engine.
type library struct {
	db        *docstore.DB
	documents *docstore.Container
	records   *docstore.Container // the leases
	bare      *bareEngine
	units     int
}

// filledLibrary returns the site's library. The first call fills the library, then closes and opens the store once, so
// all data is in tables, like an older feed, and not in memory.
func (s *Site) filledLibrary(ctx context.Context) (*library, error) {
	if s.library != nil {
		return s.library, nil
	}
	s.reportProgress("filling a store with %d documents", libraryDocs)
	// The site gets the library before the filling, so after an error the site closes it.
	l := &library{}
	s.library = l
	dir := filepath.Join(s.dir, "library")
	if err := l.open(dir, filepath.Join(s.dir, "bare")); err != nil {
		return nil, err
	}
	var err error
	if l.documents, err = l.db.CreateContainer(ctx, docstore.ContainerSpec{
		ID: "documents", Paths: []string{"/city"}, Ranges: libraryRanges,
	}); err != nil {
		return nil, err
	}
	if _, err = l.db.CreateContainer(ctx, docstore.LeaseSpec("leases")); err != nil {
		return nil, err
	}
	if err := fillWith(ctx, l.documents, libraryDocs); err != nil {
		return nil, err
	}
	// The bare engine gets its changes from the feed, so both contain the same bytes in the same order.
	if _, err := l.readFeed(ctx, func(p feed.Page) error { return l.bare.storeChanges(p.Changes) }); err != nil {
		return nil, err
	}
	if err := l.closeBoth(); err != nil { // to move the rest in memory into tables
		return nil, err
	}
	return l, l.open(dir, filepath.Join(s.dir, "bare"))
}

// open opens the store and the bare engine.
func (l *library) open(store, bare string) (err error) {
	if l.db, err = docstore.Open(store, docstore.Options{}); err != nil {
		return err
	}
	for _, c := range l.db.Containers() {
		switch c.ID() {
		case "documents":
			l.documents = c
		case "leases":
			l.records = c
		}
	}
	l.bare, err = openBareEngine(bare)
	return err
}

// closeBoth closes both.
func (l *library) closeBoth() error { return errors.Join(l.db.Close(), l.bare.close()) }

func (l *library) close() {
	if l.db != nil && l.bare != nil {
		_ = l.closeBoth() // the directory is removed next
	}
}

// readFeed reads the feed from the beginning, range by range, and checks that no document is missing.
func (l *library) readFeed(ctx context.Context, each func(feed.Page) error) (perSecond float64, err error) {
	partitions, err := l.documents.Partitions(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	begun := time.Now()
	for _, partition := range partitions {
		at := feed.Position{Start: feed.FromBeginning()}
		for {
			page, err := l.documents.Read(ctx, partition.Range, at, feed.ReadOptions{})
			if err != nil {
				return 0, err
			}
			if len(page.Changes) == 0 {
				break
			}
			n, at = n+len(page.Changes), page.Next
			if err := each(page); err != nil {
				return 0, err
			}
		}
	}
	if n != libraryDocs {
		return 0, fmt.Errorf("the feed gave %d documents, want %d", n, libraryDocs)
	}
	return float64(n) / time.Since(begun).Seconds(), nil
}

// feedRead compares Source.Read with a scan of the bare engine, which is the upper limit of any layout.
func feedRead(ctx context.Context, s *Site) (f Figure, err error) {
	read := func(l *library) (float64, error) { return l.readOnly(ctx) }
	if err := s.compareReads(ctx, &f, read, (*library).scanEngine); err != nil {
		return f, err
	}
	f.ratioOf(0.6)
	f.Detail = fmt.Sprintf("%d documents of 1 KB in %d ranges, read by one goroutine with Source.Read; baseline: a "+
		"scan of the bare engine with the same settings over the same bytes, copied into one buffer",
		libraryDocs, libraryRanges)
	return f, nil
}

// compareReads measures two ways to read the site's library in turns.
func (s *Site) compareReads(ctx context.Context, f *Figure, subject, baseline func(*library) (float64, error)) error {
	l, err := s.filledLibrary(ctx)
	if err != nil {
		return err
	}
	f.Unit = "documents/s"
	value, compared, err := s.inTurns(ctx, readRounds, f.Unit,
		func() (float64, error) { return subject(l) },
		func() (float64, error) { return baseline(l) })
	if err != nil {
		return err
	}
	f.Value = value
	f.Against(compared)
	return nil
}

// readOnly only reads the feed. readOnly first collects the garbage of the previous round.
func (l *library) readOnly(ctx context.Context) (perSecond float64, err error) {
	runtime.GC()
	return l.readFeed(ctx, func(feed.Page) error { return nil })
}

// scanEngine reads the same bytes from the bare engine.
func (l *library) scanEngine() (perSecond float64, err error) {
	runtime.GC()
	begun := time.Now()
	n, err := l.bare.scanAll()
	if err == nil && n != libraryDocs {
		err = fmt.Errorf("the bare engine gave %d documents, want %d", n, libraryDocs)
	}
	return float64(n) / time.Since(begun).Seconds(), err
}

// processorBacklog compares a processor with only reading the feed.
func processorBacklog(ctx context.Context, s *Site) (f Figure, err error) {
	workOff := func(l *library) (float64, error) {
		runtime.GC()
		return l.workOff(ctx, s)
	}
	read := func(l *library) (float64, error) { return l.readOnly(ctx) }
	if err := s.compareReads(ctx, &f, workOff, read); err != nil {
		return f, err
	}
	f.ratioOf(0.5)
	f.Detail = fmt.Sprintf("%d documents of 1 KB, one instance with %d leases, a checkpoint after each batch, from "+
		"the start of the processor to the last batch; baseline: feed_read, in turns",
		libraryDocs, libraryRanges)
	return f, nil
}

// workOff runs a processor of a new unit over the whole feed.
func (l *library) workOff(ctx context.Context, s *Site) (perSecond float64, err error) {
	l.units++
	leases, err := docstore.NewLeases(ctx, l.records, fmt.Sprint("unit-", l.units), l.documents)
	if err != nil {
		return 0, err
	}
	spent, err := s.workOff(ctx, l.documents, leases, libraryDocs, 0)
	return libraryDocs / spent.Seconds(), err
}

// workOff runs an instance of a new unit over a feed from the beginning, until its handler, which only counts, has
// received all n changes. workOff returns the duration, including the start of the instance.
func (s *Site) workOff(ctx context.Context, from feed.Source, leases fleet.Leases, n int64,
	pageItems int,
) (spent time.Duration, err error) {
	var handled atomic.Int64
	all := make(chan struct{})
	handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		if handled.Add(int64(len(b.Changes))) == n {
			close(all)
		}
		return nil
	})
	team := &fleet.Fleet{Source: from, Leases: leases, Report: s.Complain}
	begun := time.Now()
	i, err := team.Start(ctx, handler, changefeed.Options{
		Instance: "bench", Start: feed.FromBeginning(),
		MaxItems: pageItems,
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-all:
	case <-i.Ended():
	case <-ctx.Done():
	}
	// The clock stops before the fleet stops, because releasing the leases does not count.
	spent = time.Since(begun)
	err = team.Stop()
	if err == nil {
		err = context.Cause(ctx)
	}
	return spent, err
}

// writeToHandler measures the time from an acknowledged write to its handler.
func writeToHandler(ctx context.Context, s *Site) (f Figure, err error) {
	nothing := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
	medians, tails, err := s.measurePulse(ctx, "latency", nothing)
	if err != nil {
		return f, err
	}
	f.Unit, f.Value = "ms", median(tails)
	f.AtMost(5)
	f.Detail = fmt.Sprintf("99 of 100 changes are with the handler so soon after the write was acknowledged, half of "+
		"them within %.2f ms; %d writes/s of 1 KB, fsync, 4 leases",
		median(medians), steadyRate)
	return f, nil
}

// measurePulse returns the time from an acknowledged write to the end of a handler, in milliseconds: the median and the
// 99th percentile of each round.
func (s *Site) measurePulse(ctx context.Context, name string, handler feed.Handler) (
	medians, tails []float64, err error,
) {
	db, err := docstore.Open(filepath.Join(s.dir, name), docstore.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	p := &pulse{handler: handler, complain: s.Complain}
	stop, err := p.startListener(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = cmp.Or(err, stop()) }()
	for n := range steadyRounds {
		found, err := p.writeAndWait(ctx)
		if err != nil {
			return nil, nil, err
		}
		medians, tails = append(medians, found.P50), append(tails, found.P99)
		s.reportProgress("round %d of %d: p50 %.2f ms, p99 %.2f ms of %d writes", n+1, steadyRounds, medians[n],
			tails[n], found.Written())
	}
	return medians, tails, nil
}

// pulse writes at a steady rate, and keeps the ledger of a round.
type pulse struct {
	documents *docstore.Container
	handler   feed.Handler // called before a change counts as handled
	complain  func(string, error)
	round     atomic.Pointer[fleet.Ledger]
	count     int
}

// startListener starts a processor that records the arrival times of changes.
func (p *pulse) startListener(ctx context.Context, db *docstore.DB) (stop func() error, err error) {
	spec := docstore.ContainerSpec{ID: "documents", Paths: []string{"/city"}, Ranges: libraryRanges}
	if p.documents, err = db.CreateContainer(ctx, spec); err != nil {
		return nil, err
	}
	records, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	if err != nil {
		return nil, err
	}
	leases, err := docstore.NewLeases(ctx, records, "bench", p.documents)
	if err != nil {
		return nil, err
	}
	team := &fleet.Fleet{Source: p.documents, Leases: leases, Look: time.Millisecond, Report: p.complain}
	_, err = team.Start(ctx, feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
		err := p.handler.Handle(ctx, b)
		if err == nil {
			p.round.Load().Handled(b, time.Now())
		}
		return err
	}), changefeed.Options{Instance: "bench"})
	if err == nil {
		_, err = team.Balanced(ctx, 1)
	}
	return team.Stop, err
}

// writeAndWait writes for a while, waits until everything has arrived, and returns the ledger's judgement.
func (p *pulse) writeAndWait(ctx context.Context) (found fleet.Judgement, err error) {
	ledger := fleet.NewLedger()
	p.round.Store(ledger)
	tick := time.NewTicker(time.Second / steadyRate)
	defer tick.Stop()
	end := time.Now().Add(steadySlice)
	for time.Now().Before(end) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return found, context.Cause(ctx)
		}
		p.count++
		// Each document has its own city, so no change waits for another of its key.
		n := p.count * docsPerCity
		key, body := docOf(n)
		results, err := p.documents.Commit(ctx, key, []feed.Write{{Body: body}})
		if err != nil {
			return found, err
		}
		ledger.Wrote(key, []string{docID(n)}, results)
	}
	for ledger.Open() > 0 {
		if err := pause.For(ctx, time.Millisecond); err != nil {
			return found, err
		}
	}
	return ledger.Judge(), nil
}
