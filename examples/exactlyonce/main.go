// The exactlyonce example counts orders in an SQLite database, each exactly once, because the count and its progress
// are stored in the same transaction. The example writes an order per second and prints the totals. If you start the
// example again, even after kill -9, the count continues where it stopped.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// run opens both databases and works until ctx ends.
func run(ctx context.Context) error {
	db, err := openTotals("totals.sqlite")
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := docstore.Open("orders-data", docstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	orders, leases, err := openOrders(ctx, store)
	if err != nil {
		return err
	}
	p, err := changefeed.New(orders, leases, &counter{db},
		changefeed.Options{Instance: "counter", Start: feed.FromBeginning()})
	if err != nil {
		return err
	}
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { write(ctx, orders, db) })
	return p.Run(ctx) // returns when ctx ends
}

// openOrders opens the containers of orders and leases. The first run creates them.
func openOrders(ctx context.Context, store *docstore.DB) (*docstore.Container, *docstore.Leases, error) {
	orders, err := open(ctx, store, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		return nil, nil, err
	}
	records, err := open(ctx, store, docstore.LeaseSpec("leases"))
	if err != nil {
		return nil, nil, err
	}
	leases, err := docstore.NewLeases(ctx, records, "counter", orders)
	return orders, leases, err
}

func open(ctx context.Context, store *docstore.DB, spec docstore.ContainerSpec) (*docstore.Container, error) {
	c, err := store.CreateContainer(ctx, spec)
	if errors.Is(err, feed.ErrConflict) {
		return store.Container(spec.ID)
	}
	return c, err
}

// write writes an order per second, and prints the present totals.
func write(ctx context.Context, orders *docstore.Container, db *sql.DB) {
	for n := range 60 {
		body := fmt.Appendf(nil, `{"id":"%d-%d","city":"Oslo"}`, time.Now().UnixNano(), n)
		if _, err := orders.Upsert(ctx, body); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		total, err := total(ctx, db, feed.Key("Oslo"))
		fmt.Println(total, "orders counted of", orders.Count(), "written", err)
	}
}
