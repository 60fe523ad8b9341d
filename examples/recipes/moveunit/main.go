// The moveunit recipe: a processor that continues where a unit of .NET, Java or Azure Functions has stopped, and leaves
// leases that they can continue. docs/recipes/from-dotnet.md describes the recipe.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	account    = flag.String("account", "", "address of an account with shop/orders; COSMOS_KEY has its key")
	listen     = flag.String("listen", "127.0.0.1:8094", "without -account: where the local store is served")
	data       = flag.String("data", "moveunit-data", "folder of the local store and of handled.txt")
	name       = flag.String("name", "", "name of the unit; empty for a function without a leaseContainerPrefix")
	from       = flag.String("from", "", "where leases without a position begin: beginning, now or a time")
	length     = flag.Duration("for", changefeed.Never, "end after this time, or before on Ctrl-C")
	expiration = flag.Duration("expiration", time.Minute, "how long a killed process keeps its leases")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	time.AfterFunc(*length, stop)
	must(0, os.MkdirAll(*data, 0o777))
	key := cmp.Or(os.Getenv("COSMOS_KEY"), cosmosrest.EmulatorKey)
	if *account == "" { // serve a local store, so that the changefeed command can write leases meanwhile
		db := must(docstore.Open(filepath.Join(*data, "store"), docstore.Options{}))
		defer db.Close()
		spec := docstore.ContainerSpec{Database: "shop", ID: "orders", Paths: []string{"/city"}, Ranges: 4}
		_, database := db.CreateDatabase(ctx, spec.Database, nil)
		_, container := db.CreateContainer(ctx, spec)
		if err := errors.Join(database, container); !errors.Is(err, feed.ErrConflict) { // of an earlier run
			must(0, err)
		}
		server := must(cosmosrest.New(db, cosmosrest.Options{Keys: cosmosrest.Keys{Primary: key}}))
		listener := must(net.Listen("tcp", *listen))
		var serving sync.WaitGroup
		defer serving.Wait()
		defer listener.Close()
		serving.Go(func() { _ = http.Serve(listener, server) }) // until listener is closed
		*account = "http://" + *listen
	}
	client := must(cosmos.Open(ctx, *account, cosmos.Key(key), cosmos.Options{}))
	defer client.Close()
	orders := must(client.Container(ctx, "shop", "orders"))
	container := must(client.CreateLeaseContainer(ctx, "shop", "leases")) // an existing container stays
	leases := must(cosmos.OpenLeases(ctx, container, *name, orders, cosmos.LeaseOptions{Unnamed: *name == ""}))
	var start feed.Start // of leases that have no position; the zero value refuses them
	if *from != "" {
		start = must(feed.ParseStart(*from))
	}
	file := must(os.OpenFile(filepath.Join(*data, "handled.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666))
	out := io.MultiWriter(file, os.Stdout)
	handle := func(_ context.Context, b *feed.Batch) error {
		for i, c := range b.Changes {
			if _, err := fmt.Fprintln(out, c.LSN, c.ID); err != nil {
				return &feed.Failure{Done: i, Err: err}
			}
		}
		return nil
	}
	must(0, must(changefeed.New(orders, leases, feed.HandlerFunc(handle), changefeed.Options{
		Start: start, MaxItems: 20, Acquire: *expiration / 5, Renew: *expiration / 4, Expiration: *expiration,
	})).Run(ctx))
}

// must ends the program if a part cannot be opened.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
