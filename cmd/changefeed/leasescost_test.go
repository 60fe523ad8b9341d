package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// What the commands leases ask of an account for a unit with 1,000 leases, of which no instance runs. The limits are
// some above what they cost today: see docs/benchmarks.md, which has the figures of
//
//	go test -v -run TestWhatTheCommandsOfALargeUnitCost ./cmd/changefeed
func TestWhatTheCommandsOfALargeUnitCost(t *testing.T) {
	if detector.On {
		t.Skip("counts requests for a minute, and shows the race detector no more than smaller units do")
	}
	t.Parallel()
	const leases = 1000
	server := cosmostest.NewTestServer(t)
	m := newMeter(t, server.URL)
	dir := t.TempDir()
	snapshot, documents := filepath.Join(dir, "snapshot.json"), filepath.Join(dir, "in.ndjson")
	writeSnapshot(t, snapshot, leases)
	if err := os.WriteFile(documents, []byte(`{"id":"1","pk":"a"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", documents, m.url+"/shop/orders", "--pk", "/pk")
	command(t, "create", m.url+"/shop/leases", "--pk", "/id")
	at := func(sub string, more ...string) []string {
		return append(append(strings.Fields(sub), m.url+"/shop/leases", "--name", "mailer"), more...)
	}
	for _, tt := range []struct {
		name     string
		args     []string
		requests int
		charge   float64
	}{
		{
			"restore (makes the unit)", at("leases restore "+snapshot, "--source", m.url+"/shop/orders", "--yes"),
			2100, 8000,
		},
		{"list", []string{"leases", "list", m.url + "/shop/leases", "-o", "json"}, 1100, 5000},
		{"watch, a round", []string{"leases", "watch", m.url + "/shop/leases", "--max", "1", "-o", "json"}, 1100, 5000},
		{"explain", at("leases explain"), 1100, 5000},
		{"snapshot", at("leases snapshot"), 20, 2000},
		{"pause", at("leases pause"), 1100, 10000},
		{"resume", at("leases resume"), 1100, 10000},
		{"reset", at("leases reset", "--to", "beginning", "--yes"), 2100, 20000},
		{"restore", at("leases restore "+snapshot, "--yes"), 2100, 20000},
		{"gc", at("leases gc", "--yes"), 60, 6000},
		{"doctor", []string{"doctor", m.url}, 1100, 5000},
	} {
		m.reset()
		begun := time.Now()
		if _, said, err := call(t, tt.args...); err != nil {
			t.Fatalf("%s: %v: %s", tt.name, err, said)
		}
		requests, charge := m.read()
		t.Logf("%-26s %5d requests %8.0f RU  %v", tt.name, requests, charge, time.Since(begun).Round(time.Millisecond))
		if requests > tt.requests || charge > tt.charge {
			t.Errorf("%s: %d requests and %.0f RU, want at most %d and %.0f", tt.name, requests, charge, tt.requests,
				tt.charge)
		}
	}
}

// writeSnapshot writes the snapshot of a unit that has handled nothing.
func writeSnapshot(t *testing.T, path string, leases int) {
	t.Helper()
	s := admin.Snapshot{Version: 1, Mode: feed.LatestVersion.String(), Taken: time.Now()}
	for _, r := range feed.FullRange().Cut(leases) {
		s.Leases = append(s.Leases, admin.Place{Range: r.String(), Start: feed.FromBeginning().String()})
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := s.WriteTo(f); err != nil {
		t.Fatal(err)
	}
}

// A meter counts the requests that it passes on to a server, and what they are charged.
type meter struct {
	url string

	mu       sync.Mutex
	requests int
	charge   float64
}

// newMeter starts a meter before a server.
func newMeter(t *testing.T, server string) *meter {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // the server names this address as its own
		},
		ModifyResponse: func(r *http.Response) error {
			charge, _ := strconv.ParseFloat(r.Header.Get("x-ms-request-charge"), 64) // 0 for what has no charge
			m.mu.Lock()
			defer m.mu.Unlock()
			m.requests, m.charge = m.requests+1, m.charge+charge
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

// reset begins a new count.
func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.charge = 0, 0
}

// read returns the counts.
func (m *meter) read() (requests int, charge float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests, m.charge
}
