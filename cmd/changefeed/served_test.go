package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
	"github.com/millrace/changefeed/dashboard"
)

// The dashboard of a server shows the units of its clients with their lags, and the state of its store. It counts
// requests.
func TestAServerShowsItsStoreAndTheUnitsOfItsClients(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, to := io.Pipe()
	errs, ended := begin(ctx, to, "serve", "--http", "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0", "-o", "json")
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var told web.Endpoints
	if err := json.Unmarshal(line, &told); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	_, url, _ := strings.Cut(errs.String(), "dashboard at ")
	url, _, isTold := strings.Cut(url, `"`)
	if !isTold {
		t.Fatalf("said %q, want where the dashboard is", errs.String())
	}
	orders := strings.TrimSuffix(told.Endpoint, "/") + "/shop/orders"
	command(t, "create", orders, "--pk", "/id")
	command(t, "run", "--source", orders, "--name", "mailer", "--create-leases", "--once", "--", "cat")
	var s dashboard.Status
	asked(t, url+"status", func(_ int, got dashboard.Status) bool {
		s = got
		return len(s.Units) > 0
	})
	if u := s.Units[0]; len(s.Units) != 1 || u.Name != "mailer" || u.Container != "shop/orders" || u.IsHere ||
		len(u.Leases) != 1 || u.Pending == nil || *u.Pending != 0 {
		t.Errorf("units %+v, want that of the client with its lag", s.Units)
	}
	if s.Name != "store in memory" || s.Program != thisBuild().short() || s.Error != nil {
		t.Errorf("%q of %q, %v, want the store of this build", s.Name, s.Program, s.Error)
	}
	asked(t, url+"healthz", func(code int, h dashboard.Health) bool {
		return code == http.StatusOK && len(h.Checks) == 1 && h.Checks[0].Name == "store" && h.Checks[0].OK
	})
	metrics, err := http.Get(url + "metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Body.Close()
	text, err := io.ReadAll(metrics.Body)
	for _, want := range []string{`db_operation_name="create_container"`, "changefeed_store_documents"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the metrics lack %s, %v", want, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve ended with %v", err)
	}
}
