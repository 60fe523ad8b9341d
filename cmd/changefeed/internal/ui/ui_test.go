package ui

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/dashboard"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

func options(address string) Options {
	return Options{Address: address, Name: "a", Version: "shop v1", Log: slog.New(slog.DiscardHandler)}
}

// Without an address nothing is served, and all that shows a unit does nothing.
func TestNoAddressIsNoDashboard(t *testing.T) {
	u, err := Open(t.Context(), options(""))
	if u != nil || err != nil {
		t.Fatalf("%v, %v", u, err)
	}
	unit, err := u.Unit("mailer", "orders")
	if unit != nil || err != nil {
		t.Fatalf("%v, %v", unit, err)
	}
	if hooks := unit.Hooks(); hooks.Ready != nil || hooks.Error != nil {
		t.Error("a unit without a dashboard has hooks")
	}
	hide, err := unit.Show(t.Context(), Parts{})
	if err != nil {
		t.Fatal(err)
	}
	hide()
	hideRelay, err := unit.ShowRelay(nil)
	if err != nil {
		t.Fatal(err)
	}
	hideRelay()
	if hooks := unit.Relay(outbox.RelayHooks{}); hooks.Expiring != nil {
		t.Error("a relay without a dashboard has hooks")
	}
	if m, err := u.Server(); m != nil || err != nil {
		t.Errorf("%v, %v", m, err)
	}
	if err := u.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A dashboard is served, with the key of the environment, until it is closed. Nobody else can have its address.
func TestADashboardIsServedUntilItIsClosed(t *testing.T) {
	t.Setenv(KeyVariable, "a long secret key")
	u, err := Open(t.Context(), options("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, key string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	for _, path := range []string{"", "status", "metrics"} {
		if got := get(path, "a long secret key"); got != http.StatusOK {
			t.Errorf("/%s with the key: %d", path, got)
		}
		if got := get(path, "other"); got != http.StatusUnauthorized {
			t.Errorf("/%s with another key: %d", path, got)
		}
	}
	address := strings.TrimSuffix(strings.TrimPrefix(u.URL(), "http://"), "/")
	_, err = Open(t.Context(), options(address))
	if err == nil || !strings.Contains(err.Error(), "want a free address") {
		t.Errorf("a second dashboard at the address: %v", err)
	}
	events, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.URL()+"events", nil)
	if err != nil {
		t.Fatal(err)
	}
	events.Header.Set("Authorization", "Bearer a long secret key")
	viewer, err := http.DefaultClient.Do(events)
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Body.Close()
	ending, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := u.Close(ending); err != nil { // though somebody looks
		t.Error(err)
	}
	if got := get("", "a long secret key"); got != 0 {
		t.Errorf("after the end: %d", got)
	}
}

// A process of several units is ready once all of them have begun, and stays so when one has ended.
func TestAProcessIsReadyOnceAllItsUnitsHaveBegun(t *testing.T) {
	u, err := Open(t.Context(), options("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close(t.Context())
	u.Expect(2)
	ready := func(want int, waiting string) {
		t.Helper()
		response, err := http.Get(u.URL() + "readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want || !strings.Contains(string(text), waiting) {
			t.Errorf("%d %s, %v: want %d and %s", response.StatusCode, text, err, want, waiting)
		}
	}
	ready(http.StatusServiceUnavailable, "0 of 2 units have begun")
	orders, leases := containers(t)
	for begun, name := range []string{"mailer", "indexer"} {
		unit, err := u.Unit(name, "orders")
		if err != nil {
			t.Fatal(err)
		}
		hide, err := unit.Show(t.Context(), Parts{Source: orders, Leases: leases})
		if err != nil {
			t.Fatal(err)
		}
		if begun == 0 {
			ready(http.StatusServiceUnavailable, "1 of 2 units have begun")
		}
		hide()
	}
	ready(http.StatusOK, `"waiting":null`)
}

// lists is a lease store that counts how often it is listed.
type lists struct {
	feed.LeaseStore
	n *atomic.Int64
}

func (l lists) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	l.n.Add(1)
	return l.LeaseStore.List(ctx)
}

// done is a handler that succeeds.
var done = feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })

// containers makes a store in memory with a container and leases.
func containers(t *testing.T) (*docstore.Container, *docstore.Leases) {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	orders, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		t.Fatal(err)
	}
	records, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	leases, err := docstore.NewLeases(t.Context(), records, "mailer", orders)
	if err != nil {
		t.Fatal(err)
	}
	return orders, leases
}

// shownNowhere makes a unit on a dashboard without an address, whose metrics a reader collects.
func shownNowhere(t *testing.T) (*UI, *Unit, metric.Reader) {
	t.Helper()
	reader := metric.NewManualReader()
	u := &UI{
		dashboard: dashboard.New(dashboard.Options{}), provider: metric.NewMeterProvider(metric.WithReader(reader)),
		scrapes: &scrapes{next: http.NotFoundHandler()},
	}
	unit, err := u.Unit("mailer", "orders")
	if err != nil {
		t.Fatal(err)
	}
	return u, unit, reader
}

// has reports whether there is a metric.
func has(t *testing.T, reader metric.Reader, name string) bool {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		if slices.ContainsFunc(scope.Metrics, func(m metricdata.Metrics) bool { return m.Name == name }) {
			return true
		}
	}
	return false
}

// The lag costs requests, so it is measured only while somebody asks for metrics.
func TestTheLagIsMeasuredWhileSomebodyAsksForMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders, leases := containers(t)
		u, unit, reader := shownNowhere(t)
		p, err := changefeed.New(orders, leases, done, changefeed.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int64
		hide, err := unit.Show(t.Context(), Parts{Source: orders, Leases: lists{leases, &n}, Processor: p})
		if err != nil {
			t.Fatal(err)
		}
		hasLag := func() bool { return has(t, reader, "changefeed.lag.unknown") || has(t, reader, "changefeed.lag") }
		time.Sleep(time.Hour + lagEvery/2) // between two ticks
		if n.Load() != 0 || hasLag() {
			t.Errorf("nobody has asked, and the lag was measured %d times", n.Load())
		}
		u.scrapes.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		time.Sleep(scraped + lagEvery/4)
		const often = int64(scraped / lagEvery)
		if got := n.Load(); got != often {
			t.Errorf("after a question the lag was measured %d times, want %d", got, often)
		}
		time.Sleep(time.Hour)
		if got := n.Load(); got != often || hasLag() {
			t.Errorf("an hour after the last question it was measured %d times, want %d, and is shown: %t", got, often,
				hasLag())
		}
		u.scrapes.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		time.Sleep(lagEvery)
		if !hasLag() {
			t.Error("the lag is missing while somebody asks")
		}
		hide()
		if hasLag() {
			t.Error("the lag is shown after the end of its unit")
		}
	})
}

// An instance that is hidden is measured no more, also if it still runs: another one may have its name.
func TestAHiddenInstanceIsNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders, leases := containers(t)
		_, unit, reader := shownNowhere(t)
		p, err := changefeed.New(orders, leases, done, changefeed.Options{})
		if err != nil {
			t.Fatal(err)
		}
		hide, err := unit.Show(t.Context(), Parts{Source: orders, Leases: leases, Processor: p})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(time.Minute)
		if !has(t, reader, "changefeed.instance.leases") {
			t.Error("an instance that is shown is not measured")
		}
		hide()
		if has(t, reader, "changefeed.instance.leases") {
			t.Error("an instance that is hidden is measured")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Without a key only addresses of this machine will do: an address without a host is one of each network.
func TestAnAddressForOthersNeedsAKey(t *testing.T) {
	for _, tt := range []struct {
		address, key string
		ok           bool
	}{
		{"", "", true},
		{"127.0.0.1:8090", "", true},
		{"[::1]:0", "", true},
		{"localhost:8090", "", true},
		{":8090", "", false},
		{"0.0.0.0:8090", "", false},
		{"[::]:8090", "", false},
		{"shop.example:8090", "", false},
		{":8090", "a long secret key", true},
		{":8090", "fifteen letters", false},
		{"shop.example:8090", "a long secret key", true},
		{"127.0.0.1", "a long secret key", false},
		{"127.0.0.1:65536", "a long secret key", false},
	} {
		t.Setenv(KeyVariable, tt.key)
		o := options(tt.address)
		if err := o.Check(); (err == nil) != tt.ok {
			t.Errorf("%q with the key %q: %v", tt.address, tt.key, err)
		}
	}
}

// A dashboard on all addresses is found by a name that a browser can open.
func TestTheURLOfAllAddressesIsOneOfThisMachine(t *testing.T) {
	t.Setenv(KeyVariable, "a long secret key")
	for address, want := range map[string]string{
		":0": "http://localhost:", "0.0.0.0:0": "http://localhost:", "127.0.0.1:0": "http://127.0.0.1:",
	} {
		u, err := Open(t.Context(), options(address))
		if err != nil {
			t.Fatal(err)
		}
		if got := u.URL(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "/") {
			t.Errorf("%s: the URL is %s, want %s with a port", address, got, want)
		}
		if err := u.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
