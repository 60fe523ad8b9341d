// The archive recipe writes each change of a container into a file once, in folders by date, as Parquet or as
// newline-delimited JSON.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	folder  = flag.String("folder", "archive-data", "local store, in which the recipe also writes orders")
	account = flag.String("account", "", "address of an account, instead of the folder; COSMOS_KEY has its key")
	expire  = flag.Duration("expire", time.Minute, "how long a killed instance keeps its leases")
	length  = flag.Duration("for", 1<<62, "how long to run; by default until Ctrl-C")
	target  = flag.String("to", "archive-files", "folder of the files; a container needs a folder of its own")
	format  = "parquet" // or ndjson
	wait    = flag.Duration("wait", 10*time.Second, "how long a file waits for more changes")
)

// working are the goroutines that end when the context ends.
var working sync.WaitGroup

func main() {
	flag.BoolFunc("ndjson", "write NDJSON instead of Parquet", func(string) error { format = "ndjson"; return nil })
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	time.AfterFunc(*length, stop)
	orders, leases, store := open(ctx, "archive-"+format)
	p := must(changefeed.New(orders, leases, archive{}, changefeed.Options{
		Mode: feed.AllVersionsAndDeletes, Expiration: *expire, Renew: *expire / 4, Acquire: *expire / 5, MaxWait: *wait,
	}))
	must(0, p.Run(ctx)) // returns when ctx ends
	working.Wait()
	must(0, store.Close())
}

// open opens the containers of the account, or those of the folder, which the first run creates.
func open(ctx context.Context, unit string) (orders feed.Source, leases feed.LeaseStore, store io.Closer) {
	if *account != "" {
		key := cmp.Or(os.Getenv("COSMOS_KEY"), cosmosrest.EmulatorKey) // of changefeed serve
		client := must(cosmos.Open(ctx, *account, cosmos.Key(key), cosmos.Options{}))
		source := must(client.Container(ctx, "shop", "orders"))
		records := must(client.Container(ctx, "shop", "leases"))
		return source, must(cosmos.OpenLeases(ctx, records, unit, source, cosmos.LeaseOptions{})), io.NopCloser(nil)
	}
	db := must(docstore.Open(*folder, docstore.Options{}))
	// An item expires only with a ttl of its own, as the records of ended instances have.
	find := func(id string, keep time.Duration, path ...string) *docstore.Container {
		spec := docstore.ContainerSpec{ID: id, Paths: path, DefaultTTL: new(-1), Retention: keep}
		c, err := db.CreateContainer(ctx, spec)
		if errors.Is(err, feed.ErrConflict) {
			c, err = db.Container(id)
		}
		return must(c, err)
	}
	source := find("orders", 24*time.Hour, "/id")
	working.Go(func() { write(ctx, source) })
	return source, must(docstore.NewLeases(ctx, find("leases", 0, "/id"), unit, source)), db
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// write writes an order now and then, and deletes some. It ends when ctx ends.
func write(ctx context.Context, orders feed.Committer) {
	for err := error(nil); err == nil; time.Sleep(200 * time.Millisecond) {
		id := fmt.Sprint(rand.IntN(50))
		body := fmt.Appendf(nil, `{"id":%q,"total":%d}`, id, rand.IntN(100))
		writes := []feed.Write{{Body: body}, {Op: feed.WriteDelete, ID: id}}
		_, err = orders.Commit(ctx, feed.Key(id), writes[:1+rand.IntN(2)])
	}
}
