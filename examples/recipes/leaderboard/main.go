// The leaderboard recipe keeps the total points of each player in a container, and prints the ten best players. The
// totals stay right if changes are redelivered, because each total is stored together with what a game has added.
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
	from       = flag.String("from", "docstore:leaderboard-data#shop/games", "COSMOS_KEY has an account's key")
	expiration = flag.Duration("expiration", time.Minute, "how long a killed process keeps its leases")
	length     = flag.Duration("for", changefeed.Never, "end after this time, or before on Ctrl-C")
)

// working are the goroutines that end when the context ends.
var working sync.WaitGroup

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	time.AfterFunc(*length, stop)
	spec := docstore.ContainerSpec{Paths: []string{"/player"}} // of a missing container
	u := must(connect.Open(ctx, *from, "leaderboard", connect.Options{Create: &spec}))
	board := must(u.Container(ctx, "board", &spec))
	if strings.HasPrefix(*from, "docstore:") {
		working.Go(func() { play(ctx, u.Source) })
	}
	p := must(changefeed.New(u.Source, u.Leases, changefeed.Items(view{board}.handle), changefeed.Options{
		Start: feed.FromBeginning(), Expiration: *expiration, Renew: *expiration / 4, Acquire: *expiration / 5,
		Concurrency: 8,
	}))
	working.Go(func() { show(ctx, board) })
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

// play writes a game now and then, until ctx ends.
func play(ctx context.Context, games feed.Committer) {
	for err := error(nil); err == nil; time.Sleep(200 * time.Millisecond) {
		player := []string{"Ada", "Grace", "Edsger", "Barbara"}[rand.IntN(4)]
		body := fmt.Appendf(nil, `{"id":"%d","player":%q,"points":%d}`, time.Now().UnixNano(), player, rand.IntN(100))
		_, err = games.Commit(ctx, feed.Key(player), []feed.Write{{Body: body}})
	}
}
