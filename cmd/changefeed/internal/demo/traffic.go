package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// Half of the writes change open orders repeatedly. Without overwrites, the demo would not notice a handler that
// receives an older version after a newer version.

// traffic contains the writers of the demo. They write new orders and changes of open orders, also in transactions.
type traffic struct {
	orders  *docstore.Container
	ledger  *fleet.Ledger
	cancel  context.CancelFunc
	writing sync.WaitGroup
	mu      sync.Mutex
	count   int
	errs    []error
}

const (
	clerks     = 4 // number of concurrent writers
	clerkPause = 4 * time.Millisecond
	openOrders = 8 // in each city; they change repeatedly
	maxBasket  = 5 // writes in a transaction
)

var (
	cities = []string{
		"Amsterdam", "Athens", "Barcelona", "Belfast", "Bergen", "Berlin", "Bologna", "Bordeaux", "Bruges", "Brussels",
		"Budapest", "Cardiff", "Copenhagen", "Cork", "Dublin", "Edinburgh", "Florence", "Geneva", "Ghent", "Glasgow",
		"Hamburg", "Helsinki", "Krakow", "Leeds", "Lille", "Lisbon", "London", "Lyon", "Madrid", "Milan",
		"Munich", "Naples", "Oslo", "Paris", "Porto", "Prague", "Rome", "Turin", "Vienna", "Zurich",
	}
	dishes = []string{"pizza", "ramen", "curry", "dumplings", "paella", "tacos", "falafel", "fish and chips"}
)

// newTraffic starts the writers. A write that has begun when ctx ends is finished.
func newTraffic(ctx context.Context, orders *docstore.Container, l *fleet.Ledger) *traffic {
	t := &traffic{orders: orders, ledger: l}
	ctx, t.cancel = context.WithCancel(ctx)
	for range clerks {
		t.writing.Go(func() {
			// The pause is random, because writers in step would write in bursts.
			for pause.For(ctx, clerkPause/2+rand.N(clerkPause)) == nil {
				if err := t.write(context.WithoutCancel(ctx)); err != nil {
					t.fail(err)
					return
				}
			}
		})
	}
	return t
}

func (t *traffic) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errs = append(t.errs, err)
	t.cancel()
}

// stop waits for the writes that have begun.
func (t *traffic) stop() error {
	t.cancel()
	t.writing.Wait()
	return errors.Join(t.errs...)
}

// write writes an order, or several of a city in a single transaction.
func (t *traffic) write(ctx context.Context) error {
	n := 1
	if rand.IntN(10) == 0 {
		n = 2 + rand.IntN(maxBasket-1)
	}
	city := cities[rand.IntN(len(cities))]
	ids, writes := make([]string, n), make([]feed.Write, n)
	for i := range writes {
		ids[i], writes[i] = t.nextOrder(city)
		// The ledger identifies a write by its document and LSN, and two writes of the same document in a transaction
		// would have the same LSN.
		for slices.Contains(ids[:i], ids[i]) {
			ids[i], writes[i] = t.nextOrder(city)
		}
	}
	key := feed.Key(city)
	results, err := t.orders.Commit(ctx, key, writes)
	if err != nil {
		return err
	}
	t.ledger.Wrote(key, ids, results)
	return nil
}

// nextOrder returns a new order, or a change of an open order.
func (t *traffic) nextOrder(city string) (id string, w feed.Write) {
	t.mu.Lock()
	t.count++
	n := t.count
	t.mu.Unlock()
	id = fmt.Sprintf("order-%06d", n)
	w.Op = feed.WriteCreate
	if rand.IntN(2) == 0 {
		id = fmt.Sprintf("open-%d", rand.IntN(openOrders))
		w.Op = feed.WriteUpsert
	}
	w.Body = fmt.Appendf(nil, `{"id":%q,"city":%q,"n":%d,"dish":%q,"quantity":%d}`,
		id, city, n, dishes[rand.IntN(len(dishes))], 1+rand.IntN(4))
	return id, w
}
