package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/bench"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/memnet"
)

var sizingLarge = flag.Bool("sizing.large", false, "compare the formulas of docs/sizing.md for 100 leases and 20 batches a second too")

// The formulas of docs/sizing.md, for a minute with the default times: leases and instances that have nothing to do.
const (
	renewals    = 60 / 17.0 // of a lease, of the record of an instance, and looks at the lease container's feed
	crossChecks = 60 / 133.0
)

// idleWrites, idleLooks and idleLists are the requests of a minute to the lease container. A look is two requests: one
// that finds the records written since the last look, and one that finds no more.
func idleWrites(leases, instances float64) float64 { return renewals * (leases + instances) }
func idleLooks(instances float64) float64          { return 2 * renewals * instances }
func idleLists(instances float64) float64          { return crossChecks * instances }

// idleUnits are the request units of a minute in the lease container of a server, of the charges in docs/server.md.
func idleUnits(leases, instances float64) float64 {
	const write, none, kilobytes = 5.5, 1, 0.75 // of a record
	all := max(1, (0.05+0.5*kilobytes)*(leases+instances))
	return write*idleWrites(leases, instances) + (all+none)*idleLooks(instances)/2 + all*idleLists(instances)
}

// chargeMeter counts the requests to the lease container, and their charges.
type chargeMeter struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests float64
	units    float64
}

// RoundTrip implements [http.RoundTripper].
func (m *chargeMeter) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := m.next.RoundTrip(r)
	if err != nil || !strings.Contains(r.URL.Path, "/colls/leases/docs") {
		return answer, err
	}
	charge, err := strconv.ParseFloat(answer.Header.Get("X-Ms-Request-Charge"), 64)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.units = m.requests+1, m.units+charge
	return answer, err
}

func (m *chargeMeter) read() (requests, units float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests, m.units
}

// metered has the fleet of a stage work over HTTP, and counts what it asks of the lease container.
func metered(ctx context.Context, st *stage, play func(m *chargeMeter) error) error {
	handler, err := cosmosrest.New(st.db, cosmosrest.Options{Hosts: []string{"account.example"}})
	if err != nil {
		return err
	}
	l := memnet.Listen()
	web := &http.Server{Handler: handler}
	transport := &http.Transport{DialContext: l.DialContext, MaxIdleConnsPerHost: 100}
	m := &chargeMeter{next: transport}
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(l) }) // ends with web.Close
	defer serving.Wait()
	defer web.Close()
	defer transport.CloseIdleConnections()
	client, err := cosmos.Open(ctx, "http://account.example", cosmos.Key(cosmosrest.EmulatorKey),
		cosmos.Options{Transport: &http.Client{Transport: m}})
	if err != nil {
		return err
	}
	documents, err := client.Container(ctx, docstore.DefaultDatabase, "documents")
	if err != nil {
		return err
	}
	records, err := client.Container(ctx, docstore.DefaultDatabase, "leases")
	if err != nil {
		return err
	}
	leases, err := cosmos.OpenLeases(ctx, records, "sizing", documents, cosmos.LeaseOptions{})
	if err != nil {
		return err
	}
	st.Source, st.Leases = feed.Source(documents), leases
	err = play(m)
	return errors.Join(err, st.Stop())
}

// The requests and the request units of an idle unit are those of the formulas, within 5 and 10 percent.
func TestAnIdleUnitCostsWhatTheFormulasSay(t *testing.T) {
	if testing.Short() {
		t.Skip("plays minutes of a unit over HTTP, which takes seconds: left out with -short")
	}
	sizes := []struct{ leases, instances int }{{4, 1}, {20, 2}}
	if *sizingLarge {
		sizes = append(sizes, struct{ leases, instances int }{100, 3})
	}
	for _, size := range sizes {
		t.Run(fmt.Sprintf("%d leases of %d instances", size.leases, size.instances), func(t *testing.T) {
			const minutes = 12
			var requests, units float64
			site := &bench.Site{}
			err := onStage(t.Context(), site, size.leases, func(ctx context.Context, st *stage) error {
				return metered(ctx, st, func(m *chargeMeter) error {
					if err := st.gather(ctx, size.instances); err != nil {
						return err
					}
					if err := pause.For(ctx, 3*time.Minute); err != nil {
						return err
					}
					before, spent := m.read()
					err := pause.For(ctx, minutes*time.Minute)
					requests, units = m.read()
					requests, units = (requests-before)/minutes, (units-spent)/minutes
					return err
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			l, i := float64(size.leases), float64(size.instances)
			near := func(what string, got, want, part float64) {
				t.Logf("%s a minute: %.1f, by the formula %.1f", what, got, want)
				if math.Abs(got-want) > part*want {
					t.Errorf("%s a minute: %.1f, want %.1f within %.0f %%", what, got, want, part*100)
				}
			}
			near("requests", requests, idleWrites(l, i)+idleLooks(i)+idleLists(i), 0.05)
			near("request units", units, idleUnits(l, i), 0.1)
		})
	}
}

// A lease that works writes once for each batch instead of once in a renewal, and each instance looks at what was
// written, a few times a second at most.
func TestAWorkingUnitWritesOncePerBatch(t *testing.T) {
	if testing.Short() {
		t.Skip("plays minutes of a unit over HTTP, which takes seconds: left out with -short")
	}
	pauses := []time.Duration{time.Second}
	if *sizingLarge {
		pauses = append(pauses, 50*time.Millisecond)
	}
	for _, every := range pauses {
		t.Run(fmt.Sprintf("a change every %v", every), func(t *testing.T) { workAt(t, every) })
	}
}

// workAt compares the requests of an instance with four leases, one of which gets a change every so often.
func workAt(t *testing.T, every time.Duration) {
	t.Helper()
	const leases, minutes = 4, 3
	var requests, batches float64
	err := onStage(t.Context(), &bench.Site{}, leases, func(ctx context.Context, st *stage) error {
		var handled atomic.Int64
		st.options.Start = feed.FromBeginning()
		st.handler = feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			handled.Add(1)
			return nil
		})
		return metered(ctx, st, func(m *chargeMeter) error {
			if err := st.gather(ctx, 1); err != nil {
				return err
			}
			if err := pause.For(ctx, 3*time.Minute); err != nil {
				return err
			}
			before, _ := m.read()
			first := handled.Load()
			for i := range int(minutes * time.Minute / every) { // changes of one key, so of one lease
				body := fmt.Appendf(nil, `{"id":"%d","city":"Oslo"}`, i)
				if _, err := st.documents.Create(ctx, body); err != nil {
					return err
				}
				if err := pause.For(ctx, every); err != nil {
					return err
				}
			}
			requests, _ = m.read()
			requests, batches = (requests-before)/minutes, float64(handled.Load()-first)/minutes
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	const most = 60 * 4.5 // looks of a minute: an instance gathers what is written within some 0.2 s
	looks := min(batches+renewals, most)
	want := batches + idleWrites(leases-1, 1) + 2*looks + idleLists(1)
	t.Logf("%.1f batches and %.1f requests a minute, by the formula %.1f", batches, requests, want)
	// In the same instant of virtual time a look comes before or after the write that it looks for. A look that comes
	// before is followed by one more.
	if batches < 50 || requests < 0.9*want || requests > 1.05*(want+looks) {
		t.Errorf("%.1f requests a minute for %.1f batches, want %.1f, or a third look for each batch: %.1f", requests,
			batches, want, want+looks)
	}
}
