package cosmos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// example is an account to try: changefeed's own server, with a container of orders.
// With Azure, its address and key come from the portal.
func example(ctx context.Context) (connection string, done func()) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}}); err != nil {
		log.Fatal(err)
	}
	server, err := cosmosrest.New(db, cosmosrest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(server)
	return cosmosrest.ConnectionString(web.URL, cosmosrest.EmulatorKey), func() {
		web.Close()
		if err := db.Close(); err != nil {
			log.Fatal(err)
		}
	}
}

// A processor over an account.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	connection, done := example(ctx)
	defer done()

	client, err := cosmos.OpenString(ctx, connection, cosmos.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders, err := client.Container(ctx, "default", "orders")
	if err != nil {
		log.Fatal(err)
	}
	container, err := client.CreateLeaseContainer(ctx, "default", "leases")
	if err != nil {
		log.Fatal(err)
	}
	leases, err := cosmos.OpenLeases(ctx, container, "mailer", orders, cosmos.LeaseOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := leases.SelfTest(ctx, orders, feed.LatestVersion); err != nil {
		log.Fatal(err)
	}

	_, err = orders.Commit(ctx, feed.Key("Ghent"), []feed.Write{
		{Body: json.RawMessage(`{"id":"1","city":"Ghent","item":"bread"}`)},
		{Body: json.RawMessage(`{"id":"2","city":"Ghent","item":"cheese"}`)},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		for _, change := range b.Changes {
			fmt.Println(change.PartitionKey, change.ID)
		}
		stop() // one batch is enough for an example
		return nil
	})
	p, err := changefeed.New(orders, leases, handler, changefeed.Options{
		Instance: "host-1", Start: feed.FromBeginning(),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// ["Ghent"] 1
	// ["Ghent"] 2
}
