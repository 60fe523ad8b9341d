package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	account = flag.String("account", "", "address of an account with bank/events and bank/views; COSMOS_KEY has its key")
	listen  = flag.String("listen", "127.0.0.1:8093", "without -account: where the local store is served")
	data    = flag.String("data", "eventsourcing-data", "folder of the local store")
)

// open opens the account. Without an account, open serves a local store, so that the changefeed command can steer the
// unit while the program runs.
func open(ctx context.Context) (client *cosmos.Client, closeStore func() error) {
	key := cmp.Or(os.Getenv("COSMOS_KEY"), cosmosrest.EmulatorKey)
	if *account != "" {
		return must(cosmos.Open(ctx, *account, cosmos.Key(key), cosmos.Options{})), func() error { return nil }
	}
	db := must(docstore.Open(*data, docstore.Options{}))
	_, err := db.CreateDatabase(ctx, "bank", nil)
	for _, id := range []string{"events", "views"} {
		spec := docstore.ContainerSpec{Database: "bank", ID: id, Paths: []string{"/stream"}, Ranges: 2}
		if err == nil || errors.Is(err, feed.ErrConflict) { // of an earlier run
			_, err = db.CreateContainer(ctx, spec)
		}
	}
	if !errors.Is(err, feed.ErrConflict) {
		must(0, err)
	}
	server := must(cosmosrest.New(db, cosmosrest.Options{Keys: cosmosrest.Keys{Primary: key}}))
	listener := must(net.Listen("tcp", *listen))
	var serving sync.WaitGroup
	serving.Go(func() { _ = http.Serve(listener, server) }) // until listener is closed
	return must(cosmos.Open(ctx, "http://"+*listen, cosmos.Key(key), cosmos.Options{})), func() error {
		err := listener.Close()
		serving.Wait()
		return errors.Join(err, db.Close())
	}
}

// must ends the program if a part cannot be opened.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
