package cosmos_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A meter counts requests by what they are for.
type meter struct {
	to    http.RoundTripper
	mu    sync.Mutex
	count map[string]int
}

func (m *meter) RoundTrip(r *http.Request) (*http.Response, error) {
	what := r.Method
	switch {
	case strings.HasSuffix(r.URL.Path, "/pkranges"):
		what = "ranges"
	case r.Header.Get("A-IM") != "":
		what = "feed"
	case r.Header.Get("x-ms-documentdb-isquery") != "":
		what = "query"
	}
	m.mu.Lock()
	for _, container := range []string{"leases", "items"} {
		if strings.Contains(r.URL.Path, "/colls/"+container+"/") {
			m.count[container+" "+what]++
		}
	}
	m.mu.Unlock()
	return m.to.RoundTrip(r)
}

// take returns the requests a minute for each lease, those to the lease container alone,
// and begins anew.
func (m *meter) take(minutes, leases int) (rate float64, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := 0
	for name, n := range m.count {
		if strings.HasPrefix(name, "leases ") {
			sum += n
		}
	}
	what = fmt.Sprint(m.count)
	m.count = map[string]int{}
	return float64(sum) / float64(minutes*leases), what
}

// TestWhatIdleLeasesCost has three instances with 100 idle leases: at most four requests
// to the lease container for each lease and minute, pushed or polled.
func TestWhatIdleLeasesCost(t *testing.T) {
	for _, push := range []bool{false, true} {
		t.Run(fmt.Sprint("push ", push), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { idle(t, push) })
		})
	}
}

func idle(t *testing.T, push bool) {
	const leases, minutes, most = 100, 4, 4.0
	s := serve(t, cosmosrest.Options{})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}, Ranges: 4})
	s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)})
	m := &meter{to: s.transport, count: map[string]int{}}
	if !push {
		m.to = polled(m.to)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for i := range 3 {
		client := s.client(t, master, m)
		items := find(t, client, "items")
		p, err := changefeed.New(items, unit(t, client, "unit"), feed.HandlerFunc((&ledger{t: t}).handle),
			changefeed.Options{
				Instance: fmt.Sprint("host", i), MinLeases: leases,
			})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	time.Sleep(2 * time.Minute)
	m.take(1, leases)
	time.Sleep(minutes * time.Minute)
	rate, what := m.take(minutes, leases)
	t.Logf("%.2f requests for each idle lease and minute: %s", rate, what)
	if rate > most || rate < 1 {
		t.Errorf("%.2f requests for each idle lease and minute, want at most %v", rate, most)
	}
}
