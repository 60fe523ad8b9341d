// The cache recipe keeps a copy of each item of a container in Redis, deletes and times to live included. A redelivered
// change never replaces a newer value, because the copy has the LSN of its version beside it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/connect"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	from       = flag.String("from", "docstore:cache-data#shop/products", "COSMOS_KEY has an account's key")
	expiration = flag.Duration("expiration", time.Minute, "how long a killed process keeps its leases")
	length     = flag.Duration("for", changefeed.Never, "end after this time, or before on Ctrl-C")
	address    = flag.String("redis", "127.0.0.1:6379", "address of Redis")
)

// working are the goroutines that end when the context ends.
var working sync.WaitGroup

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	time.AfterFunc(*length, stop)
	u := must(connect.Open(ctx, *from, "cache", connect.Options{Create: &docstore.ContainerSpec{
		Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL), Retention: 24 * time.Hour,
	}}))
	if strings.HasPrefix(*from, "docstore:") {
		working.Go(func() { write(ctx, u.Source) })
	}
	c := cache{redis.NewClient(&redis.Options{Addr: *address})}
	must(c.redis.Ping(ctx).Result())
	p := must(changefeed.New(u.Source, u.Leases, feed.HandlerFunc(c.handle), changefeed.Options{
		Mode: feed.AllVersionsAndDeletes, Expiration: *expiration, Renew: *expiration / 4, Acquire: *expiration / 5,
		Hooks: feed.Hooks{Ready: func(context.Context) {
			working.Go(func() { c.fill(ctx, u.Source) })
		}},
	}))
	must(0, p.Run(ctx)) // returns when ctx ends
	working.Wait()
	must(0, u.Close())
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
