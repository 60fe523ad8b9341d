package admin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A unit is paused, and resumed with a replay of everything. No instance runs here; running instances obey.
func Example() {
	ctx := context.Background()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	orders, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		log.Fatal(err)
	}
	container, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	if err != nil {
		log.Fatal(err)
	}
	leases, err := docstore.NewLeases(ctx, container, "mailer", orders)
	if err != nil {
		log.Fatal(err)
	}
	if err := runOnce(ctx, orders, leases); err != nil {
		log.Fatal(err)
	}

	unit := admin.Open(orders, leases, admin.Options{By: "ada", Reason: "INC-4711"})
	for _, do := range []func() ([]admin.Step, error){
		func() ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) },
		func() ([]admin.Step, error) { return unit.Reset(ctx, admin.All(), feed.FromBeginning()) },
		func() ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) },
	} {
		steps, err := do()
		if err != nil {
			log.Fatal(err)
		}
		for _, s := range steps {
			fmt.Println(s.Action, s.Lease.Token)
		}
	}
	// Output:
	// pause -FF
	// reset -FF
	// resume -FF
}
