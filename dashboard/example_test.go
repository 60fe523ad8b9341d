package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/dashboard"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A processor with a dashboard: its events go to the page, and an orchestrator asks whether it is ready.
func ExampleDashboard() {
	ctx := context.Background()
	db, _ := docstore.Open("", docstore.Options{InMemory: true})
	defer db.Close()
	orders, _ := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	records, _ := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	leases, _ := docstore.NewLeases(ctx, records, "mailer", orders)

	d := dashboard.New(dashboard.Options{Name: "mailer-7f9c", Version: "mailer v1.4"})
	handler := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
	p, err := changefeed.New(orders, leases, handler, changefeed.Options{Hooks: d.Events("mailer", "orders")})
	if err != nil {
		fmt.Println(err)
		return
	}
	hide := d.Show(dashboard.Unit{
		Name: "mailer", Container: "orders", Source: orders, Leases: leases, Processor: p,
	})
	defer hide()
	server := httptest.NewServer(d) // in a program: http.ListenAndServe("127.0.0.1:8090", d)
	defer server.Close()
	for _, path := range []string{"/", "/readyz"} {
		answer, err := http.Get(server.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = answer.Body.Close()
		fmt.Println(path, answer.Status)
	}
	// The unit is ready some moments after p.Run is called.

	// Output:
	// / 200 OK
	// /readyz 503 Service Unavailable
}
