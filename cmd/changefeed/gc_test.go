package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
)

// A clean-up that fails half-way says what it has removed, and of everything else that it is left.
func TestACleanUpThatFailsSaysWhatItHasDone(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var replaced atomic.Int64 // documents since the clean-up has begun
	const before = -1000
	replaced.Store(before)
	through := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the server names this address as its own
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && replaced.Add(1) == 2 {
			http.Error(w, `{"message":"out of order"}`, http.StatusInternalServerError)
			return
		}
		through.ServeHTTP(w, r)
	}))
	defer front.Close()
	orders, leases := front.URL+"/shop/orders", front.URL+"/shop/leases"
	snapshot := filepath.Join(t.TempDir(), "snapshot.json")
	writeSnapshot(t, snapshot, 3)
	command(t, "import", writeFile(t, `{"id":"1","pk":"a"}`), orders, "--pk", "/pk")
	command(t, "create", leases, "--pk", "/id")
	command(t, "leases", "restore", snapshot, leases, "--name", "mailer", "--source", orders, "--yes")
	command(t, "leases", "pause", leases, "--name", "mailer")
	for line := range strings.Lines(command(t, "leases", leases, "-o", "json")) {
		var row struct{ Kind, ID string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row.Kind == "request" { // without it, its marks are of no use
			command(t, "delete", leases, row.ID, "--yes")
		}
	}
	replaced.Store(0)
	var out, errs bytes.Buffer
	code := execute(t.Context(), []string{"leases", "gc", leases, "--name", "mailer", "--yes"}, &out, &errs)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if code != exitFailed || !strings.Contains(errs.String(), "out of order") || len(lines) != 3 {
		t.Fatalf("exit code %d, %s, %s, want %d, the error, and three lines", code, errs.String(), lines, exitFailed)
	}
	for i, want := range []string{"removed mark ", "left mark ", "left mark "} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("got %q, want %q", lines[i], want)
		}
	}
	again := command(t, "leases", "gc", leases, "--name", "mailer", "--yes")
	if strings.Count(again, "removed mark ") != 2 {
		t.Errorf("the next clean-up: got %s, want the rest", again)
	}
}
