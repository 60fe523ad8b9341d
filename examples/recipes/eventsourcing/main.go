// The eventsourcing recipe: streams of events, which writers append with the version that they expect, and a projection
// of the streams that can be discarded and rebuilt. See docs/recipes/eventsourcing.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/connect"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	from       = flag.String("from", "docstore:eventsourcing-data#bank/events", "COSMOS_KEY has an account's key")
	name       = flag.String("projection", "balances", "name of the unit, and id of its view of each stream")
	every      = flag.Duration("every", 300*time.Millisecond, "two writers append this often; 0 writes nothing")
	length     = flag.Duration("for", changefeed.Never, "end after this time, or before on Ctrl-C")
	expiration = flag.Duration("expiration", time.Minute, "how long a killed process keeps its leases")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	time.AfterFunc(*length, stop)
	spec := docstore.ContainerSpec{Paths: []string{"/stream"}, Ranges: 2} // of a missing container
	u := must(connect.Open(ctx, *from, *name, connect.Options{Create: &spec}))
	defer u.Close()
	views := must(u.Container(ctx, "views", &spec))
	p := must(changefeed.New(u.Source, u.Leases, projector{views}, changefeed.Options{
		Start: feed.FromBeginning(), Filter: func(c *feed.Change) bool { return c.ID != head }, Concurrency: 8,
		Acquire: *expiration / 5, Renew: *expiration / 4, Expiration: *expiration,
	}))
	var writing sync.WaitGroup
	for range 2 {
		writing.Go(func() { write(ctx, u.Source) })
	}
	if err := p.Run(ctx); err != nil {
		log.Printf("%s has ended: %v", *name, err)
	}
	stop()
	writing.Wait()
}

// must ends the program if a part cannot be opened.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// item is an event, whose id is its version, or the head of a stream, or the view of a stream in a projection.
type item struct {
	ID      string `json:"id"`
	Stream  string `json:"stream"` // the partition key
	Version int    `json:"version"`
	Amount  int    `json:"amount"`
	Epoch   int64  `json:"epoch,omitempty"` // of a view: number of the lease's owner that has written it
}

const head = "head" // id of the item with the newest version of a stream

// read reads an item of a stream. A missing item is the zero item without an ETag.
func read(ctx context.Context, from feed.Committer, stream, id string) (i item, etag string, err error) {
	results, err := from.Commit(ctx, feed.Key(stream), []feed.Write{{Op: feed.WriteRead, ID: id}})
	if err == nil {
		etag, err = results[0].ETag, json.Unmarshal(results[0].Body, &i)
	} else if errors.Is(err, feed.ErrNotFound) {
		err = nil
	}
	return i, etag, err
}

// appendTo appends events to a stream, all or none. If the stream does not end with the expected version, the error is
// feed.ErrConflict, or feed.ErrNotFound if the version is too high.
func appendTo(ctx context.Context, events feed.Committer, stream string, expected int, amounts ...int) error {
	var writes []feed.Write
	if expected > 0 {
		writes = append(writes, feed.Write{Op: feed.WriteRead, ID: fmt.Sprint(expected)}) // must be there
	}
	for _, amount := range amounts {
		expected++ // creating an event whose id exists is refused, and with it the whole batch
		e := item{ID: fmt.Sprint(expected), Stream: stream, Version: expected, Amount: amount}
		writes = append(writes, feed.Write{Op: feed.WriteCreate, Body: must(json.Marshal(e))})
	}
	newest := must(json.Marshal(item{ID: head, Stream: stream, Version: expected}))
	_, err := events.Commit(ctx, feed.Key(stream), append(writes, feed.Write{Body: newest}))
	return err
}

// write is one of the writers, which append to the same streams.
func write(ctx context.Context, events feed.Committer) {
	for *every > 0 && ctx.Err() == nil {
		stream := fmt.Sprint("account-", rand.IntN(5))
		newest, _, err := read(ctx, events, stream, head)
		err = errors.Join(err, appendTo(ctx, events, stream, newest.Version, rand.IntN(100), -rand.IntN(100)))
		if err != nil && ctx.Err() == nil {
			log.Printf("%s, expected version %d: %v", stream, newest.Version, err) // such as: another writer was faster
		}
		time.Sleep(*every)
	}
}

// projector is the handler: it adds each event to the view of its stream. The version of the view is the position of
// the projection in the stream, and is stored with the effect.
type projector struct{ views feed.Committer }

func (p projector) Handle(ctx context.Context, b *feed.Batch) error {
	for _, c := range b.Changes {
		var e item
		if err := json.Unmarshal(c.Body, &e); err != nil {
			return feed.Poison(err)
		}
		v, etag, err := read(ctx, p.views, e.Stream, *name)
		switch {
		case err != nil:
			return err
		case b.Epoch < v.Epoch:
			return fmt.Errorf("stream %s: the lease has had a later owner", e.Stream)
		case e.Version == 1:
			v.Amount = 0 // begin anew: the event is new, or the lease was reset
		case e.Version <= v.Version:
			continue // done before a crash
		case e.Version > v.Version+1:
			return fmt.Errorf("stream %s: event %d came after event %d", e.Stream, e.Version, v.Version)
		}
		v = item{ID: *name, Stream: e.Stream, Version: e.Version, Amount: v.Amount + e.Amount, Epoch: b.Epoch}
		w := feed.Write{Op: feed.WriteReplace, IfMatch: etag, Body: must(json.Marshal(v))}
		if etag == "" {
			w.Op = feed.WriteCreate
		}
		if _, err := p.views.Commit(ctx, feed.Key(e.Stream), []feed.Write{w}); err != nil {
			return err
		}
		fmt.Printf("%s: %s has %d at version %d\n", *name, e.Stream, v.Amount, v.Version)
	}
	return nil
}
