package changefeed_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// healthOptions are options with which one problem shows at a time.
func healthOptions() changefeed.Options {
	return changefeed.Options{Start: feed.FromBeginning(), HandlerTimeout: time.Minute, Drain: 5 * time.Second}
}

// A processor is healthy while it works, and not before it runs or while it ends.
func TestAProcessorIsHealthyWhileItWorks(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		release := make(chan struct{})
		var slow atomic.Bool
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			if slow.Load() {
				<-release
			}
			return nil
		})
		p, err := changefeed.New(w.orders, w.leases, h, healthOptions())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Healthy(); !errors.Is(err, changefeed.ErrNotRunning) {
			t.Errorf("before Run: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		for range 20 {
			w.fill(5)
			time.Sleep(30 * time.Second)
			if err := p.Healthy(); err != nil {
				t.Errorf("at work: %v", err)
			}
		}
		slow.Store(true)
		w.fill(5)
		time.Sleep(time.Second)
		cancel()
		time.Sleep(time.Second)
		if err := p.Healthy(); !errors.Is(err, changefeed.ErrNotRunning) {
			t.Errorf("while Run ends: %v", err)
		}
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Each problem is returned when it counts, not before, and with the lease that it is about.
func TestAnUnhealthyProcessorSaysWhatIsWrong(t *testing.T) {
	type situation struct {
		*world
		p     *process
		fails atomic.Bool // the handler
		hangs chan struct{}
	}
	for name, c := range map[string]struct {
		begin  func(s *situation)
		before time.Duration // until then all is well
		after  time.Duration // from then on it is not
		is     error
		says   string
	}{
		"the lease store is away": {
			begin: func(s *situation) { s.p.wire.Cut() }, after: 2 * time.Minute,
			says: "the lease store has not answered for ",
		},
		"the handler hangs": {
			begin: func(s *situation) { s.hangs = make(chan struct{}); s.fill(1) }, before: time.Minute,
			after: 75 * time.Second, is: feed.ErrHandlerStuck, says: "lease -FF",
		},
		"a change fails": {
			begin: func(s *situation) { s.fails.Store(true); s.fill(1) }, before: 4 * time.Minute,
			after: 6 * time.Minute, is: feed.ErrNoProgress, says: "lease -FF",
		},
		"a lease document is broken": {
			begin: func(s *situation) {
				s.raw(`{"id":"` + s.prefix() + `..nonsense","LeaseToken":"nonsense","version":1,"FeedRange":7}`)
			}, after: 5 * time.Minute, is: feed.ErrBadLease,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				s := &situation{world: w}
				h := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
					if s.hangs != nil {
						<-s.hangs
					}
					if s.fails.Load() {
						return errDownstream
					}
					return nil
				})
				s.p = w.run("a", h, healthOptions())
				time.Sleep(time.Minute)
				if err := s.p.processor.Healthy(); err != nil {
					t.Fatalf("at first: %v", err)
				}
				c.begin(s)
				time.Sleep(c.before)
				if err := s.p.processor.Healthy(); c.before > 0 && err != nil {
					t.Errorf("after %v: %v", c.before, err)
				}
				time.Sleep(c.after - c.before)
				err := s.p.processor.Healthy()
				if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("after %v: %v, want %v, %q", c.after, err, c.is, c.says)
				}
				if s.hangs != nil {
					close(s.hangs)
				}
				s.fails.Store(false)
				s.p.cancel()
				<-s.p.done
			})
		})
	}
}

// What an instance reports of its unit makes it unhealthy, until it is over.
func TestHealthIsWhatAnInstanceReports(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		var away, fails atomic.Bool
		source := &hookedSource{Container: w.orders}
		source.read = func(ctx context.Context, r feed.Range, at feed.Position, o feed.ReadOptions) (feed.Page, error) {
			if away.Load() {
				return feed.Page{}, errDownstream
			}
			return w.orders.Read(ctx, r, at, o)
		}
		o := healthOptions()
		o.MaxLeases, o.OnFailure.MaxAttempts, o.OnFailure.DeadLetters = 1, 3, &letterBox{}
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			if fails.Load() {
				return errDownstream
			}
			return nil
		})
		p := w.runWith(source, w.leases, "a", h, o)
		time.Sleep(time.Minute)
		if err := p.processor.Healthy(); !errors.Is(err, feed.ErrNoOwner) || !strings.Contains(err.Error(), "1 of 2") {
			t.Errorf("with one lease of two: %v", err)
		}
		other := w.run("b", h, o)
		time.Sleep(time.Minute)
		if err := p.processor.Healthy(); err != nil {
			t.Errorf("with two instances: %v", err)
		}
		away.Store(true)
		time.Sleep(time.Minute)
		err := p.processor.Healthy()
		if !errors.Is(err, errDownstream) || !strings.Contains(err.Error(), "source: lease ") {
			t.Errorf("without a source: %v", err)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if err := p.processor.Healthy(); err != nil {
			t.Errorf("with the source again: %v", err)
		}
		fails.Store(true)
		w.many(40, 20)
		time.Sleep(3 * time.Minute)
		for _, one := range []*process{p, other} {
			if err := one.processor.Healthy(); !errors.Is(err, feed.ErrOutage) {
				t.Errorf("in an outage: %v", err)
			}
		}
		fails.Store(false)
		time.Sleep(5 * time.Minute)
		if a, b := p.processor.Healthy(), other.processor.Healthy(); a != nil || b != nil {
			t.Errorf("after an outage: %v, %v", a, b)
		}
		p.stop(t)
		other.stop(t)
	})
}
