package connect_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/connect"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// The program writes an order, and handles it. With the address of an account in Azure, nothing else changes.
func Example() {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	u, err := connect.Open(ctx, "docstore:"+dir+"#shop/orders", "mailer", connect.Options{
		Create: &docstore.ContainerSpec{Paths: []string{"/city"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer u.Close()
	order := feed.Write{Body: []byte(`{"id":"1","city":"Oslo"}`)}
	if _, err := u.Source.Commit(ctx, feed.Key("Oslo"), []feed.Write{order}); err != nil {
		log.Fatal(err)
	}
	mail := func(_ context.Context, b *feed.Batch) error {
		fmt.Println("mail order", b.Changes[0].ID)
		stop()
		return nil
	}
	options := changefeed.Options{Start: feed.FromBeginning()}
	p, err := changefeed.New(u.Source, u.Leases, feed.HandlerFunc(mail), options)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Run(ctx))
	// Output:
	// mail order 1
	// <nil>
}
