package changefeedtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// shop is a container in memory.
func shop(ctx context.Context) (*docstore.Container, func() error) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		panic(err)
	}
	c, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/customer"}})
	if err != nil {
		panic(err)
	}
	return c, db.Close
}

// A reply that gets lost: the caller sees an error, and the item is there.
func ExampleNth() {
	ctx := context.Background()
	orders, done := shop(ctx)
	defer done()

	lossy := changefeedtest.Nth(changefeedtest.CommitterCommit, 1, changefeedtest.Lose()).Committer(orders)
	create := []feed.Write{{Op: feed.WriteCreate, Body: []byte(`{"id":"1","customer":"ada"}`)}}
	_, err := lossy.Commit(ctx, feed.Key("ada"), create)
	fmt.Println(err)
	_, err = lossy.Commit(ctx, feed.Key("ada"), create)
	fmt.Println(errors.Is(err, feed.ErrConflict))
	// Output:
	// injected fault
	// true
}

// How often a read succeeds when one in four is refused; the same for every run.
func ExampleRandom() {
	ctx := context.Background()
	orders, done := shop(ctx)
	defer done()

	plan := changefeedtest.Random(rand.New(rand.NewPCG(1, 2)), changefeedtest.Rates{Refuse: 0.25})
	flaky := changefeedtest.Only(plan, changefeedtest.SourceRead).Source(orders)
	good := 0
	for range 100 {
		if _, err := flaky.Read(ctx, feed.FullRange(), feed.Position{}, feed.ReadOptions{}); err == nil {
			good++
		}
	}
	fmt.Println(good, "of 100")
	// Output: 82 of 100
}

// A store that cannot be reached for a minute.
func ExampleBlackout() {
	ctx := context.Background()
	orders, done := shop(ctx)
	defer done()

	now := time.Now()
	dark := changefeedtest.Blackout(errors.New("connection refused"),
		changefeedtest.Window{From: now, To: now.Add(time.Minute)})
	_, err := dark.Source(orders).Partitions(ctx)
	fmt.Println(err)
	// Output: connection refused
}

// What a program asks of a store.
func ExampleCounts() {
	ctx := context.Background()
	orders, done := shop(ctx)
	defer done()

	var counts changefeedtest.Counts
	counted := counts.Source(orders)
	parts, err := counted.Partitions(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		if _, err := counted.Read(ctx, parts[0].Range, feed.Position{}, feed.ReadOptions{}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(&counts)
	// Output: Source.Partitions 1, Source.Read 3
}

// ledger is the store of a handler that counts the orders of each city, in memory for the test.
type ledger struct {
	mu     sync.Mutex
	orders map[string]int  // by city
	marks  map[string]bool // the versions that are counted
}

// newCounter makes the handler, its store, and what the store contains in the end.
func newCounter(*testing.T) (feed.Handler, func() map[string]int) {
	l := &ledger{orders: map[string]int{}, marks: map[string]bool{}}
	handler := func() feed.Handler {
		return feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			l.mu.Lock() // the transaction: the mark and the effect, or neither
			defer l.mu.Unlock()
			for _, c := range b.Changes {
				if version := string(c.PartitionKey) + c.ID + c.ETag; !l.marks[version] {
					l.marks[version] = true
					l.orders[string(c.PartitionKey)]++
				}
			}
			return nil
		})
	}
	return changefeedtest.PerInstance(handler), func() map[string]int { return l.orders }
}

// TestCounter is the test of the handler newCounter. Without the marks it fails, and tells what was delivered twice.
func TestCounter(t *testing.T) {
	changefeedtest.Torture(t, changefeedtest.TortureOptions{}, newCounter)
}

// The test of a handler.
func ExampleTorture() {
	_ = func(t *testing.T) { // TestCounter
		changefeedtest.Torture(t, changefeedtest.TortureOptions{}, newCounter)
	}
}

// A handler that is made for each instance loses its memory with it, so a mark in memory is no mark.
func ExamplePerInstance() {
	made := 0
	handler := changefeedtest.PerInstance(func() feed.Handler {
		made++
		seen := map[string]bool{} // gone after a crash
		return feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			seen[b.Changes[0].ID] = true
			return nil
		})
	})
	fmt.Println(handler.Handle(context.Background(), &feed.Batch{Changes: []feed.Change{{ID: "7"}}}), made)
	// Output: <nil> 1
}
