package changefeed_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// order is a document of the examples.
type order struct {
	ID   string `json:"id"`
	City string `json:"city"`
	Item string `json:"item"`
}

// shop opens a store in a folder of its own, with a container of orders and one for
// leases.
func shop(ctx context.Context) (orders, leases *docstore.Container, done func()) {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if orders, err = db.CreateContainer(ctx, docstore.ContainerSpec{
		ID: "orders", Paths: []string{"/city"}, Ranges: 4,
		Retention: time.Hour,
	}); err != nil {
		log.Fatal(err)
	}
	leases, err = db.CreateContainer(ctx, docstore.ContainerSpec{
		ID: "leases", Paths: []string{"/id"},
		DefaultTTL: new(docstore.NoDefaultTTL),
	})
	if err != nil {
		log.Fatal(err)
	}
	return orders, leases, func() { db.Close(); os.RemoveAll(dir) }
}

// A processor hands every change to its handler, from the first one on.
func ExampleProcessor() {
	ctx, stop := context.WithCancel(context.Background())
	orders, container, done := shop(ctx)
	defer done()
	leases, err := docstore.NewLeases(ctx, container, "mailer", orders)
	if err != nil {
		log.Fatal(err)
	}

	handler := changefeed.Items(func(_ context.Context, b *feed.Batch, items []changefeed.Item[order]) error {
		for _, it := range items {
			fmt.Printf("%s: %s for %s\n", it.PartitionKey, it.Value.Item, it.ID)
		}
		stop() // one batch is enough for an example
		return nil
	})
	p, err := changefeed.New(orders, leases, handler, changefeed.Options{
		Instance: "host-1",
		Start:    feed.FromBeginning(),
	})
	if err != nil {
		log.Fatal(err)
	}

	if _, err := orders.Upsert(ctx, []byte(`{"id":"7","city":"Oslo","item":"lamp"}`)); err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil { // until ctx ends
		log.Fatal(err)
	}
	// Output: ["Oslo"]: lamp for 7
}

// Pull reads a feed without leases.
func ExamplePull() {
	ctx := context.Background()
	orders, _, done := shop(ctx)
	defer done()
	for n := range 3 {
		body := fmt.Sprintf(`{"id":"%d","city":"Oslo","item":"lamp"}`, n)
		if _, err := orders.Upsert(ctx, []byte(body)); err != nil {
			log.Fatal(err)
		}
	}
	from := feed.Position{Start: feed.FromBeginning()}
	for page, err := range changefeed.Pull(ctx, orders, feed.FullRange(), from, changefeed.PullOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range page.Changes {
			fmt.Println(c.LSN, c.PartitionKey, c.ID)
		}
	}
	// Output:
	// 1 ["Oslo"] 0
	// 2 ["Oslo"] 1
	// 3 ["Oslo"] 2
}

// Estimate tells how far a unit is behind, whether or not it runs.
func ExampleEstimate() {
	ctx, stop := context.WithCancel(context.Background())
	orders, container, done := shop(ctx)
	defer done()
	leases, err := docstore.NewLeases(ctx, container, "mailer", orders)
	if err != nil {
		log.Fatal(err)
	}
	nothing := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
	p, err := changefeed.New(orders, leases, nothing, changefeed.Options{
		Instance: "host-1",
		Hooks:    changefeed.Hooks{Ready: func(context.Context) { stop() }}, // the leases exist: enough
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}

	ctx = context.Background()
	for n := range 5 {
		if _, err := orders.Upsert(ctx, fmt.Appendf(nil, `{"id":"%d","city":"Oslo"}`, n)); err != nil {
			log.Fatal(err)
		}
	}
	lags, err := changefeed.Estimate(ctx, orders, leases)
	if err != nil {
		log.Fatal(err)
	}
	pending := int64(0)
	for _, l := range lags {
		pending += l.Pending
	}
	fmt.Printf("%d leases, %d changes pending\n", len(lags), pending)
	// Output: 4 leases, 5 changes pending
}

// CaughtUp waits until a unit has handled what was written before: a test needs no sleep.
func ExampleProcessor_CaughtUp() {
	ctx, stop := context.WithCancel(context.Background())
	orders, container, done := shop(ctx)
	defer done()
	leases, err := docstore.NewLeases(ctx, container, "counter", orders)
	if err != nil {
		log.Fatal(err)
	}
	var handled atomic.Int64
	count := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		handled.Add(int64(len(b.Changes)))
		return nil
	})
	p, err := changefeed.New(orders, leases, count, changefeed.Options{Instance: "host-1", Start: feed.FromBeginning()})
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			log.Fatal(err)
		}
	})
	for n := range 5 {
		if _, err := orders.Upsert(ctx, fmt.Appendf(nil, `{"id":"%d","city":"Oslo"}`, n)); err != nil {
			log.Fatal(err)
		}
	}

	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := p.CaughtUp(within); err != nil {
		log.Fatal(err) // it names a lease that is behind
	}
	fmt.Println(handled.Load(), "changes handled")
	stop()
	running.Wait()
	// Output: 5 changes handled
}

// CaughtUp as a function needs no processor: here it says that nobody has run the unit.
func ExampleCaughtUp() {
	ctx := context.Background()
	orders, container, done := shop(ctx)
	defer done()
	leases, err := docstore.NewLeases(ctx, container, "mailer", orders)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(changefeed.CaughtUp(ctx, orders, leases))
	// Output:
	// wait until the unit has caught up: not found: the unit has no leases: no processor has run under its name
}

// An all-versions-and-deletes processor sees every version, and deletes with what was
// deleted.
func ExampleMode() {
	ctx, stop := context.WithCancel(context.Background())
	orders, container, done := shop(ctx)
	defer done()
	leases, err := docstore.NewLeases(ctx, container, "audit", orders)
	if err != nil {
		log.Fatal(err)
	}
	handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		for _, c := range b.Changes {
			fmt.Println(c.Op, c.ID)
			if c.Op == feed.OpDelete {
				stop()
			}
		}
		return nil
	})
	write := func(context.Context) { // when the leases exist: all versions and deletes starts from now
		_, err := orders.Commit(ctx, feed.Key("Oslo"), []feed.Write{
			{Op: feed.WriteCreate, Body: []byte(`{"id":"7","city":"Oslo","item":"lamp"}`)},
			{Op: feed.WriteUpsert, Body: []byte(`{"id":"7","city":"Oslo","item":"desk"}`)},
			{Op: feed.WriteDelete, ID: "7"},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	p, err := changefeed.New(orders, leases, handler, changefeed.Options{
		Instance: "host-1", Mode: feed.AllVersionsAndDeletes, Hooks: changefeed.Hooks{Ready: write},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// create 7
	// replace 7
	// delete 7
}
