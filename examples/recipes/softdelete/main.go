// The softdelete recipe: two units keep files equal to the items of a container. The unit "soft" reads the latest
// versions and needs markers of deletes; the unit "all" reads all versions and deletes. See docs/recipes/softdelete.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/connect"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	from       = flag.String("from", "docstore:softdelete-store#shop/products", "COSMOS_KEY has an account's key")
	data       = flag.String("data", "softdelete-data", "folder of the targets")
	every      = flag.Duration("every", 300*time.Millisecond, "write a product this often; 0 writes none")
	length     = flag.Duration("for", changefeed.Never, "end after this time, or before on Ctrl-C")
	expiration = flag.Duration("expiration", time.Minute, "how long a killed process keeps its leases")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	time.AfterFunc(*length, stop)
	u := must(connect.Open(ctx, *from, "soft", connect.Options{Create: &docstore.ContainerSpec{
		Paths: []string{"/shelf"}, DefaultTTL: new(docstore.NoDefaultTTL), Retention: 24 * time.Hour,
	}}))
	defer u.Close()
	var running sync.WaitGroup
	defer running.Wait()
	for unit, o := range map[string]changefeed.Options{
		"soft": {Mode: feed.LatestVersion, Start: feed.FromBeginning()},
		"all":  {Mode: feed.AllVersionsAndDeletes}, // begins now, at its first start
	} {
		must(0, os.MkdirAll(filepath.Join(*data, unit), 0o777))
		o.Acquire, o.Renew, o.Expiration = *expiration/5, *expiration/4, *expiration
		store := must(u.Another(ctx, unit))
		p := must(changefeed.New(u.Source, store, target(unit), o))
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				log.Printf("%s has ended: %v", unit, err)
			}
		})
		for unit == "all" && ctx.Err() == nil && changefeed.CaughtUp(ctx, u.Source, store) != nil {
			time.Sleep(100 * time.Millisecond) // until the unit has leases: earlier writes are not for it
		}
	}
	write(ctx, u.Source)
}

// must ends the program if a part cannot be opened.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// target is the handler of a unit: it keeps a file per product.
type target string

func (unit target) Handle(_ context.Context, b *feed.Batch) error {
	for _, c := range b.Changes {
		name := filepath.Join(*data, string(unit), url.PathEscape(string(c.PartitionKey)+c.ID))
		var product struct{ Deleted any }
		_ = json.Unmarshal(c.Body, &product) // a delete has no body
		gone := c.Op == feed.OpDelete || product.Deleted == true
		fmt.Printf("%s: %s %s, marker: %t, expired: %v\n", unit, c.Op, c.ID, product.Deleted == true, c.Expired)
		var err error
		if gone {
			err = os.RemoveAll(name) // also if the file is missing
		} else {
			err = errors.Join(os.WriteFile(name+".new", c.Body, 0o666), os.Rename(name+".new", name))
		}
		if err != nil {
			return err // the batch comes again, and puts and removes the same
		}
	}
	return nil
}

// write writes products. One ends with a marker, one by a delete, one by its time to live, and one stays.
func write(ctx context.Context, products feed.Committer) {
	for n := time.Now().UnixMilli(); *every > 0 && ctx.Err() == nil; n++ {
		body := fmt.Sprintf(`{"id":"%d","shelf":"a","price":1`, n)
		last := []feed.Write{
			{Body: []byte(body + `,"deleted":true,"ttl":3600}`)},
			{Op: feed.WriteDelete, ID: fmt.Sprint(n)},
			{Body: []byte(body + `,"ttl":2}`)},
			{Body: []byte(body + `,"sold":true}`)},
		}[n%4]
		for _, w := range []feed.Write{{Body: []byte(body + "}")}, last} {
			if _, err := products.Commit(ctx, feed.Key("a"), []feed.Write{w}); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
			time.Sleep(*every)
		}
	}
	<-ctx.Done()
}
