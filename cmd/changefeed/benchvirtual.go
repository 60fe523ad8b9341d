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
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/pause"
)

// What the service's own processors need for the same, in seconds and in requests, by
// their published algorithms with the same intervals and without latency.
const (
	theirRebalance100  = 645
	theirRebalance1000 = 2152
	theirTakeover300   = 60 + 321 // of the one for Java
	theirTakeover2     = 71       // of the one for Java, seen with one survivor
	theirIdleRequests  = 7
)

const (
	twoRounds   = 30 // seconds: two acquire rounds of 13 s, and their jitter
	virtualLook = 250 * time.Millisecond
	handlerWork = 20 * time.Millisecond
	writePause  = 50 * time.Millisecond
	settleTime  = 5 * time.Second
)

// inVirtualTime runs f under a clock that stands still while somebody works and jumps
// when all wait. The clock is the one of Go's tests, which want a test: an empty one
// is enough, as long as nobody fails it.
func inVirtualTime(f func() error) (err error) {
	testing.Init() // tests read flags
	synctest.Test(new(testing.T), func(*testing.T) { err = f() })
	return err
}

// stage is a fleet in virtual time over a store in memory, with its default intervals.
type stage struct {
	*fleet
	db        *docstore.DB
	documents *docstore.Container
	options   changefeed.Options
	handler   changefeed.Handler
}

// onStage runs a play with so many leases.
func (s *site) onStage(outside context.Context, leases int, play func(ctx context.Context, st *stage) error) error {
	return inVirtualTime(func() (err error) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(outside)) // a signal is of another time
		var watching sync.WaitGroup
		defer watching.Wait()
		defer cancel()
		watching.Go(func() {
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
		records, err := db.CreateContainer(ctx, leaseSpec())
		if err != nil {
			return err
		}
		unit, err := docstore.NewLeases(ctx, records, "bench", st.documents)
		if err != nil {
			return err
		}
		st.fleet = &fleet{source: st.documents, leases: unit, look: virtualLook, report: s.complain}
		st.handler = changefeed.HandlerFunc(func(context.Context, *changefeed.Batch) error { return nil })
		err = play(ctx, st)
		return errors.Join(err, st.stop())
	})
}

// enter starts instances until there are n.
func (st *stage) enter(ctx context.Context, n int) error {
	for len(st.instances()) < n {
		o := st.options
		o.Instance = fmt.Sprintf("host-%d", len(st.instances())+1)
		if _, err := st.start(ctx, st.handler, o); err != nil {
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
	_, err := st.balanced(ctx, n)
	return err
}

func rebalance100(ctx context.Context, s *site) (figure, error) {
	return rebalance(ctx, s, 100, 1, 2, theirRebalance100)
}

func rebalance1000(ctx context.Context, s *site) (figure, error) {
	return rebalance(ctx, s, 1000, 4, 6, theirRebalance1000)
}

// rebalance measures how long newcomers wait for their share, while changes flow.
func rebalance(ctx context.Context, s *site, leases, before, after int, original float64) (f figure, err error) {
	var took time.Duration
	var written, handled, again int
	err = s.onStage(ctx, leases, func(ctx context.Context, st *stage) error {
		seen := &sightings{}
		st.handler, st.options.Start = seen, changefeed.FromBeginning()
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
		if took, err = st.balanced(ctx, after); err == nil {
			err = pause.For(ctx, settleTime)
		}
		written, err = flow.stop(err)
		if err == nil {
			err = pause.For(ctx, settleTime)
		}
		handled, again = seen.count()
		return err
	})
	f.Unit, f.Value = "s", took.Seconds()
	f.against(original)
	f.atMost(twoRounds)
	f.OK = f.OK && handled == written && again == 0
	f.Detail = fmt.Sprintf("virtual time, default intervals, %d leases from %d to %d instances while %d documents were written: %d delivered, %d of them twice; baseline: the service's own processors",
		leases, before, after, written, handled, again)
	return f, err
}

// sightings is a handler that takes its time and remembers every document.
type sightings struct {
	mu   sync.Mutex
	seen map[string]int
}

// Handle implements [changefeed.Handler].
func (s *sightings) Handle(ctx context.Context, b *changefeed.Batch) error {
	if err := pause.For(ctx, handlerWork); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	for _, c := range b.Changes {
		s.seen[c.ID]++
	}
	return nil
}

func (s *sightings) count() (documents, again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.seen {
		documents, again = documents+1, again+n-1
	}
	return documents, again
}

// flow writes a new document every now and then until it is stopped.
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

// stop ends the flow, and tells how many it has written, unless something failed.
func (f *flow) stop(failed error) (written int, err error) {
	f.cancel()
	f.writing.Wait()
	return f.written, errors.Join(failed, f.err)
}

func takeover300(ctx context.Context, s *site) (figure, error) {
	return takeover(ctx, s, 4, theirTakeover300, "the processor for Java, expiration + 321 s")
}

func takeover2(ctx context.Context, s *site) (figure, error) {
	return takeover(ctx, s, 2, theirTakeover2, "the processor for Java with one lease")
}

// takeover measures from the last sign of life of an instance until others have all its
// leases.
func takeover(ctx context.Context, s *site, hosts int, original float64, baseline string) (f figure, err error) {
	const leases, expiration, soon = 300, 60 * time.Second, 3 * time.Second
	var took time.Duration
	err = s.onStage(ctx, leases, func(ctx context.Context, st *stage) error {
		if err := st.gather(ctx, hosts); err != nil {
			return err
		}
		if err := pause.For(ctx, time.Minute); err != nil {
			return err
		}
		dead := st.instances()[hosts-1]
		dead.kill()
		last, err := st.lastWrite(ctx, dead.name)
		if err != nil {
			return err
		}
		_, err = st.balanced(ctx, hosts-1)
		took = time.Since(last)
		return err
	})
	f.Unit, f.Value = "s", took.Seconds()
	f.against(original)
	f.atMost((expiration + soon).Seconds())
	f.Detail = fmt.Sprintf("virtual time, default intervals, %d leases of %d instances; all leases of the dead one are owned %v after its last renewal, its expiration of %v included; baseline: %s",
		leases, hosts, took.Round(100*time.Millisecond), expiration, baseline)
	return f, err
}

// lastWrite is when an owner last renewed a lease.
func (st *stage) lastWrite(ctx context.Context, owner string) (last time.Time, err error) {
	records, _, err := st.leases.List(ctx)
	for _, l := range records {
		if l.Kind == changefeed.KindLease && l.Owner == owner && l.Updated.After(last) {
			last = l.Updated
		}
	}
	return last, err
}

// idleRequests counts what leases cost that have nothing to do.
func idleRequests(ctx context.Context, s *site) (f figure, err error) {
	const leases, instances, minutes = 100, 3, 60
	var sum float64
	err = s.onStage(ctx, leases, func(ctx context.Context, st *stage) error {
		if err := st.gather(ctx, instances); err != nil {
			return err
		}
		if err := pause.For(ctx, time.Minute); err != nil {
			return err
		}
		all, writes, lists := st.sent.all(), st.sent.writes.Load(), st.sent.lists.Load()
		err := pause.For(ctx, minutes*time.Minute)
		all, writes, lists = st.sent.all()-all, st.sent.writes.Load()-writes, st.sent.lists.Load()-lists
		sum = float64(all)
		f.Detail = fmt.Sprintf("virtual time, default intervals, %d leases of %d instances, an hour: %d writes, %d lists, %d reads of the lease container's feed; baseline: the service's own processors",
			leases, instances, writes, lists, all-writes-lists)
		return err
	})
	f.Unit, f.Value = "requests/lease/min", sum/leases/minutes
	f.against(theirIdleRequests)
	f.atMost(4)
	return f, err
}
