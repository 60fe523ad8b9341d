package metrics_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/metrics"
)

var update = flag.Bool("update", false, "write the golden file anew")

// world is a store in memory with a container, leases and instruments.
type world struct {
	*testing.T
	orders *docstore.Container
	leases *docstore.Leases
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
	m      *metrics.Metrics
}

// inWorld runs a test in a bubble of virtual time.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{T: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		spec := docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: 2}
		w.orders, err = db.CreateContainer(t.Context(), spec)
		w.check(err)
		container, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
		w.check(err)
		w.leases, err = docstore.NewLeases(t.Context(), container, "mailer", w.orders)
		w.check(err)
		w.m, err = metrics.New(metrics.Options{
			Unit: "mailer", Container: "shop/orders",
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader)),
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans)),
		})
		w.check(err)
		test(w)
		w.check(db.Close())
	})
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// put writes a document.
func (w *world) put(city, id string, more string) {
	w.Helper()
	write := feed.Write{Op: feed.WriteUpsert, ID: id, Body: fmt.Appendf(nil, `{"id":%q,"city":%q%s}`, id, city, more)}
	_, err := w.orders.Commit(w.Context(), feed.Key(city), []feed.Write{write})
	w.check(err)
}

// run runs a processor with instruments until stop is called.
func (w *world) run(h feed.Handler, o changefeed.Options) (p *changefeed.Processor, stop func()) {
	w.Helper()
	o.Instance, o.Start = "one", feed.FromBeginning()
	p, err := changefeed.New(w.orders, w.leases, w.m.Handler(h), o)
	w.check(err)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	return p, func() {
		cancel()
		w.check(<-ended)
	}
}

// read collects the metrics: a line for each series, with the count and the sum of a histogram.
func (w *world) read() []string {
	w.Helper()
	var all metricdata.ResourceMetrics
	w.check(w.reader.Collect(context.Background(), &all))
	var lines []string
	add := func(m metricdata.Metrics, of attribute.Set, value string) {
		text := of.Encoded(attribute.DefaultEncoder())
		lines = append(lines, fmt.Sprintf("%s %s {%s} %s", m.Name, m.Unit, text, value))
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, fmt.Sprint(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, fmt.Sprint(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, fmt.Sprintf("%d times, %v", p.Count, p.Sum))
				}
			default:
				w.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// value returns the value of a series, "" if there is none; of is a part of its attributes.
func (w *world) value(name, of string) (value string) {
	w.Helper()
	for _, line := range w.read() {
		if strings.HasPrefix(line, name+" ") && strings.Contains(line, of) {
			value = line[strings.LastIndex(line, "} ")+2:]
		}
	}
	return value
}

// A scripted run has the metrics of the golden file, and they equal what the run has counted by itself: 12 changes, of
// which one is bad and becomes a letter after three calls.
func TestAScriptedRunHasItsMetrics(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 12 {
			w.put(fmt.Sprint("city-", i%4), fmt.Sprint("item-", i), "")
		}
		var calls, received, failed, checkpoints atomic.Int64
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			time.Sleep(100 * time.Millisecond)
			calls.Add(1)
			received.Add(int64(len(b.Changes)))
			for _, c := range b.Changes {
				if c.ID == "item-5" {
					failed.Add(1)
					return errors.New("this change is bad")
				}
			}
			return nil
		})
		letters, err := deadletters.File(w.TempDir()+"/letters.jsonl", "mailer")
		w.check(err)
		p, stop := w.run(h, changefeed.Options{
			MaxItems: 3, OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: letters},
			Hooks: changefeed.Hooks{
				Error: func(context.Context, *feed.Error) {}, Parked: func(context.Context, feed.DeadLetter) {},
				StoreDone: func(_ context.Context, d feed.StoreDone) {
					if !d.Renewal {
						checkpoints.Add(1)
					}
				},
			},
		})
		unobserve, err := w.m.Observe(p)
		w.check(err)
		time.Sleep(time.Minute)
		for lag, err := range p.WatchLag(w.Context(), time.Second) {
			w.m.RecordLag(lag, err)
			break
		}
		wrote := fmt.Sprintf("%d times, ", checkpoints.Load())
		if got := w.value("changefeed.lease.write.duration", "checkpoint"); !strings.HasPrefix(got, wrote) {
			t.Errorf("checkpoints were written %s, want %s", got, wrote)
		}
		var age float64
		if _, err := fmt.Sscan(w.value("changefeed.lease.age", ""), &age); err != nil || age <= 0 || age > 18 {
			t.Errorf("a lease was written %v s ago, %v; want at most 18 s", age, err)
		}
		// How many checkpoints are written, and when the last, depends on which of two goroutines is first.
		often := regexp.MustCompile(`(((?:checkpoint|replace_lease),|changefeed\.lease\.age).*} )\d.*`)
		got := often.ReplaceAllString(strings.Join(w.read(), "\n")+"\n", "${1}often")
		for hasFailed, want := range map[bool]int64{true: failed.Load(), false: calls.Load() - failed.Load()} {
			line := w.line("messaging.process.duration", hasFailed)
			if !strings.Contains(line, fmt.Sprintf("} %d times, ", want)) {
				t.Errorf("%s, want %d times", line, want)
			}
		}
		consumed := w.sum("messaging.client.consumed.messages")
		if consumed != received.Load() || w.value("changefeed.parked", "failed") != "1" {
			t.Errorf("%d consumed, want %d", consumed, received.Load())
		}
		const golden = "testdata/run.txt"
		if *update {
			w.check(os.WriteFile(golden, []byte(got), 0o644))
		}
		want, err := os.ReadFile(golden)
		w.check(err)
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("metrics differ from %s, which -update writes anew (-want +got):\n%s", golden, diff)
		}
		stop()
		if got := w.value("changefeed.instance.leases", ""); got != "" {
			t.Errorf("a processor that does not run has %s leases", got)
		}
		w.check(unobserve())
		w.check(letters.Close())
	})
}

// line returns the series of an instrument with an error, or without.
func (w *world) line(name string, failed bool) string {
	for _, line := range w.read() {
		if strings.HasPrefix(line, name+" ") && strings.Contains(line, "error.type") == failed {
			return line
		}
	}
	return name + ": no series"
}

// sum adds up the series of a counter.
func (w *world) sum(name string) (sum int64) {
	for _, line := range w.read() {
		if strings.HasPrefix(line, name+" ") {
			var n int64
			_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n)
			w.check(err)
			sum += n
		}
	}
	return sum
}

// An estimate that fails leaves no old value behind.
func TestALagThatIsUnknownIsAbsent(t *testing.T) {
	inWorld(t, func(w *world) {
		now := time.Now()
		lag := changefeed.Estimation{At: now, Total: changefeed.Lag{
			Pending: 7, Oldest: now.Add(-3 * time.Second), Watermark: now.Add(-5 * time.Second),
			Pace: &changefeed.Pace{CatchUp: 9 * time.Second},
		}, Leases: []changefeed.Lag{{Stuck: []feed.Stuck{feed.StuckPaused}}, {Err: feed.ErrBadLease}, {}}}
		values := func() (all []string) {
			for _, line := range w.read() {
				name, rest, _ := strings.Cut(line, " ")
				all = append(all, name+rest[strings.LastIndex(rest, " "):])
			}
			return all
		}
		w.m.RecordLag(lag, nil)
		want := []string{
			"changefeed.lag 7", "changefeed.lag.age 3", "changefeed.lag.catch_up 9", "changefeed.lag.exact 0",
			"changefeed.lag.stuck 1", "changefeed.lag.unknown 1", "changefeed.watermark.age 5",
		}
		if got := values(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		lag.Total = changefeed.Lag{Err: feed.ErrHole, Pending: 7, Pace: &changefeed.Pace{CatchUp: changefeed.Never}}
		w.m.RecordLag(lag, nil)
		want = []string{"changefeed.lag.stuck 1", "changefeed.lag.unknown 1"}
		if got := values(); !slices.Equal(got, want) {
			t.Errorf("with a hole: %q, want %q", got, want)
		}
		lag.Total = changefeed.Lag{Exact: true, Watermark: now}
		w.m.RecordLag(lag, nil)
		if w.value("changefeed.lag", "") != "0" || w.value("changefeed.lag.age", "") != "0" ||
			w.value("changefeed.lag.exact", "") != "1" {
			t.Errorf("at rest: %q", values())
		}
		w.m.RecordLag(changefeed.Estimation{}, feed.ErrThrottled)
		if got := values(); len(got) > 0 {
			t.Errorf("after an error: %q", got)
		}
	})
}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// The span of a batch is linked to the traces in the documents, and has the error of the handler.
func TestABatchHasASpan(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put("oslo", "1", `,"traceparent":"`+parent+`","tracestate":"a=b"`)
		w.put("oslo", "2", `,"traceparent":"nonsense"`)
		w.put("oslo", "3", `,"note":"\"traceparent\""`)
		inner := 0
		var inHandler []trace.SpanContext
		_, stop := w.run(feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			inHandler = append(inHandler, trace.SpanContextFromContext(ctx))
			if inner++; inner == 1 {
				return feed.ErrThrottled
			} else if inner == 2 {
				panic("the handler panics")
			}
			return nil
		}), changefeed.Options{Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}}})
		time.Sleep(time.Minute)
		stop()
		var batches []sdktrace.ReadOnlySpan
		writes := map[string]int{}
		for _, span := range w.spans.Ended() {
			want := trace.SpanKindClient
			if span.Name() == "process shop/orders" {
				batches, want = append(batches, span), trace.SpanKindConsumer
			} else {
				writes[span.Name()]++
			}
			if span.SpanKind() != want {
				t.Errorf("span %s is of kind %v, want %v", span.Name(), span.SpanKind(), want)
			}
		}
		if len(batches) != 3 || writes["checkpoint"] == 0 || writes["renewal"] == 0 {
			t.Fatalf("%d batches, writes %v", len(batches), writes)
		}
		for i, kind := range []string{"throttled", "panic", ""} {
			of := attribute.NewSet(batches[i].Attributes()...)
			got, _ := of.Value("error.type")
			attempt, _ := of.Value("changefeed.attempt")
			count, _ := of.Value("messaging.batch.message_count")
			failed := batches[i].Status().Code == codes.Error
			if !inHandler[i].Equal(batches[i].SpanContext()) {
				t.Errorf("call %d of the handler is not in the span of its batch", i)
			}
			if got.AsString() != kind || attempt.AsInt64() != int64(i+1) || count.AsInt64() != 3 ||
				failed != (kind != "") {
				t.Errorf("span %d has %v, status %v", i, batches[i].Attributes(), batches[i].Status())
			}
		}
		links := batches[0].Links()
		if len(links) != 1 || links[0].SpanContext.TraceID().String() != parent[3:35] ||
			links[0].SpanContext.TraceState().String() != "a=b" {
			t.Errorf("links %+v", links)
		}
	})
}

// able is a handler with all abilities and needs.
type able struct {
	feed.HandlerFunc
	opened, closed atomic.Int64 // leases are opened at the same time
	needs          changefeed.Needs
}

func (a *able) Open(context.Context, feed.Lease) error               { a.opened.Add(1); return nil }
func (a *able) Close(context.Context, feed.Lease, feed.Reason) error { a.closed.Add(1); return nil }
func (a *able) Needs() changefeed.Needs                              { return a.needs }

func TestTheAbilitiesAndNeedsOfAHandlerStay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put("oslo", "1", "")
		w.put("oslo", "2", "")
		var ids []string
		batches := 0
		h := &able{
			HandlerFunc: func(_ context.Context, b *feed.Batch) error {
				for _, c := range b.Changes {
					ids = append(ids, c.ID)
				}
				return nil
			},
			needs: changefeed.Needs{
				Filter: func(c *feed.Change) bool { return c.ID == "2" },
				Hooks:  changefeed.Hooks{BatchDone: func(context.Context, feed.BatchDone) { batches++ }},
			},
		}
		_, stop := w.run(h, changefeed.Options{})
		time.Sleep(time.Minute)
		stop()
		if !slices.Equal(ids, []string{"2"}) || h.opened.Load() != 2 || h.closed.Load() != 2 || batches != 1 {
			t.Errorf("received %q, opened %d, closed %d, hooks of %d batches", ids, h.opened.Load(), h.closed.Load(),
				batches)
		}
		if got := w.sum("messaging.client.consumed.messages"); got != 1 {
			t.Errorf("%d changes are counted, want 1", got)
		}
	})
}
