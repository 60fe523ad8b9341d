package changefeed_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

var progressSeeds = flag.Int("progress-seeds", 30, "how many seeds of TestProgressEqualsItsModel to run")

// Whatever handlers, sources and stores do, a lease says how far its changes are done, no
// more, and no less than the options want.
func TestProgressEqualsItsModel(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	for seed := range *progressSeeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				model := playProgress(t, uint64(seed))
				mu.Lock()
				defer mu.Unlock()
				for what, times := range model {
					seen[what] += times
				}
			})
		})
	}
	t.Cleanup(func() {
		for what, seeds := range progressSights {
			if seen[what] == 0 && *progressSeeds >= seeds {
				t.Errorf("no %s in %d scripts", what, *progressSeeds)
			}
		}
	})
}

// progressOptions are the options of a seed: each way of making checkpoints has its turn.
func progressOptions(rng *rand.Rand, seed uint64) changefeed.Options {
	o := changefeed.Options{
		Start: feed.FromBeginning(), MaxItems: 1 + rng.IntN(12), RetryMax: 2 * time.Second,
		HandlerTimeout: 20 * time.Second, Drain: 5 * time.Second, Poll: 5 * time.Second,
	}
	switch seed % 6 {
	case 0, 2, 4:
		o.Manual = true
	case 3:
		o.CheckpointItems = 1 + rng.IntN(12)
	case 5:
		o.CheckpointEvery = time.Duration(1+rng.IntN(40)) * time.Second
		o.CheckpointItems = rng.IntN(2) * rng.IntN(20)
	}
	return o
}

// progressSights are what so many scripts must bring about, or they show little.
var progressSights = map[string]int{
	"attempts inherited": 30, "positions within a page": 30, "divisions": 30, "failures after a checkpoint": 30,
	"checkpoints refused": 30, "checkpoints without an answer": 30, "rare checkpoints": 30,
	"attempts reset by an empty page": 300, "batches cut again": 300,
}

// playProgress plays a seed, and returns what it has seen.
func playProgress(t *testing.T, seed uint64) map[string]int {
	rng := rand.New(rand.NewPCG(seed, 0))
	o := progressOptions(rng, seed)
	s := &scripted{
		o: o, model: newProgress(o), rng: rand.New(rand.NewPCG(seed, 1)), bounds: []string{""},
		leases: map[string]feed.Record{},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	begin := func(n int) (end func(kill bool)) {
		c := &client{scripted: s, name: fmt.Sprintf("p%d", n)}
		own, cancel := context.WithCancel(ctx)
		running.Go(func() { c.run(t, own) })
		return func(kill bool) {
			s.mu.Lock()
			c.dead = kill
			s.mu.Unlock()
			cancel()
		}
	}
	end, writing := begin(0), time.Now().Add(8*time.Minute)
	for n := 1; time.Now().Before(writing); n++ {
		time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
		for range 1 + rng.IntN(5)*rng.IntN(2) {
			s.write()
		}
		switch rng.IntN(80) {
		case 0:
			end(rng.IntN(2) == 0)
			if rng.IntN(2) == 0 {
				s.splitFailing()
			}
			end = begin(n)
		case 1:
			s.split(rng.IntN(places))
		}
	}
	s.settle()
	stop()
	running.Wait()
	s.check(t)
	return s.model.seen
}

// run is one process.
func (c *client) run(t *testing.T, ctx context.Context) {
	o := c.o
	o.Instance = c.name
	o.Hooks.Acquired = func(_ context.Context, l feed.Lease) { c.model.acquired(c, l) }
	o.Hooks.Released = func(_ context.Context, l feed.Lease, _ feed.Reason) { c.model.released(c, l) }
	o.Hooks.StoreDone = func(_ context.Context, d feed.StoreDone) { c.model.written(c, d) }
	o.Hooks.Error = func(context.Context, *feed.Error) {} // there are many
	p, err := changefeed.New(c, c, c, o)
	if err == nil {
		err = p.Run(ctx)
	}
	if err != nil {
		t.Errorf("%s: %v", c.name, err)
	}
}

// settle ends all faults, and writes one change more to each partition: with checkpoints
// by hand, a batch may have been left for a later one to cover.
func (s *scripted) settle() {
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	time.Sleep(3 * time.Minute)
	s.mu.Lock()
	for _, bound := range s.bounds {
		s.feed = append(s.feed, entry{s.feed[len(s.feed)-1].lsn + 1, bound + "0"})
	}
	s.mu.Unlock()
	time.Sleep(time.Minute)
}

// check looks at what must hold at the end.
func (s *scripted) check(t *testing.T) {
	for _, b := range s.model.broken {
		t.Error(b)
	}
	for _, e := range s.feed {
		if !s.model.done[e] {
			t.Errorf("change %d at %s was never done", e.lsn, e.place)
		}
		for _, l := range s.leases {
			if l.Kind == feed.KindLease && l.Range.Holds(e.place) && (positionOf(l.Position.Token) < e.lsn ||
				l.Attempts > 0) {
				t.Errorf("in the end %s is stored at %+v, before change %d", l.Token, statusOf(l.Lease()), e.lsn)
			}
		}
	}
	if len(s.feed) < 100 || s.writes < 50 {
		t.Errorf("only %d changes and %d writes: the script has run dry", len(s.feed), s.writes)
	}
}
