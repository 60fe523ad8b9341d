package servermetrics_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
	"github.com/millrace/changefeed/internal/proof/memnet"
	"github.com/millrace/changefeed/metrics/servermetrics"
)

var update = flag.Bool("update", false, "write the golden file anew")

// world is a server with instruments over a store on the disk, a client of it, and what the client has counted.
type world struct {
	*testing.T
	db     *docstore.DB
	reader *sdkmetric.ManualReader
	m      *servermetrics.Metrics
	stop   func() error // of Observe
	client *http.Client
	ahead  time.Duration // of the clock of the client

	answers map[string]int     // by the attributes that they should have
	charges map[string]float64 // by operation
	refused map[string]int     // by status
}

// inWorld runs a test in a bubble of virtual time.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			T: t, reader: sdkmetric.NewManualReader(),
			answers: map[string]int{}, charges: map[string]float64{}, refused: map[string]int{},
		}
		var err error
		w.m, err = servermetrics.New(servermetrics.Options{
			MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader)),
		})
		w.check(err)
		w.db, err = docstore.Open(t.TempDir(), docstore.Options{})
		w.check(err)
		w.stop, err = w.m.Observe(w.db)
		w.check(err)
		handler, err := cosmosrest.New(w.db, cosmosrest.Options{
			RequestDone: w.m.RequestDone, Hosts: []string{"account"},
		})
		w.check(err)
		l := memnet.Listen()
		server := &http.Server{Handler: handler}
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("serve: %v", err)
			}
		})
		transport := &http.Transport{DialContext: l.DialContext}
		w.client = &http.Client{Transport: transport}
		test(w)
		transport.CloseIdleConnections()
		w.check(server.Close())
		serving.Wait()
		w.check(w.db.Close())
	})
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// do sends a request, and counts its answer as one of an operation.
func (w *world) do(operation, method string, at rest.Resource, body string, headers ...string) (status int) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, "http://account"+at.Raw, strings.NewReader(body))
	w.check(err)
	date := time.Now().Add(w.ahead).UTC().Format(http.TimeFormat)
	signer, err := rest.Key(cosmosrest.EmulatorKey)
	w.check(err)
	authorization, err := signer.Sign(w.Context(), method, at, date)
	w.check(err)
	r.Header.Set("x-ms-date", date)
	r.Header.Set("authorization", authorization)
	r.Header.Set("x-ms-version", rest.Version)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := w.client.Do(r)
	w.check(err)
	_, err = io.Copy(io.Discard, a.Body)
	w.check(errors.Join(err, a.Body.Close()))
	of := fmt.Sprintf("db.operation.name=%s,http.request.method=%s,http.response.status_code=%d,url.scheme=http",
		operation, method, a.StatusCode)
	w.answers[of]++
	charge, err := strconv.ParseFloat(a.Header.Get("x-ms-request-charge"), 64)
	w.check(err)
	w.charges[operation] += charge
	switch a.StatusCode {
	case 401, 403, 429, 503:
		w.refused[strconv.Itoa(a.StatusCode)]++
	}
	return a.StatusCode
}

// series is what was collected of an instrument with some attributes.
type series struct {
	name, unit, of string
	count          uint64 // of a histogram
	value          float64
	isHistogram    bool
}

func (s series) String() string {
	if s.isHistogram {
		return fmt.Sprintf("%s %s {%s} %d times, %.6g", s.name, s.unit, s.of, s.count, s.value)
	}
	return fmt.Sprintf("%s %s {%s} %.15g", s.name, s.unit, s.of, s.value)
}

// read collects the metrics.
func (w *world) read() (all []series) {
	w.Helper()
	var read metricdata.ResourceMetrics
	w.check(w.reader.Collect(context.Background(), &read))
	add := func(m metricdata.Metrics, of attribute.Set, s series) {
		s.name, s.unit, s.of = m.Name, m.Unit, of.Encoded(attribute.DefaultEncoder())
		all = append(all, s)
	}
	for _, scope := range read.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, series{value: float64(p.Value)})
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, series{value: float64(p.Value)})
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, series{value: p.Value})
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, series{count: p.Count, value: p.Sum, isHistogram: true})
				}
			default:
				w.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	slices.SortFunc(all, func(a, b series) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.of, b.of))
	})
	return all
}

// of returns the series of an instrument, by their attributes.
func (w *world) of(name string) map[string]series {
	w.Helper()
	found := map[string]series{}
	for _, s := range w.read() {
		if s.name == name {
			found[s.of] = s
		}
	}
	return found
}

// only returns the value of an instrument without attributes, or NaN if there is none.
func (w *world) only(name string) float64 {
	w.Helper()
	if s, ok := w.of(name)[""]; ok {
		return s.value
	}
	return math.NaN()
}

var (
	databases  = rest.At("dbs")
	containers = rest.At("dbs", "shop", "colls")
	orders     = rest.At("dbs", "shop", "colls", "orders", "docs")
	order      = rest.At("dbs", "shop", "colls", "orders", "docs", "1")
)

// run sends the requests of the scripted run: some that succeed, and one or more of each refusal.
func (w *world) run() {
	key := []string{"x-ms-documentdb-partitionkey", `["oslo"]`}
	w.do("create_database", "POST", databases, `{"id":"shop"}`)
	w.do("create_container", "POST", containers,
		`{"id":"orders","partitionKey":{"paths":["/city"],"kind":"Hash","version":2}}`, "x-ms-offer-throughput", "400")
	for i := range 5 {
		w.do("create_item", "POST", orders, fmt.Sprintf(`{"id":"%d","city":"oslo"}`, i), key...)
	}
	w.do("create_item", "POST", orders, `{"id":"1","city":"oslo"}`, key...) // there is one already
	w.do("read_item", "GET", order, "", key...)
	w.do("read_item", "GET", order, "", append(key, "authorization", "type=master&ver=1.0&sig=none")...)
	w.do("query_change_feed", "GET", orders, "", "a-im", "Incremental Feed")
	w.do("query_change_feed", "GET", orders, "", "a-im", "Incremental Feed", "if-none-match", "*",
		"x-ms-cosmos-max-polling-interval", "3000") // waits in vain
	w.do("_OTHER", "DELETE", orders, "")
	w.ahead = 20 * time.Minute
	w.do("read_item", "GET", order, "", key...)
	w.ahead = 0
	for w.do("read_item", "GET", order, "", key...) == http.StatusOK { // until the throughput is used up
	}
}

// A scripted run has the metrics of the golden file, and they equal what the client and the store have counted.
func TestAScriptedRunHasItsMetrics(t *testing.T) {
	inWorld(t, func(w *world) {
		syncs := uint64(0)
		stop := w.db.OnSync(func(time.Duration) { syncs++ })
		w.run()
		stop()
		counted := map[string]int{}
		for of, s := range w.of("http.server.request.duration") {
			counted[of] = int(s.count)
		}
		if diff := gocmp.Diff(w.answers, counted); diff != "" {
			t.Errorf("requests (-sent +counted):\n%s", diff)
		}
		refused := map[string]int{}
		for of, s := range w.of("changefeed.server.refused") {
			refused[strings.TrimPrefix(of, "http.response.status_code=")] = int(s.value)
		}
		none, isThere := refused["503"]
		if delete(refused, "503"); !isThere || none != 0 {
			t.Errorf("refused with 503: %d, %t, want a counter at 0", none, isThere)
		}
		want := map[string]int{"401": 1, "403": 1, "429": 1}
		if !maps.Equal(w.refused, want) || !maps.Equal(refused, want) {
			t.Errorf("the client was refused %v, counted are %v, want %v", w.refused, refused, want)
		}
		charged := w.of("changefeed.server.request_charge")
		for operation, sum := range w.charges {
			got := charged["db.operation.name="+operation]
			if math.Abs(got.value-sum) > 0.005*float64(got.count) { // answers are rounded to 0.01
				t.Errorf("%s is charged %v, the answers say %v", operation, got.value, sum)
			}
		}
		if got := w.of("changefeed.store.fsync.duration")[""].count; got != syncs || syncs < 7 {
			t.Errorf("%d syncs are counted, there were %d, of 7 or more writes", got, syncs)
		}
		w.compareSizes()
		w.compare("testdata/run.txt")
		w.check(w.stop())
		_, err := w.db.CreateDatabase(w.Context(), "more", nil) // a sync that nobody counts
		w.check(err)
		if got := w.of("changefeed.store.documents"); len(got) > 0 {
			t.Errorf("after stop: %v", got)
		}
		if got := w.of("changefeed.store.fsync.duration")[""].count; got != syncs {
			t.Errorf("after stop %d syncs are counted, want the %d before", got, syncs)
		}
	})
}

// compareSizes compares the sizes with those of the store, to which nobody writes. Others may write to its volume, so
// the free space is only within the volume.
func (w *world) compareSizes() {
	w.Helper()
	h := w.db.Health()
	for name, want := range map[string]int64{
		"changefeed.store.disk.size": h.Disk.Size, "changefeed.store.size": h.Bytes,
		"changefeed.store.documents": w.db.Count(),
	} {
		if got := w.only(name); got != float64(want) || want == 0 {
			w.Errorf("%s is %v, the store says %v", name, got, want)
		}
	}
	if free := w.only("changefeed.store.disk.free"); free <= 0 || free > float64(h.Disk.Size) || math.IsNaN(free) {
		w.Errorf("%v bytes of %d are free", free, h.Disk.Size)
	}
}

// compare compares the metrics with a golden file, in which sizes that differ by machine are words.
func (w *world) compare(golden string) {
	w.Helper()
	var lines []string
	for _, s := range w.read() {
		lines = append(lines, s.String())
	}
	size := regexp.MustCompile(`(?m)^(\S+ By \{}) \d+$`)
	got := size.ReplaceAllString(strings.Join(lines, "\n")+"\n", "$1 as measured")
	if *update {
		w.check(os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	w.check(err)
	if diff := gocmp.Diff(string(want), got); diff != "" {
		w.Errorf("metrics differ from %s, which -update writes anew (-want +got):\n%s", golden, diff)
	}
}
