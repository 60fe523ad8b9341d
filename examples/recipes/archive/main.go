// The archive recipe writes each change of a container into a file once, in folders by date, as Parquet or as
// newline-delimited JSON.
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

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/connect"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	from       = flag.String("from", "docstore:archive-data#shop/orders", "COSMOS_KEY has an account's key")
	expiration = flag.Duration("expiration", time.Minute, "how long a killed process keeps its leases")
	length     = flag.Duration("for", changefeed.Never, "end after this time, or before on Ctrl-C")
	target     = flag.String("to", "archive-files", "folder of the files; a container needs a folder of its own")
	format     = "parquet" // or ndjson
	wait       = flag.Duration("wait", 10*time.Second, "how long a file waits for more changes")
)

// working are the goroutines that end when the context ends.
var working sync.WaitGroup

func main() {
	flag.BoolFunc("ndjson", "write NDJSON instead of Parquet", func(string) error { format = "ndjson"; return nil })
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	time.AfterFunc(*length, stop)
	u := must(connect.Open(ctx, *from, "archive-"+format, connect.Options{Create: &docstore.ContainerSpec{
		Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL), Retention: 24 * time.Hour,
	}}))
	if strings.HasPrefix(*from, "docstore:") {
		working.Go(func() { write(ctx, u.Source) })
	}
	p := must(changefeed.New(u.Source, u.Leases, archive{}, changefeed.Options{
		Mode: feed.AllVersionsAndDeletes, Expiration: *expiration, Renew: *expiration / 4, Acquire: *expiration / 5,
		MaxWait: *wait,
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

// write writes an order now and then, and deletes some. It ends when ctx ends.
func write(ctx context.Context, orders feed.Committer) {
	for err := error(nil); err == nil; time.Sleep(200 * time.Millisecond) {
		id := fmt.Sprint(rand.IntN(50))
		body := fmt.Appendf(nil, `{"id":%q,"total":%d}`, id, rand.IntN(100))
		writes := []feed.Write{{Body: body}, {Op: feed.WriteDelete, ID: id}}
		_, err = orders.Commit(ctx, feed.Key(id), writes[:1+rand.IntN(2)])
	}
}
