package admin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// orders returns a container, and the leases of a unit that reads it and has stopped.
func orders(ctx context.Context) (_ feed.Source, _ feed.LeaseStore, end func() error) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		log.Fatal(err)
	}
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
	return orders, leases, db.Close
}

// A unit is paused, and resumed with a replay of everything. No instance runs here; running instances obey.
func Example() {
	ctx := context.Background()
	orders, leases, end := orders(ctx)
	defer end()
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

// A program lists the leases of a unit, says what is wrong with them, and explains one in sentences.
func ExampleUnit_List() {
	ctx := context.Background()
	orders, leases, end := orders(ctx)
	defer end()
	unit := admin.Open(orders, leases, admin.Options{})
	all, err := unit.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range all.Leases {
		fmt.Printf("%s of %q: %s at %s, %d behind\n", l.Token, l.Owner, l.State, l.Position, l.Lag.Pending)
	}
	for _, f := range all.Findings() {
		fmt.Printf("%s %s: %s: %s\n", f.Word, f.Token, f.Text, f.Next)
	}
	explained, err := unit.Explain(ctx, "-FF")
	if err != nil {
		log.Fatal(err)
	}
	for _, fact := range explained[0].Facts[1:] {
		fmt.Println(fact)
	}
	fmt.Println("Next:", explained[0].Next[0])
	// Output:
	// -FF of "": stopped at "0", 0 behind
	// stopped -FF: no instance runs: start an instance
	// The lease is at position "0", and no change comes after it.
	// Stopped: no instance runs, nothing is waiting.
	// Next: Start an instance of the unit.
}
