package kafkapub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox/kafkapub"
)

// forgetful publishes, and says every third time that it has failed.
type forgetful struct {
	*kafkapub.ExactlyOnce
	calls   atomic.Int64
	handled func(b *feed.Batch)
}

func (f *forgetful) Handle(ctx context.Context, b *feed.Batch) error {
	if err := f.ExactlyOnce.Handle(ctx, b); err != nil {
		return err
	}
	if f.calls.Add(1)%3 == 0 {
		return errors.New("published, and nobody hears of it")
	}
	f.handled(b)
	return nil
}

// Two instances of a unit, batches that come again though they were published, and splits.
func TestAProcessorPublishesEachEventOnce(t *testing.T) {
	const keys, each = 20, 30
	kafka := startKafka(t)
	db, err := docstore.Open(t.TempDir(), docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	contacts, err := db.CreateContainer(t.Context(),
		docstore.ContainerSpec{ID: "contacts", Paths: []string{"/partitionKey"}, Ranges: 2})
	if err != nil {
		t.Fatal(err)
	}
	container, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		ID: "leases", Paths: []string{"/id"},
		DefaultTTL: new(docstore.NoDefaultTTL),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
	defer stop()

	var mu sync.Mutex
	handled := map[string]bool{}
	note := func(b *feed.Batch) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range b.Changes {
			handled[c.ID] = true
		}
		if len(handled) == keys*each {
			stop()
		}
	}
	var running sync.WaitGroup
	for _, instance := range []string{"a", "b"} {
		leases, err := docstore.NewLeases(t.Context(), container, "relay", contacts)
		if err != nil {
			t.Fatal(err)
		}
		once, err := kafkapub.NewExactlyOnce(kafka.ListenAddrs(), topic, "relay",
			kafkapub.ExactlyOnceOptions{Client: impatient()})
		if err != nil {
			t.Fatal(err)
		}
		p, err := changefeed.New(contacts, leases, &forgetful{ExactlyOnce: once, handled: note}, changefeed.Options{
			Instance: instance, MaxItems: 20, Acquire: 200 * time.Millisecond,
			Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	want := map[string][]string{}
	for n := range each {
		for k := range keys {
			key, id := fmt.Sprint("key-", k), fmt.Sprintf("%d-%d", k, n)
			want[key] = append(want[key], id)
			body := fmt.Appendf(nil, `{"id":%q,"partitionKey":%q,"type":"domainEvent","data":{"action":"Done"}}`, id,
				key)
			if _, err := contacts.Upsert(t.Context(), body); err != nil {
				t.Fatal(err)
			}
		}
		if n == 10 || n == 20 {
			partitions, err := contacts.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := contacts.Split(t.Context(), partitions[0].ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	running.Wait()
	got := stored(t, kafka)
	for key, ids := range want {
		if !slices.Equal(got[key], ids) {
			t.Errorf("%s has %v, want %v", key, got[key], ids)
		}
	}
}
