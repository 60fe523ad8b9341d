package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/bench"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// Fleets in virtual time, and their benchmarks.

// The results of the service's own processors for the same tasks, in seconds and in requests, computed from their
// published algorithms with the same intervals and without latency.
const (
	theirRebalance100  = 645
	theirRebalance1000 = 2152
	theirTakeover300   = 60 + 321 // of Java's
	theirTakeover2     = 71       // of Java's, observed with a single survivor
	theirIdleRequests  = 7
)

const (
	twoRounds   = 30 // seconds: two acquire rounds of 13 s, and their jitter
	virtualLook = 250 * time.Millisecond
	handlerWork = 20 * time.Millisecond
	writePause  = 50 * time.Millisecond
	settleTime  = 5 * time.Second
)

// inVirtualTime runs f under a clock that stands still while any goroutine works and jumps when all wait. This clock
// belongs to Go's tests and needs a test; an empty test is enough, as long as that test does not fail.
func inVirtualTime(f func() error) (err error) {
	testing.Init() // tests read flags
	synctest.Test(new(testing.T), func(*testing.T) { err = f() })
	return err
}

// stage is a fleet in virtual time over a store in memory, with its default intervals.
type stage struct {
	*fleet.Fleet
	db        *docstore.DB
	documents *docstore.Container
	options   changefeed.Options
	handler   feed.Handler
}

// onStage calls play with so many leases.
func onStage(outside context.Context, s *bench.Site, leases int,
	play func(ctx context.Context, st *stage) error,
) error {
	return inVirtualTime(func() (err error) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(outside)) // outside is not part of the virtual time
		var watching sync.WaitGroup
		defer watching.Wait()
		defer cancel()
		watching.Go(func() {
			// outside is checked at intervals of virtual time. A goroutine that waited for outside directly would
			// wait for an event outside the bubble, and the clock would stand still meanwhile.
			for pause.For(ctx, virtualLook) == nil {
				if outside.Err() != nil {
					cancel()
				}
			}
		})
		db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
		if err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, db.Close()) }()
		st := &stage{db: db, options: changefeed.Options{MinLeases: leases}}
		spec := docstore.ContainerSpec{ID: "documents", Paths: []string{"/city"}}
		if st.documents, err = db.CreateContainer(ctx, spec); err != nil {
			return err
		}
		records, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
		if err != nil {
			return err
		}
		unit, err := docstore.NewLeases(ctx, records, "bench", st.documents)
		if err != nil {
			return err
		}
		st.Fleet = &fleet.Fleet{Source: st.documents, Leases: unit, Look: virtualLook, Report: s.Complain}
		st.handler = feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
		err = play(ctx, st)
		return errors.Join(err, st.Stop())
	})
}

// enter starts instances until there are n.
func (st *stage) enter(ctx context.Context, n int) error {
	for len(st.Instances()) < n {
		o := st.options
		o.Instance = fmt.Sprintf("host-%d", len(st.Instances())+1)
		if _, err := st.Start(ctx, st.handler, o); err != nil {
			return err
		}
	}
	return nil
}

// gather starts n instances and waits until they share the leases.
func (st *stage) gather(ctx context.Context, n int) error {
	if err := st.enter(ctx, n); err != nil {
		return err
	}
	_, err := st.Balanced(ctx, n)
	return err
}

func rebalance100(ctx context.Context, s *bench.Site) (bench.Figure, error) {
	return rebalance(ctx, s, 100, 1, 2, theirRebalance100)
}

func rebalance1000(ctx context.Context, s *bench.Site) (bench.Figure, error) {
	return rebalance(ctx, s, 1000, 4, 6, theirRebalance1000)
}

// rebalance measures how long new instances wait for their share of the leases, while changes flow.
func rebalance(ctx context.Context, s *bench.Site, leases, before, after int, original float64) (f bench.Figure,
	err error,
) {
	var took time.Duration
	var written, handled, again int
	err = onStage(ctx, s, leases, func(ctx context.Context, st *stage) error {
		ledger := fleet.NewLedger()
		st.options.Start = feed.FromBeginning()
		st.handler = feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if err := pause.For(ctx, handlerWork); err != nil {
				return err
			}
			ledger.Handled(b, time.Now())
			return nil
		})
		if err := st.gather(ctx, before); err != nil {
			return err
		}
		flow := newFlow(ctx, st.documents)
		if err := pause.For(ctx, settleTime); err != nil {
			return err
		}
		if err := st.enter(ctx, after); err != nil {
			return err
		}
		// Changes flow on for a while, so the changes in progress during the moves are seen to arrive.
		if took, err = st.Balanced(ctx, after); err == nil {
			err = pause.For(ctx, settleTime)
		}
		written, err = flow.stop(err)
		if err == nil {
			err = pause.For(ctx, settleTime)
		}
		found := ledger.Judge()
		handled, again = found.Handled, found.Duplicates
		return err
	})
	f.Unit, f.Value = "s", took.Seconds()
	f.Against(original)
	f.AtMost(twoRounds)
	// The position of a lease is stored before the lease is given away, so repetitions are not allowed either.
	f.OK = f.OK && handled == written && again == 0
	f.Detail = fmt.Sprintf("virtual time, default intervals, %d leases from %d to %d instances while %d documents "+
		"were written: %d delivered, %d of them twice; baseline: the service's own processors",
		leases, before, after, written, handled, again)
	return f, err
}

// flow writes a new document at intervals until stop is called.
type flow struct {
	cancel  context.CancelFunc
	writing sync.WaitGroup
	written int
	err     error
}

func newFlow(ctx context.Context, c *docstore.Container) *flow {
	f := &flow{}
	ctx, f.cancel = context.WithCancel(ctx)
	f.writing.Go(func() {
		for pause.For(ctx, writePause) == nil && f.err == nil {
			body := fmt.Appendf(nil, `{"id":"doc-%d","city":"city-%d"}`, f.written, f.written)
			if _, f.err = c.Create(context.WithoutCancel(ctx), body); f.err == nil {
				f.written++
			}
		}
	})
	return f
}

// stop ends the flow, and returns how many documents were written. If a step failed, stop returns the error.
func (f *flow) stop(failed error) (written int, err error) {
	f.cancel()
	f.writing.Wait()
	return f.written, errors.Join(failed, f.err)
}

func takeover300(ctx context.Context, s *bench.Site) (bench.Figure, error) {
	return takeover(ctx, s, 4, theirTakeover300, "the processor for Java, expiration + 321 s")
}

func takeover2(ctx context.Context, s *bench.Site) (bench.Figure, error) {
	return takeover(ctx, s, 2, theirTakeover2, "the processor for Java with one lease")
}

// takeover measures the time from the last sign of life of an instance until other instances have all its leases.
func takeover(ctx context.Context, s *bench.Site, hosts int, original float64, baseline string) (f bench.Figure,
	err error,
) {
	const leases, expiration, soon = 300, 60 * time.Second, 3 * time.Second
	var took time.Duration
	err = onStage(ctx, s, leases, func(ctx context.Context, st *stage) error {
		if err := st.gather(ctx, hosts); err != nil {
			return err
		}
		if err := pause.For(ctx, time.Minute); err != nil {
			return err
		}
		// By now each lease has been renewed in its owner's rhythm, as in an older unit.
		dead := st.Instances()[hosts-1]
		dead.Kill()
		last, err := st.lastWrite(ctx, dead.Name())
		if err != nil {
			return err
		}
		_, err = st.Balanced(ctx, hosts-1)
		took = time.Since(last)
		return err
	})
	f.Unit, f.Value = "s", took.Seconds()
	f.Against(original)
	f.AtMost((expiration + soon).Seconds())
	f.Detail = fmt.Sprintf("virtual time, default intervals, %d leases of %d instances; all leases of the dead one "+
		"are owned %v after its last renewal, its expiration of %v included; baseline: %s",
		leases, hosts, took.Round(100*time.Millisecond), expiration, baseline)
	return f, err
}

// lastWrite returns when an owner last renewed a lease.
func (st *stage) lastWrite(ctx context.Context, owner string) (last time.Time, err error) {
	records, _, err := st.Leases.List(ctx)
	for _, record := range records {
		if record.Kind == feed.KindLease && record.Owner == owner && record.Updated.After(last) {
			last = record.Updated
		}
	}
	return last, err
}

// idleRequests counts the requests of leases without work.
func idleRequests(ctx context.Context, s *bench.Site) (f bench.Figure, err error) {
	const leases, instances, minutes = 100, 3, 60
	var sum float64
	err = onStage(ctx, s, leases, func(ctx context.Context, st *stage) error {
		if err := st.gather(ctx, instances); err != nil {
			return err
		}
		if err := pause.For(ctx, time.Minute); err != nil {
			return err
		}
		all, writes, lists := st.Sent.All(), st.Sent.Writes.Load(), st.Sent.Lists.Load()
		err := pause.For(ctx, minutes*time.Minute)
		all, writes, lists = st.Sent.All()-all, st.Sent.Writes.Load()-writes, st.Sent.Lists.Load()-lists
		sum = float64(all)
		f.Detail = fmt.Sprintf("virtual time, default intervals, %d leases of %d instances, an hour: %d writes, %d "+
			"lists, %d reads of the lease container's feed; baseline: the service's own processors",
			leases, instances, writes, lists, all-writes-lists)
		return err
	})
	f.Unit, f.Value = "requests/lease/min", sum/leases/minutes
	f.Against(theirIdleRequests)
	f.AtMost(4)
	return f, err
}
