package alarms_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/dashboard"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/metrics"
	"github.com/millrace/changefeed/outbox"
)

// stage is a container with units of real processors, in virtual time. Prometheus is played by scrape.
type stage struct {
	t         *testing.T
	db        *docstore.DB
	orders    *docstore.Container
	leases    *docstore.Container
	box       *docstore.Container
	instances []*staged
	handler   atomic.Value // a handling
	began     time.Time
	perSecond int // documents that are written while time passes
	written   int
	tape      *tape
	page      *dashboard.Dashboard // of the first instance, and of all units of the stage
	isFull    atomic.Bool          // the disk
	ahead     time.Duration        // the clocks of instances that are started now
	seen      string               // what the page was sent when somebody looked
}

// staged is an instance with its own metrics, as a process has them.
type staged struct {
	name, unit string
	registry   *prometheus.Registry
	m          *metrics.Metrics
	p          *changefeed.Processor
	source     feed.Source
	leases     feed.LeaseStore
	estimator  changefeed.Estimator
	fault      atomic.Value // of all its requests: an error, errNone if there is none
	isAway     bool         // Prometheus does not reach it
	cancel     context.CancelFunc
	ended      chan error
}

var (
	errNone    = errors.New("no fault")
	errNoRoute = errors.New("no route to the account")
)

// newStage makes a container with some partitions. It must be called in a bubble.
func newStage(t *testing.T, ranges int) *stage {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, db: db, began: time.Now(), tape: newTape()}
	s.handle(handleQuickly)
	s.page = dashboard.New(dashboard.Options{
		Name: "a", Version: "mailer v1.4", Checks: map[string]func() error{"store": s.troubleOfDisk},
	})
	s.orders = s.create(docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: ranges})
	s.leases = s.create(docstore.LeaseSpec("leases"))
	s.box = s.create(docstore.ContainerSpec{ID: "letters", Paths: []string{deadletters.KeyPath}})
	return s
}

// handling is what a handler does.
type handling func(ctx context.Context, b *feed.Batch) error

// handle has all handlers of the stage do something else from now on.
func (s *stage) handle(how handling) { s.handler.Store(how) }

// handleQuickly is a handler that takes 10 ms.
func handleQuickly(ctx context.Context, _ *feed.Batch) error {
	return pauseFor(ctx, 10*time.Millisecond)
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *stage) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) create(spec docstore.ContainerSpec) *docstore.Container {
	s.t.Helper()
	c, err := s.db.CreateContainer(s.t.Context(), spec)
	s.check(err)
	return c
}

// put writes a document.
func (s *stage) put(city, id, more string) {
	s.t.Helper()
	body := fmt.Appendf(nil, `{"id":%q,"city":%q%s}`, id, city, more)
	_, err := s.orders.Commit(s.t.Context(), feed.Key(city), []feed.Write{{Op: feed.WriteUpsert, ID: id, Body: body}})
	s.check(err)
}

// putEvent writes the event of an outbox.
func (s *stage) putEvent(key string, ttl int) {
	s.t.Helper()
	s.put(key, key+"-event", fmt.Sprintf(
		`,"partitionKey":%q,"type":"domainEvent","seq":1,"data":{"action":"Renamed"},"ttl":%d`, key, ttl))
}

// start starts an instance of a unit.
func (s *stage) start(name, unit string, o changefeed.Options) *staged {
	s.t.Helper()
	h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
		how, _ := s.handler.Load().(handling)
		return how(ctx, b)
	})
	in := s.newStaged(name, unit)
	if o.Instance = name; o.Start == (feed.Start{}) {
		o.Start = feed.FromBeginning()
	}
	if o.OnFailure.HoldKeys {
		box, err := deadletters.Container(s.box, unit, s.orders)
		s.check(err)
		o.OnFailure.DeadLetters = box
	}
	o.Hooks = s.hooksOf(in)
	var err error
	in.p, err = changefeed.New(in.source, in.leases, in.m.Handler(h), o)
	s.check(err)
	_, err = in.m.Observe(in.p)
	s.check(err)
	s.show(in, nil)
	s.run(in)
	return in
}

// silent are hooks that replace the log.
var silent = changefeed.Hooks{
	Error: func(context.Context, *feed.Error) {}, Parked: func(context.Context, feed.DeadLetter) {},
	Outage: func(context.Context, feed.Outage) {}, Slow: func(context.Context, feed.SlowBatch) {},
	Differing: func(context.Context, feed.Difference) {}, Begun: func(context.Context, feed.NewUnit) {},
	Skipped: func(context.Context, feed.Skip) {}, Paused: func(context.Context, feed.Pause) {},
}

func (s *stage) newStaged(name, unit string) *staged {
	s.t.Helper()
	in := &staged{name: name, unit: unit, cancel: func() {}, ended: make(chan error, 1)}
	in.ended <- nil // until it runs
	in.fault.Store(errNone)
	plan := changefeedtest.Faults(func(changefeedtest.Call) changefeedtest.Fault {
		if err, _ := in.fault.Load().(error); !errors.Is(err, errNone) {
			return changefeedtest.Refuse(err)
		}
		return changefeedtest.Fault{}
	})
	leases, err := docstore.NewLeases(s.t.Context(), s.leases, unit, s.orders)
	s.check(err)
	in.source, in.leases = plan.Source(s.orders), plan.Leases(leases)
	if s.ahead > 0 {
		in.leases = early{in.leases, s.ahead}
	}
	registry, provider := newRegistry(s.t)
	in.registry = registry
	in.m, err = metrics.New(metrics.Options{
		Unit: unit, Container: "shop/orders", MeterProvider: provider, TracerProvider: sdktrace.NewTracerProvider(),
	})
	s.check(err)
	s.instances = append(s.instances, in)
	return in
}

// run runs the processor of an instance.
func (s *stage) run(in *staged) {
	ctx, cancel := context.WithCancel(s.t.Context())
	in.cancel, in.ended = cancel, make(chan error, 1)
	go func() { in.ended <- in.p.Run(ctx) }()
}

// refusingPublisher refuses the events of some keys, all if it names none.
type refusingPublisher struct{ only string }

func (p refusingPublisher) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	if err := pauseFor(ctx, 10*time.Millisecond); err != nil {
		return 0, err
	}
	if strings.HasPrefix(msgs[0].Key, p.only) {
		return 0, errors.New("500 Internal Server Error")
	}
	return len(msgs), nil
}

// startRelay starts a relay as the only instance of its unit.
func (s *stage) startRelay(unit string, to outbox.Publisher) *staged {
	s.t.Helper()
	in := s.newStaged(unit+"-1", unit)
	relay, err := outbox.NewRelay(to, outbox.RelayOptions{
		Source: "/orders", Hooks: in.m.RelayHooks(outbox.RelayHooks{}),
	})
	s.check(err)
	_, err = in.m.ObserveRelay(relay)
	s.check(err)
	in.p, err = changefeed.New(in.source, in.leases, in.m.Handler(relay), changefeed.Options{
		Instance: in.name, Start: feed.FromBeginning(), Hooks: s.hooksOf(in),
	})
	s.check(err)
	_, err = in.m.Observe(in.p)
	s.check(err)
	s.show(in, relay)
	s.run(in)
	return in
}

// measure measures the lag, as an instance does that watches it.
func (s *stage) measure(in *staged) {
	est, err := in.estimator.Measure(s.t.Context(), in.source, in.leases)
	in.m.RecordLag(est, err)
}

// pass lets time pass: documents are written each second, and all instances are scraped each 15 seconds.
func (s *stage) pass(d time.Duration) {
	s.t.Helper()
	for until := s.tape.now + int(d/interval); s.tape.now < until; {
		s.scrape()
		for next := s.began.Add(time.Duration(s.tape.now) * interval); time.Now().Before(next); {
			for range s.perSecond {
				s.written++
				s.put(fmt.Sprint("city-", s.written%50), fmt.Sprint("item-", s.written%500), "")
			}
			time.Sleep(min(time.Second, time.Until(next)))
		}
	}
}

// scrape collects the metrics of all instances that Prometheus reaches.
func (s *stage) scrape() {
	s.t.Helper()
	if late := time.Since(s.began) - time.Duration(s.tape.now)*interval; late < 0 || late >= interval {
		s.t.Fatalf("scrape %d is %v late", s.tape.now, late)
	}
	var all sync.WaitGroup
	for _, in := range s.instances {
		if !in.isAway {
			all.Go(func() { s.measure(in) })
		}
	}
	all.Wait()
	for _, in := range s.instances {
		if in.isAway {
			continue
		}
		eachSample(s.t, in.registry, func(name string, labels map[string]string, v float64) {
			if name == "changefeed_unit_began_seconds" || name == "changefeed_instance_clock_seconds" {
				v -= float64(s.began.Unix()) // the tape begins at 0
			}
			labels["job"], labels["instance"] = "mailer", in.name
			s.tape.record(name, labels, v)
		})
	}
	s.tape.next()
}

// kill ends an instance as kill -9 does: nothing of it reaches the account any more, and Prometheus does not reach it.
func (s *stage) kill(in *staged) {
	in.fault.Store(errNoRoute)
	in.isAway = true
	in.cancel()
}

// end ends all instances.
func (s *stage) end() {
	s.t.Helper()
	for _, in := range s.instances {
		in.cancel()
	}
	for _, in := range s.instances {
		<-in.ended
	}
	s.check(s.db.Close())
}
