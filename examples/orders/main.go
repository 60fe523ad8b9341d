// The orders example: a store of orders, and a processor that mails each order. The example writes a few orders and
// prints the changes that the handler receives, until you press Ctrl-C. If you start the example again, the processor
// continues where it stopped.
package main

import (
	"context"
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

// order is a document of the store.
type order struct {
	ID   string `json:"id"`
	City string `json:"city"`
	Item string `json:"item"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// run opens the store and works until ctx ends. run closes the store last, when no part uses the store any more.
func run(ctx context.Context) error {
	db, err := docstore.Open("orders-data", docstore.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	// Each range has a lease, so up to four instances can share the work.
	orders, err := open(ctx, db, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: 4})
	if err != nil {
		return err
	}
	// With this default, an item expires only with a ttl of its own: the presence records of instances do, leases do
	// not.
	container, err := open(ctx, db, docstore.ContainerSpec{
		ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL),
	})
	if err != nil {
		return err
	}
	leases, err := docstore.NewLeases(ctx, container, "mailer", orders)
	if err != nil {
		return err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	// The instance name identifies the owner of a lease. Two processes on the same host need two names.
	p, err := changefeed.New(orders, leases, changefeed.Items(mail), changefeed.Options{
		Instance: hostname,
		Start:    feed.FromBeginning(),
	})
	if err != nil {
		return err
	}

	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { write(ctx, orders) })
	return p.Run(ctx) // returns when ctx ends: running batches finish, and leases are released
}

// open creates a container, or opens the container of an earlier run.
func open(ctx context.Context, db *docstore.DB, spec docstore.ContainerSpec) (*docstore.Container, error) {
	c, err := db.CreateContainer(ctx, spec)
	if errors.Is(err, feed.ErrConflict) {
		return db.Container(spec.ID)
	}
	return c, err
}

// mail is the handler. After an error, the batch would be redelivered.
func mail(_ context.Context, b *feed.Batch, items []changefeed.Item[order]) error {
	for _, it := range items {
		fmt.Printf("lease %s: mail order %s of %s for a %s\n", b.LeaseToken, it.Value.ID, it.Value.City, it.Value.Item)
	}
	return nil // done: the position can be stored
}

// write writes an order per second.
func write(ctx context.Context, orders *docstore.Container) {
	cities := []string{"Oslo", "Rome", "Lima", "Perth"}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := time.Now().Unix(); ; n++ {
		body := fmt.Appendf(nil, `{"id":"%d","city":%q,"item":"lamp"}`, n, cities[n%4])
		if _, err := orders.Upsert(ctx, body); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
