// The search recipe keeps a full-text index of a container in SQLite, deletes included. You build a new index beside
// the live index; when the new index has caught up, it becomes the index that is searched.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/connect"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	from       = flag.String("from", "docstore:search-data#shop/products", "COSMOS_KEY has an account's key")
	expiration = flag.Duration("expiration", time.Minute, "how long a killed process keeps its leases")
	length     = flag.Duration("for", changefeed.Never, "end after this time, or before on Ctrl-C")
	name       = flag.String("index", "v1", "the index to keep up to date; a new name builds a new index")
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
	u := must(connect.Open(ctx, *from, "search-"+*name, connect.Options{Create: &docstore.ContainerSpec{
		Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL), Retention: 24 * time.Hour,
	}}))
	if strings.HasPrefix(*from, "docstore:") {
		working.Go(func() { write(ctx, u.Source) })
	}
	x := openIndex(*name)
	p := must(changefeed.New(u.Source, u.Leases, changefeed.Items(x.handle), changefeed.Options{
		Mode: feed.AllVersionsAndDeletes, Expiration: *expiration, Renew: *expiration / 4, Acquire: *expiration / 5,
		Hooks: feed.Hooks{Ready: func(context.Context) {
			working.Go(func() { x.build(ctx, u.Source, u.Leases) })
		}},
	}))
	must(0, p.Run(ctx)) // returns when ctx ends
	working.Wait()
	must(0, errors.Join(x.Close(), u.Close()))
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
