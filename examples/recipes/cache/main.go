// The cache recipe keeps a copy of each item of a container in Redis, deletes and times to live included. A redelivered
// change never replaces a newer value, because the copy has the LSN of its version beside it.
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

	"github.com/redis/go-redis/v9"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	folder  = flag.String("folder", "cache-data", "local store, in which the recipe also writes products")
	account = flag.String("account", "", "address of an account, instead of the folder; COSMOS_KEY has its key")
	expire  = flag.Duration("expire", time.Minute, "how long a killed instance keeps its leases")
	length  = flag.Duration("for", 1<<62, "how long to run; by default until Ctrl-C")
	address = flag.String("redis", "127.0.0.1:6379", "address of Redis")
)

// working are the goroutines that end when the context ends.
var working sync.WaitGroup

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	time.AfterFunc(*length, stop)
	products, leases, store := open(ctx)
	c := cache{redis.NewClient(&redis.Options{Addr: *address})}
	must(c.redis.Ping(ctx).Result())
	p := must(changefeed.New(products, leases, feed.HandlerFunc(c.handle), changefeed.Options{
		Mode: feed.AllVersionsAndDeletes, Expiration: *expire, Renew: *expire / 4, Acquire: *expire / 5,
		Hooks: feed.Hooks{Ready: func(context.Context) {
			working.Go(func() { c.fill(ctx, products) })
		}},
	}))
	must(0, p.Run(ctx)) // returns when ctx ends
	working.Wait()
	must(0, store.Close())
}

// open opens the containers of the account, or those of the folder, which the first run creates.
func open(ctx context.Context) (products feed.Source, leases feed.LeaseStore, store io.Closer) {
	if *account != "" {
		key := cmp.Or(os.Getenv("COSMOS_KEY"), cosmosrest.EmulatorKey) // of changefeed serve
		client := must(cosmos.Open(ctx, *account, cosmos.Key(key), cosmos.Options{}))
		find := func(id string) *cosmos.Container { return must(client.Container(ctx, "shop", id)) }
		source := find("products")
		leases = must(cosmos.OpenLeases(ctx, find("leases"), "cache", source, cosmos.LeaseOptions{}))
		return source, leases, io.NopCloser(nil)
	}
	db := must(docstore.Open(*folder, docstore.Options{}))
	find := func(id string, keep time.Duration) *docstore.Container { // an item expires only with a ttl of its own
		spec := docstore.ContainerSpec{ID: id, Paths: []string{"/id"}, DefaultTTL: new(-1), Retention: keep}
		c, err := db.CreateContainer(ctx, spec)
		if errors.Is(err, feed.ErrConflict) {
			c, err = db.Container(id)
		}
		return must(c, err)
	}
	source := find("products", 24*time.Hour)
	working.Go(func() { write(ctx, source) })
	return source, must(docstore.NewLeases(ctx, find("leases", 0), "cache", source)), db
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// write writes a product now and then, some with a time to live, and deletes some. It ends when ctx ends.
func write(ctx context.Context, products feed.Committer) {
	for err := error(nil); err == nil; time.Sleep(200 * time.Millisecond) {
		id := fmt.Sprint(rand.IntN(10))
		body := fmt.Appendf(nil, `{"id":%q,"price":%d,"ttl":%d}`, id, rand.IntN(100), 5+rand.IntN(60))
		writes := []feed.Write{{Body: body}, {Op: feed.WriteDelete, ID: id}}
		_, err = products.Commit(ctx, feed.Key(id), writes[:1+rand.IntN(2)])
	}
}
