// Package ui serves the dashboard and the metrics of a command at a separate address.
package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/millrace/changefeed/cmd/changefeed/internal/explorer"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/dashboard"
	"github.com/millrace/changefeed/metrics/servermetrics"
)

// KeyVariable is the environment variable with the key of the dashboard. Other users of the machine cannot see this
// variable, unlike a key on a command line.
const KeyVariable = "CHANGEFEED_UI_KEY"

// Options have the address of the dashboard, and facts about the process.
type Options struct {
	Address string // host:port; empty means nowhere
	Write   bool   // let people steer and edit without a key
	Name    string // of the process
	Version string // of the program
	Log     *slog.Logger
	Checks  map[string]func() error // of /healthz, beside those of the units

	// See [dashboard.Options].
	Find func(ctx context.Context) ([]dashboard.Unit, error)

	// Explorer shows documents; nil means the dashboard's own explorer.
	Explorer *explorer.Explorer
}

// A UI is a dashboard that is served. A nil UI shows nothing, and costs nothing.
type UI struct {
	dashboard *dashboard.Dashboard
	explorer  *explorer.Explorer
	provider  *metric.MeterProvider
	scrapes   *scrapes
	server    *http.Server
	listener  net.Listener
	serving   sync.WaitGroup

	units, begun atomic.Int64 // how many units there will be, and have been shown
}

// Check refuses an address that is none, or that others can reach without a key.
func (o *Options) Check() error {
	if o.Address == "" {
		return nil
	}
	const want = "host:port, such as 127.0.0.1:8090; port 0 takes a free port"
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return usage.Flag("ui", o.Address, want)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return usage.Flag("ui", o.Address, want)
	}
	const least = 16 // characters, so that nobody guesses the key
	if key := os.Getenv(KeyVariable); key != "" && len(key) < least {
		return usage.Error{Err: fmt.Errorf("$%s has %d characters: want %d or more, such as openssl rand -hex 16 prints",
			KeyVariable, len(key), least)}
	}
	if ip := net.ParseIP(host); host != "localhost" && !ip.IsLoopback() && os.Getenv(KeyVariable) == "" {
		return usage.Flag("ui", o.Address, "a loopback address, or a key in $"+KeyVariable+", because others can "+
			"reach this address and see partition keys and dead letters")
	}
	return nil
}

// Open serves a dashboard. If no address is set, Open returns nil.
func Open(ctx context.Context, o Options) (*UI, error) {
	if o.Address == "" {
		return nil, nil
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	export, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("export metrics: %w", err)
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, usage.Flag("ui", o.Address, fmt.Sprintf("a free address of this machine: %v", cause(err)))
	}
	u := &UI{
		explorer: cmp.Or(o.Explorer, explorer.New()),
		provider: metric.NewMeterProvider(metric.WithReader(export), metric.WithResource(o.resource())),
		listener: listener,
		scrapes:  &scrapes{next: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})},
	}
	key := os.Getenv(KeyVariable)
	if o.Find == nil { // a server has only the units of others
		u.Expect(1)
	}
	u.dashboard = dashboard.New(dashboard.Options{
		Name: o.Name, Version: o.Version, Key: key, Write: o.Write || key != "", Metrics: u.scrapes, Checks: o.Checks,
		Find: o.Find, Explorer: u.explorer, Begun: u.haveBegun,
	})
	u.server = &http.Server{
		Handler: u.dashboard, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	u.serving.Go(func() {
		if err := u.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("the dashboard has ended", "error", err)
		}
	})
	return u, nil
}

// resource is the process for target_info.
func (o *Options) resource() *resource.Resource {
	return resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName("changefeed"),
		semconv.ServiceVersion(o.Version), semconv.ServiceInstanceID(o.Name))
}

// cause leaves out facts that the user knows already: the operation and the address.
func cause(err error) error {
	if of, ok := errors.AsType[*net.OpError](err); ok {
		return of.Err
	}
	return err
}

// Server returns the instruments of a server; nil if there is no dashboard.
func (u *UI) Server() (*servermetrics.Metrics, error) {
	if u == nil {
		return nil, nil
	}
	return servermetrics.New(servermetrics.Options{MeterProvider: u.provider})
}

// Explore shows the documents of a store or an account until hide is called.
func (u *UI) Explore(p explorer.Place) (hide func()) {
	if u == nil {
		return func() {}
	}
	return u.explorer.Show(p)
}

// Expect says how many units the process will have, and by default one. Before they are shown, the process is not
// ready.
func (u *UI) Expect(units int) {
	if u != nil {
		u.units.Store(int64(units))
	}
}

// haveBegun returns how many units have not begun yet. A unit that ends, or begins again, has begun.
func (u *UI) haveBegun() error {
	if begun, all := u.begun.Load(), u.units.Load(); begun < all {
		return fmt.Errorf("%d of %d units have begun", begun, all)
	}
	return nil
}

// URL is where people find the dashboard.
func (u *UI) URL() string {
	at := u.listener.Addr().(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		return "http://" + net.JoinHostPort("localhost", strconv.Itoa(at.Port)) + "/"
	}
	return "http://" + at.String() + "/"
}

// Close ends the dashboard. Those who look are cut off, because their connections never end by themselves.
func (u *UI) Close(ctx context.Context) error {
	if u == nil {
		return nil
	}
	err := u.server.Close()
	u.serving.Wait()
	return cmp.Or(err, u.provider.Shutdown(ctx))
}
