// The fanout recipe: three units read one feed. Their leases are in one container, and each unit has its own position
// and its own answer to a failure. docs/recipes/fanout.md describes the recipe.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/connect"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	from       = flag.String("from", "docstore:fanout-store#shop/orders", "the orders; COSMOS_KEY has an account's key")
	data       = flag.String("data", "fanout-data", "folder of the units' output")
	every      = flag.Duration("every", 300*time.Millisecond, "write an order this often; 0 writes none")
	length     = flag.Duration("for", changefeed.Never, "end after this time, or before on Ctrl-C")
	expiration = flag.Duration("expiration", time.Minute, "how long a killed process keeps its leases")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	time.AfterFunc(*length, stop)
	must(0, os.MkdirAll(*data, 0o777))
	u := must(connect.Open(ctx, *from, "mailer", connect.Options{
		Create: &docstore.ContainerSpec{Paths: []string{"/city"}, Ranges: 2}, // if the container is missing
	}))
	defer u.Close()
	letters := must(u.Container(ctx, "letters", &docstore.ContainerSpec{Paths: []string{deadletters.KeyPath}}))
	box := must(deadletters.Container(letters, "mailer", u.Source))
	var running sync.WaitGroup
	defer running.Wait() // each unit ends its batch, stores the position and releases its leases
	for unit, policy := range map[string]changefeed.FailurePolicy{
		"mailer": {MaxAttempts: 9, DeadLetters: box}, // an order without an address is parked; the others are mailed
		"audit":  {},                                 // nothing is skipped: a failing order is retried for ever
		"stock":  {},                                 // the same: while the stock system is down, the unit waits
	} {
		const flags = os.O_CREATE | os.O_APPEND | os.O_WRONLY
		file := must(os.OpenFile(filepath.Join(*data, unit+".txt"), flags, 0o666))
		handler := changefeed.Items(effect(unit, io.MultiWriter(file, os.Stdout)))
		p := must(changefeed.New(u.Source, must(u.Another(ctx, unit)), handler, changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: policy, MaxItems: 100, RetryMax: 2 * time.Second,
			Acquire: *expiration / 5, Renew: *expiration / 4, Expiration: *expiration,
		}))
		running.Go(func() { // an error ends this unit alone
			if err := p.Run(ctx); err != nil {
				log.Printf("%s has ended: %v", unit, err)
			}
		})
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

type order struct{ ID, City, Mail string }

// effect handles orders for a unit: the effect of an order is a line in the unit's file.
func effect(unit string, out io.Writer) func(context.Context, *feed.Batch, []changefeed.Item[order]) error {
	return func(_ context.Context, _ *feed.Batch, items []changefeed.Item[order]) error {
		if _, err := os.Stat(filepath.Join(*data, unit+".down")); err == nil {
			return errors.New("the system behind " + unit + " is down")
		}
		failed := map[int]error{}
		for i, it := range items {
			if unit == "mailer" && it.Value.Mail == "" {
				failed[i] = feed.Poison(errors.New("the order has no address")) // no retry can help: park the order
			} else if _, err := fmt.Fprintln(out, unit, it.Value.City, it.Value.ID); err != nil {
				return err // the whole batch comes again
			}
		}
		if len(failed) > 0 {
			return &feed.Failure{Items: failed}
		}
		return nil
	}
}

// write writes orders until ctx ends. Each tenth order has no address.
func write(ctx context.Context, orders feed.Committer) {
	for n := time.Now().UnixMilli(); *every > 0 && ctx.Err() == nil; n++ {
		city, mail := []string{"Oslo", "Rome", "Lima"}[n%3], []string{"", "ada@example.com"}[min(n%10, 1)]
		body := fmt.Appendf(nil, `{"id":"%d","city":%q,"mail":%q}`, n, city, mail)
		if _, err := orders.Commit(ctx, feed.Key(city), []feed.Write{{Body: body}}); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
		time.Sleep(*every)
	}
	<-ctx.Done()
}
