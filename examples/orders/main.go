// The orders example: a store of orders, and a processor that mails each of them. It
// writes a few orders and prints what the handler gets, until Ctrl-C. Started again, it
// goes on where it stopped.
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

// run opens the store and works until ctx ends. The store is closed last, when nothing uses it.
func run(ctx context.Context) error {
	db, err := docstore.Open("orders-data", docstore.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	// A lease is made for each range, so up to four instances can share the work.
	orders, err := open(ctx, db, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: 4})
	if err != nil {
		return err
	}
	// With this default an item expires only if it has a ttl of its own: presence
	// records of instances do, leases do not.
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
	// The name says whose a lease is. Two processes on one host need two.
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
	return p.Run(ctx) // until ctx ends: batches in hand finish, leases are freed
}

// open creates a container, or opens it when it exists since an earlier run.
func open(ctx context.Context, db *docstore.DB, spec docstore.ContainerSpec) (*docstore.Container, error) {
	c, err := db.CreateContainer(ctx, spec)
	if errors.Is(err, feed.ErrConflict) {
		return db.Container(spec.ID)
	}
	return c, err
}

// mail is the handler. An error would have the batch delivered again.
func mail(_ context.Context, b *feed.Batch, items []changefeed.Item[order]) error {
	for _, it := range items {
		fmt.Printf("lease %s: mail order %s of %s for a %s\n", b.LeaseToken, it.Value.ID, it.Value.City, it.Value.Item)
	}
	return nil // done: the position is stored
}

// write makes an order a second.
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
