package cosmosrest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A store behind the protocol: what a client writes is in the store, and the other way
// round. Any SDK does for the client.
func Example() {
	ctx := context.Background()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.CreateDatabase(ctx, "shop", nil); err != nil {
		log.Fatal(err)
	}
	stored, err := db.CreateContainer(ctx, docstore.ContainerSpec{
		Database: "shop", ID: "orders",
		Paths: []string{"/city"},
	})
	if err != nil {
		log.Fatal(err)
	}
	server, err := cosmosrest.New(db, cosmosrest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(server)
	defer web.Close()

	client, err := cosmos.OpenString(ctx, cosmosrest.ConnectionString(web.URL, cosmosrest.EmulatorKey),
		cosmos.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders, err := client.Container(ctx, "shop", "orders")
	if err != nil {
		log.Fatal(err)
	}
	order := feed.Write{Op: feed.WriteCreate, Body: json.RawMessage(`{"id":"1","city":"Oslo","total":12}`)}
	if _, err := orders.Commit(ctx, `["Oslo"]`, []feed.Write{order}); err != nil {
		log.Fatal(err)
	}

	item, err := stored.Item(ctx, `["Oslo"]`, "1")
	if err != nil {
		log.Fatal(err)
	}
	var found struct{ Total int }
	if err := json.Unmarshal(item.Body, &found); err != nil {
		log.Fatal(err)
	}
	fmt.Println("order 1 is in the store, total", found.Total)
	// Output: order 1 is in the store, total 12
}
