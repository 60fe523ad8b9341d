package deadletters_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A container keeps the letters of a processor, one document each.
func ExampleContainer() {
	ctx := context.Background()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	c, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "letters", Paths: []string{deadletters.KeyPath}})
	if err != nil {
		fmt.Println(err)
		return
	}
	orders, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	letters, err := deadletters.Container(c, "mailer", orders) // those of the unit that reads orders
	if err != nil {
		fmt.Println(err)
		return
	}
	// A processor does this when its handler cannot handle a change.
	order := feed.Change{
		ID: "order-7", PartitionKey: feed.Key("London"), LSN: 12,
		Body: json.RawMessage(`{"id":"order-7","city":"London"}`),
	}
	err = letters.Put(ctx, feed.DeadLetter{
		ID: "12.0", Change: order, Disposition: feed.DispositionFailed,
		Cause: "no such address", Attempts: 5,
	})
	if err != nil {
		fmt.Println(err)
	}
	for l, err := range letters.Letters(ctx, feed.Key("London")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s of %s %s after %d attempts: %s\n", l.Change.ID, l.Change.PartitionKey, l.Disposition, l.Attempts,
			l.Cause)
	}
	// Output: order-7 of ["London"] failed after 5 attempts: no such address
}
