package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// Handling: handlers that wait, and the cost of being prepared for a handler that fails. All these benchmarks have a
// single lease, because they measure properties of a lease. stuck.go contains a handler that hangs, and calls.go a
// handler whose cost is that of a call.

const (
	handleRounds = 5

	parallelKeys  = 1000
	parallelDocs  = 10_000
	parallelTime  = 10 * time.Millisecond // time of a handler for a change
	parallel      = 64
	parallelRatio = 50
	// Each change takes 10 ms, in turn. Few changes give the same rate as all of them, which would take minutes.
	sequentialDocs = 300

	happyDocs   = 200_000
	happyKeys   = 1000
	happyAt     = 8
	happyLoss   = 0.05
	happyRounds = 15
	maxAttempts = 5
)

// aisle is a store with a feed of a single partition.
type aisle struct {
	s         *Site
	dir       string
	options   docstore.Options
	db        *docstore.DB
	documents *docstore.Container
	records   *docstore.Container // the leases
	units     int
}

// openAisle creates an aisle in a separate directory.
func (s *Site) openAisle(ctx context.Context, name string, o docstore.Options) (*aisle, error) {
	dir := filepath.Join(s.dir, name)
	db, err := docstore.Open(dir, o)
	if err != nil {
		return nil, err
	}
	a := &aisle{s: s, dir: dir, options: o, db: db}
	if a.documents, err = db.CreateContainer(ctx, docstore.ContainerSpec{
		ID:    "documents",
		Paths: []string{"/city"},
	}); err == nil {
		a.records, err = db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return a, nil
}

// fillFast calls fill while the store acknowledges documents before they are on the disk. After that, the store waits
// for the disk again.
func (a *aisle) fillFast(fill func() error) (err error) {
	hasty := a.options
	hasty.NoSync = true
	if err := a.reopen(hasty); err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	return a.reopen(a.options)
}

// reopen opens the store with other options.
func (a *aisle) reopen(o docstore.Options) (err error) {
	if err = a.db.Close(); err != nil {
		return err
	}
	if a.db, err = docstore.Open(a.dir, o); err != nil {
		return err
	}
	if a.documents, err = a.db.Container("documents"); err == nil {
		a.records, err = a.db.Container("leases")
	}
	return err
}

// writeDocuments writes n documents, each in a separate write, so no document comes together with others of its key.
// The keys take turns.
func (a *aisle) writeDocuments(ctx context.Context, n, keys, bytes int) error {
	var next atomic.Int64
	return together(ctx, writers, func(ctx context.Context) error {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := a.writeDocument(ctx, "key-"+strconv.Itoa(i%keys), i, bytes); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeDocument writes document n of a key.
func (a *aisle) writeDocument(ctx context.Context, key string, n, bytes int) error {
	head := fmt.Sprintf(`{"id":%q,"city":%q,"text":"`, docID(n), key)
	body := head + prose()[:bytes-len(head)-2] + `"}`
	_, err := a.documents.Commit(ctx, feed.Key(key), []feed.Write{{Body: []byte(body)}})
	return err
}

// runUnit runs a new unit from the beginning of the feed until over is closed, and returns the status of its only
// instance at that time.
func (a *aisle) runUnit(ctx context.Context, handler feed.HandlerFunc, o changefeed.Options,
	over <-chan struct{},
) (said changefeed.Status, err error) {
	return a.workFrom(ctx, a.documents, handler, o, over)
}

// workFrom is work with another source of the documents.
func (a *aisle) workFrom(ctx context.Context, from feed.Source, handler feed.HandlerFunc, o changefeed.Options,
	over <-chan struct{},
) (said changefeed.Status, err error) {
	a.units++
	leases, err := docstore.NewLeases(ctx, a.records, fmt.Sprint("unit-", a.units), a.documents)
	if err != nil {
		return said, err
	}
	// The drain is short, because a handler that hangs would delay the end of each round.
	o.Instance, o.Start, o.Drain = "bench", feed.FromBeginning(), 100*time.Millisecond
	o.Hooks.Error = func(_ context.Context, err *feed.Error) { a.s.Complain(o.Instance, err) }
	p, err := changefeed.New(from, leases, handler, o)
	if err != nil {
		return said, err
	}
	// The status is read while the instance still runs, because afterwards the instance has no leases.
	err = untilClosed(ctx, p, over, func() {
		if all := p.Status(); len(all) == 1 {
			said = all[0]
		}
	})
	return said, err
}

// untilClosed runs a processor until over is closed. untilClosed calls last before stopping the processor.
func untilClosed(ctx context.Context, p *changefeed.Processor, over <-chan struct{}, last func()) error {
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { ended <- p.Run(working) })
	defer running.Wait()
	defer stop()
	select {
	case <-over:
	case <-ctx.Done():
	case err := <-ended:
		return fmt.Errorf("the processor has ended: %w", err)
	}
	last()
	stop()
	return errors.Join(<-ended, context.Cause(ctx))
}

// counter counts handled changes, and measures the time of the first n changes, possibly without the very first.
type counter struct {
	n, first int64
	started  sync.Once
	begun    time.Time
	handled  atomic.Int64
	calls    atomic.Int64 // number of calls of handlers that count
	spent    time.Duration
	over     chan struct{}
}

func newCounter(n int64) *counter { return &counter{n: n, over: make(chan struct{})} }

func (c *counter) begin() {
	if c.handled.Load() >= c.first {
		c.started.Do(func() { c.begun = time.Now() })
	}
}

func (c *counter) add(changes int) {
	// This is true only for the call that crosses n, so the channel is closed once. Further batches may still come.
	if now := c.handled.Add(int64(changes)); now >= c.n && now-int64(changes) < c.n {
		c.spent = time.Since(c.begun)
		close(c.over)
	}
}

func (c *counter) perSecond() float64 { return float64(c.n-c.first) / c.spent.Seconds() }

// waitForEach is a handler that takes the time each for each change.
func (c *counter) waitForEach(ctx context.Context, b *feed.Batch, each time.Duration) error {
	c.begin()
	for range b.Changes {
		if err := pause.For(ctx, each); err != nil {
			return err
		}
		c.add(1)
	}
	return nil
}

// concurrency compares handling keys in parallel with handling changes in sequence.
func concurrency(ctx context.Context, s *Site) (f Figure, err error) {
	a, err := s.openAisle(ctx, "concurrency", docstore.Options{})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, a.db.Close()) }()
	if err := a.writeDocuments(ctx, parallelDocs, parallelKeys, docBytes); err != nil {
		return f, err
	}
	rate := func(at int, n int64) (float64, error) {
		c := newCounter(n)
		handler := func(ctx context.Context, b *feed.Batch) error { return c.waitForEach(ctx, b, parallelTime) }
		_, err := a.runUnit(ctx, handler, changefeed.Options{Concurrency: at}, c.over)
		return c.perSecond(), err
	}
	f.Unit = "changes/s"
	value, sequential, err := s.inTurns(ctx, handleRounds, f.Unit,
		func() (float64, error) { return rate(parallel, parallelDocs) },
		func() (float64, error) { return rate(1, sequentialDocs) })
	if err != nil {
		return f, err
	}
	f.Value = value
	f.Against(sequential)
	f.ratioOf(parallelRatio)
	f.Detail = fmt.Sprintf("%d changes of %d keys, one lease, a handler that takes %v for a change, Concurrency %d; "+
		"baseline: Concurrency 1; the most that is possible is a ratio of %d",
		parallelDocs, parallelKeys, parallelTime, parallel, parallel)
	return f, nil
}

// poisonOverhead measures the cost of being prepared for failing changes, while no change fails. poisonOverhead
// compares processor time, and takes the lowest of each, because the difference is smaller than the noise on a
// machine, and noise only adds.
func poisonOverhead(ctx context.Context, s *Site) (f Figure, err error) {
	a, err := s.openAisle(ctx, "poison", docstore.Options{})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, a.db.Close()) }()
	if err := a.writeDocuments(ctx, happyDocs, happyKeys, docBytes); err != nil {
		return f, err
	}
	letters, err := a.db.CreateContainer(ctx, docstore.ContainerSpec{
		ID:    "letters",
		Paths: []string{deadletters.KeyPath},
	})
	if err != nil {
		return f, err
	}
	box, err := deadletters.Container(letters, "bench", letters)
	if err != nil {
		return f, err
	}
	f.Unit = "µs of processor time"
	var details strings.Builder
	for _, at := range []int{1, happyAt} {
		ready, plain, err := s.measureInTurns(ctx, happyRounds, f.Unit,
			func() (float64, error) {
				return a.runWithoutFailure(ctx, changefeed.Options{
					Concurrency: at,
					OnFailure:   changefeed.FailurePolicy{MaxAttempts: maxAttempts, DeadLetters: box},
				})
			},
			func() (float64, error) { return a.runWithoutFailure(ctx, changefeed.Options{Concurrency: at}) })
		if err != nil {
			return f, err
		}
		least, baseline := slices.Min(ready), slices.Min(plain)
		details.WriteString(fmt.Sprintf("; Concurrency %d: %+.1f%%", at, 100*(least/baseline-1)))
		if f.Ratio == nil || least/baseline > *f.Ratio {
			f.Value = least
			f.Against(baseline)
		}
	}
	f.Target, f.OK = fmt.Sprintf("ratio ≤ %g", 1+happyLoss), *f.Ratio <= 1+happyLoss
	f.Detail = fmt.Sprintf("a change, of %d that a handler only counts, one lease, with MaxAttempts and DeadLetters "+
		"in a container; baseline: without both; the figure is that of the worse concurrency%s",
		happyDocs, details.String())
	return f, nil
}

// runWithoutFailure handles the whole feed and returns the processor time per change.
func (a *aisle) runWithoutFailure(ctx context.Context, o changefeed.Options) (microseconds float64, err error) {
	// The garbage of the previous turn belongs to the other subject, and would otherwise be collected at this
	// subject's cost.
	runtime.GC()
	c := newCounter(happyDocs)
	handler := func(_ context.Context, b *feed.Batch) error {
		c.begin()
		c.add(len(b.Changes))
		return nil
	}
	used := busy()
	_, err = a.runUnit(ctx, handler, o, c.over)
	return float64((busy() - used).Microseconds()) / happyDocs, err
}
