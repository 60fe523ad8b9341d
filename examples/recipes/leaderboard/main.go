// The leaderboard recipe keeps the total points of each player in a container, and prints the ten best players. The
// totals stay right if changes are redelivered, because each total is stored together with what a game has added.
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
	folder  = flag.String("folder", "leaderboard-data", "local store, in which the recipe also plays games")
	account = flag.String("account", "", "address of an account, instead of the folder; COSMOS_KEY has its key")
	expire  = flag.Duration("expire", time.Minute, "how long a killed instance keeps its leases")
	length  = flag.Duration("for", 1<<62, "how long to run; by default until Ctrl-C")
)

// container is read by its feed and written in transactions, in a store or in an account.
type container interface {
	feed.Source
	feed.Committer
}

// working are the goroutines that end when the context ends.
var working sync.WaitGroup

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	time.AfterFunc(*length, stop)
	games, board, leases, store := open(ctx)
	p := must(changefeed.New(games, leases, changefeed.Items(view{board}.handle), changefeed.Options{
		Start: feed.FromBeginning(), Expiration: *expire, Renew: *expire / 4, Acquire: *expire / 5, Concurrency: 8,
	}))
	working.Go(func() { show(ctx, board) })
	must(0, p.Run(ctx)) // returns when ctx ends
	working.Wait()
	must(0, store.Close())
}

// open opens the containers of the account, or those of the folder, which the first run creates.
func open(ctx context.Context) (games, board container, leases feed.LeaseStore, store io.Closer) {
	if *account != "" {
		key := cmp.Or(os.Getenv("COSMOS_KEY"), cosmosrest.EmulatorKey) // of changefeed serve
		client := must(cosmos.Open(ctx, *account, cosmos.Key(key), cosmos.Options{}))
		find := func(id string) *cosmos.Container { return must(client.Container(ctx, "shop", id)) }
		source := find("games")
		leases = must(cosmos.OpenLeases(ctx, find("leases"), "leaderboard", source, cosmos.LeaseOptions{}))
		return source, find("board"), leases, io.NopCloser(nil)
	}
	db := must(docstore.Open(*folder, docstore.Options{}))
	find := func(id, path string) *docstore.Container { // an item expires only with a ttl of its own
		c, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: id, Paths: []string{path}, DefaultTTL: new(-1)})
		if errors.Is(err, feed.ErrConflict) {
			c, err = db.Container(id)
		}
		return must(c, err)
	}
	source := find("games", "/player")
	working.Go(func() { play(ctx, source) })
	leases = must(docstore.NewLeases(ctx, find("leases", "/id"), "leaderboard", source))
	return source, find("board", "/player"), leases, db
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// play writes a game now and then, until ctx ends.
func play(ctx context.Context, games feed.Committer) {
	for err := error(nil); err == nil; time.Sleep(200 * time.Millisecond) {
		player := []string{"Ada", "Grace", "Edsger", "Barbara"}[rand.IntN(4)]
		body := fmt.Appendf(nil, `{"id":"%d","player":%q,"points":%d}`, time.Now().UnixNano(), player, rand.IntN(100))
		_, err = games.Commit(ctx, feed.Key(player), []feed.Write{{Body: body}})
	}
}
