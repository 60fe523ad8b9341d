package soak_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

const (
	keysOfOrders   = 500 // each with a document that is written again and again
	keysOfContacts = 100
	ordersEvery    = 25 * time.Millisecond
	contactsEvery  = 100 * time.Millisecond
)

// writeOrders writes new versions of the orders until ctx ends. Each is written until the server has acknowledged it.
func (s *system) writeOrders(ctx context.Context) {
	for n := 1; pause.For(ctx, ordersEvery) == nil; n++ {
		city := fmt.Sprint("city-", n%keysOfOrders)
		s.commit(s.orders.Commit, feed.Key(city), feed.Write{
			Op: feed.WriteUpsert, ID: "order", Body: fmt.Appendf(nil, `{"id":"order","city":%q,"n":%d}`, city, n),
		})
		s.ledger.wrote(city, n)
	}
}

// writeContacts writes contacts with an event each, as an outbox does: in one batch.
func (s *system) writeContacts(ctx context.Context) {
	for n := 1; pause.For(ctx, contactsEvery) == nil; n++ {
		id, event := fmt.Sprint("contact-", n%keysOfContacts), fmt.Sprint("event-", n)
		s.commit(s.contacts.Commit, feed.Key(id), feed.Write{Op: feed.WriteUpsert, ID: id, Body: fmt.Appendf(nil,
			`{"id":%q,"partitionKey":%q,"type":"contact","data":{"n":%d},"ttl":-1}`, id, id, n)},
			feed.Write{Op: feed.WriteUpsert, ID: event, Body: fmt.Appendf(nil,
				`{"id":%q,"partitionKey":%q,"type":"domainEvent","data":{"id":%q,"action":"ContactChanged","createdAt":%q},"ttl":3600}`,
				event, id, event, time.Now().UTC().Format(time.RFC3339))})
		s.ledger.committed(event)
	}
}

// commit commits until that is acknowledged. A commit whose answer is lost is made again: it changes nothing more.
func (s *system) commit(commit func(context.Context, feed.PartitionKey, []feed.Write) ([]feed.Result, error),
	key feed.PartitionKey, writes ...feed.Write,
) {
	for begun := time.Now(); ; {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 10*time.Second)
		_, err := commit(ctx, key, writes)
		cancel()
		if err == nil {
			return
		}
		if time.Since(begun) > 5*time.Minute {
			s.t.Errorf("write %s: %v", key, err)
			return
		}
		if pause.For(s.t.Context(), 200*time.Millisecond) != nil {
			return
		}
	}
}
