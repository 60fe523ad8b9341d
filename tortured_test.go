package changefeed_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// The pattern of docs/exactly-once.md has the same effects whatever a processor may do, also if an owner freezes and
// goes on later.
func TestTheExactlyOncePatternIsTortured(t *testing.T) {
	o := changefeedtest.TortureOptions{Freezes: true}
	changefeedtest.Torture(t, o, func(t *testing.T) (feed.Handler, func() map[string]int) {
		db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		totals, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "totals", Paths: []string{"/city"}})
		if err != nil {
			t.Fatal(err)
		}
		start := func() feed.Handler { return &orderCounter{totals: totals} }
		return changefeedtest.PerInstance(start), func() map[string]int {
			all := map[string]int{}
			for n := range 5 {
				city := fmt.Sprint("city-", n)
				all[city] = totalOf(t, totals, city)
			}
			return all
		}
	})
}

// A handler of Items reads the bodies that Torture makes, and those of the user.
func TestAHandlerOfItemsIsTortured(t *testing.T) {
	start := func(*testing.T) (feed.Handler, func() map[string]string) {
		var mu sync.Mutex
		cities := map[string]string{}
		handler := func(_ context.Context, _ *feed.Batch, items []changefeed.Item[order]) error {
			mu.Lock()
			defer mu.Unlock()
			for _, it := range items {
				cities[it.ID] = it.Value.City + it.Value.Item
			}
			return nil
		}
		return changefeed.Items(handler), func() map[string]string { return cities }
	}
	changefeedtest.Torture(t, changefeedtest.TortureOptions{Seeds: 5}, start)
	changefeedtest.Torture(t, changefeedtest.TortureOptions{Seeds: 5, Changes: []feed.Change{
		{ID: "1", PartitionKey: feed.Key("Oslo"), Body: []byte(`{"id":"1","city":"Oslo","item":"lamp"}`)},
		{ID: "1", PartitionKey: feed.Key("Oslo"), Body: []byte(`{"id":"1","city":"Oslo","item":"desk"}`)},
	}}, start)
}
