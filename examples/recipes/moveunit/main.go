// The moveunit recipe: a processor that continues where a unit of .NET, Java or Azure Functions has stopped, and leaves
// leases that they can continue. docs/recipes/from-dotnet.md describes the recipe.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/connect"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/feed"
)

var (
	source     = flag.String("source", "http://127.0.0.1:8081/shop/orders", "the orders; COSMOS_KEY has the key")
	data       = flag.String("data", "moveunit-data", "folder of handled.txt")
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
	u := must(connect.Open(ctx, *source, *name, connect.Options{
		CreateLeases: true, ForLease: cosmos.LeaseOptions{Unnamed: *name == ""},
	}))
	defer u.Close()
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
	must(0, must(changefeed.New(u.Source, u.Leases, feed.HandlerFunc(handle), changefeed.Options{
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
