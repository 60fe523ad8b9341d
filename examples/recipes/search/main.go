// The search recipe keeps a full-text index of a container in SQLite, deletes included. You build a new index beside
// the live index; when the new index has caught up, it becomes the index that is searched.
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
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	folder  = flag.String("folder", "search-data", "local store, in which the recipe also writes products")
	account = flag.String("account", "", "address of an account, instead of the folder; COSMOS_KEY has its key")
	expire  = flag.Duration("expire", time.Minute, "how long a killed instance keeps its leases")
	length  = flag.Duration("for", 1<<62, "how long to run; by default until Ctrl-C")
	name    = flag.String("index", "v1", "the index to keep up to date; a new name builds a new index")
)

// working are the goroutines that end when the context ends.
var working sync.WaitGroup

func main() {
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Println(must(search(strings.Join(flag.Args(), " "))))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	time.AfterFunc(*length, stop)
	products, leases, store := open(ctx, "search-"+*name)
	x := openIndex(*name)
	p := must(changefeed.New(products, leases, changefeed.Items(x.handle), changefeed.Options{
		Mode: feed.AllVersionsAndDeletes, Expiration: *expire, Renew: *expire / 4, Acquire: *expire / 5,
		Hooks: feed.Hooks{Ready: func(context.Context) {
			working.Go(func() { x.build(ctx, products, leases) })
		}},
	}))
	must(0, p.Run(ctx)) // returns when ctx ends
	working.Wait()
	must(0, errors.Join(x.Close(), store.Close()))
}

// open opens the containers of the account, or those of the folder, which the first run creates.
func open(ctx context.Context, unit string) (products feed.Source, leases feed.LeaseStore, store io.Closer) {
	if *account != "" {
		key := cmp.Or(os.Getenv("COSMOS_KEY"), cosmosrest.EmulatorKey) // of changefeed serve
		client := must(cosmos.Open(ctx, *account, cosmos.Key(key), cosmos.Options{}))
		find := func(id string) *cosmos.Container { return must(client.Container(ctx, "shop", id)) }
		source := find("products")
		leases = must(cosmos.OpenLeases(ctx, find("leases"), unit, source, cosmos.LeaseOptions{}))
		return source, leases, io.NopCloser(nil)
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
	source := find("products", 24*time.Hour, "/id")
	working.Go(func() { write(ctx, source) })
	return source, must(docstore.NewLeases(ctx, find("leases", 0, "/id"), unit, source)), db
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// write writes a product now and then, and deletes some. It ends when ctx ends.
func write(ctx context.Context, products feed.Committer) {
	for err := error(nil); err == nil; time.Sleep(200 * time.Millisecond) {
		id, words := fmt.Sprint(rand.IntN(20)), []string{"green lamp", "red lamp", "oak desk", "desk lamp"}
		body := fmt.Appendf(nil, `{"id":%q,"text":%q}`, id, words[rand.IntN(4)])
		writes := []feed.Write{{Body: body}, {Op: feed.WriteDelete, ID: id}}
		_, err = products.Commit(ctx, feed.Key(id), writes[:1+rand.IntN(2)])
	}
}
