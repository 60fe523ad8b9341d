package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/cosmosrest/faulty"
)

// A server takes orders for faults only if its user has allowed that.
func TestAServerFailsOnOrderIfThatIsAllowed(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		want  int // status of the request after the order
	}{
		{[]string{"--faults"}, http.StatusServiceUnavailable},
		{nil, http.StatusUnauthorized}, // the request has no signature
	} {
		ctx, stop := context.WithCancel(t.Context())
		out, to := io.Pipe()
		_, ended := begin(ctx, to, append([]string{"serve", "--http", "--listen", "127.0.0.1:0", "-o", "json"},
			tt.flags...)...)
		line, err := bufio.NewReader(out).ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var told web.Endpoints
		if err := json.Unmarshal(line, &told); err != nil {
			t.Fatal(err)
		}
		at := strings.TrimSuffix(told.Endpoint, "/")
		order, err := http.NewRequestWithContext(ctx, http.MethodPost, at+faulty.ControlPath,
			strings.NewReader(`{"status":503}`))
		if err != nil {
			t.Fatal(err)
		}
		order.Header.Set("Authorization", "Bearer "+told.Key)
		status := 0
		for _, req := range []func() (*http.Response, error){
			func() (*http.Response, error) { return http.DefaultClient.Do(order) },
			func() (*http.Response, error) { return http.Get(at + "/dbs") },
		} {
			resp, err := req()
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			status = resp.StatusCode
		}
		if status != tt.want {
			t.Errorf("%v: status %d, want %d", tt.flags, status, tt.want)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// An account is busiest when all instances of a service start at once.
func TestAThrottledAccountIsOpenedAfterItsPauses(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	t.Setenv(place.ConnectionVariable, "AccountEndpoint="+server.URL+"/;AccountKey="+server.Key+";")
	orders, err := server.FreshContainer(t.Context(), "/city")
	if err != nil {
		t.Fatal(err)
	}
	const times = 12 // the client gives up after five
	err = server.Faults.Add(faulty.Fault{
		Container: "tests/" + orders.ID(), Method: http.MethodGet, Status: http.StatusTooManyRequests,
		RetryAfter: time.Millisecond, Times: times,
	})
	if err != nil {
		t.Fatal(err)
	}
	command(t, "run", "--source", "cosmos:tests/"+orders.ID(), "--name", "mailer", "--create-leases", "--once", "--",
		"cat")
	if left := server.Faults.Pending(); len(left) > 0 {
		t.Errorf("%v are left of %d", left, times)
	}
}
