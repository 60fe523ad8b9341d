package changefeed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// orderCounter is a handler whose effect happens exactly once: it counts the orders of each
// city, in a container with the same partition key. See docs/exactly-once.md.
type orderCounter struct {
	totals feed.Committer // a container of docstore, or of cosmos
}

// mark says how far the effects of a partition key have come. It is stored with them, in one
// transaction.
type mark struct {
	ID    string   `json:"id"`
	City  string   `json:"city"`
	Epoch int64    `json:"epoch"` // of the owner that wrote it
	LSN   int64    `json:"lsn"`   // every change of the key before this LSN is done,
	Items []string `json:"items"` // and of those with this LSN these versions
}

var errFenced = errors.New("the lease has had a later owner")

// Handle counts the changes of each partition key in a transaction of their own.
func (h *orderCounter) Handle(ctx context.Context, b *feed.Batch) error {
	byKey := map[feed.PartitionKey][]feed.Change{}
	for _, c := range b.Changes {
		byKey[c.PartitionKey] = append(byKey[c.PartitionKey], c)
	}
	for key, changes := range byKey {
		if err := h.count(ctx, b.Epoch, key, changes); err != nil {
			return fmt.Errorf("count orders of %s: %w", key, err)
		}
	}
	return nil
}

// count counts the changes of one key that are not done, and marks them as done.
func (h *orderCounter) count(ctx context.Context, epoch int64, key feed.PartitionKey, changes []feed.Change) error {
	var m mark
	etag := ""
	stored, err := h.totals.Commit(ctx, key, []feed.Write{{Op: feed.WriteRead, ID: "mark"}})
	switch {
	case err == nil:
		etag = stored[0].ETag
		err = json.Unmarshal(stored[0].Body, &m)
	case errors.Is(err, feed.ErrNotFound):
		var components []string
		err = json.Unmarshal([]byte(key), &components)
		m = mark{ID: "mark", City: strings.Join(components, "")} // it is one
	}
	if err != nil {
		return err
	}
	todo := slices.DeleteFunc(changes, func(c feed.Change) bool { return !m.pass(c) })
	switch {
	case epoch < m.Epoch:
		return errFenced
	case len(todo) == 0:
		return nil
	}
	m.Epoch = epoch
	body, _ := json.Marshal(m) // of texts and numbers
	writes := []feed.Write{
		{Op: feed.WriteReplace, Body: body, IfMatch: etag}, // nobody else has been here since
		{Op: feed.WritePatch, ID: "total", Patch: []feed.PatchOp{{
			Op: "incr", Path: "/orders",
			Value: fmt.Append(nil, len(todo)),
		}}},
	}
	if etag == "" {
		writes = []feed.Write{
			{Op: feed.WriteCreate, Body: body},
			{Op: feed.WriteCreate, Body: fmt.Appendf(nil, `{"id":"total","city":%q,"orders":%d}`, m.City, len(todo))},
		}
	}
	_, err = h.totals.Commit(ctx, key, writes)
	return err
}

// pass moves the mark to a change, unless that is done. The changes of a transaction have one
// LSN, and come one by one when the handler has failed on it too often: id and ETag tell them apart.
func (m *mark) pass(c feed.Change) bool {
	version := c.ID + c.ETag
	if c.LSN < m.LSN || c.LSN == m.LSN && slices.Contains(m.Items, version) {
		return false
	}
	if c.LSN > m.LSN {
		m.LSN, m.Items = c.LSN, nil
	}
	m.Items = append(m.Items, version)
	return true
}

// An effect happens exactly once if the handler stores how far it has come in one transaction
// with it. Then a change that comes again is passed over.
func ExampleBatch_exactlyOnce() {
	ctx, stop := context.WithCancel(context.Background())
	orders, container, done := shop(ctx)
	defer done()
	totals, _, done := shop(ctx)
	defer done()
	leases, err := docstore.NewLeases(ctx, container, "counter", orders)
	if err != nil {
		log.Fatal(err)
	}
	for n := range 3 {
		if _, err := orders.Upsert(ctx, fmt.Appendf(nil, `{"id":"%d","city":"Oslo","item":"lamp"}`, n)); err != nil {
			log.Fatal(err)
		}
	}

	counter := &orderCounter{totals: totals}
	handler := func(ctx context.Context, b *feed.Batch) error {
		if err := counter.Handle(ctx, b); err != nil {
			return err
		}
		if b.Attempt == 1 {
			return errors.New("the effect is there, and nobody hears of it")
		}
		stop()
		return nil
	}
	p, err := changefeed.New(orders, leases, feed.HandlerFunc(handler), changefeed.Options{
		Instance: "host-1", Start: feed.FromBeginning(),
		Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
	var total struct{ Orders int }
	item, err := totals.Item(context.Background(), feed.Key("Oslo"), "total")
	if err == nil {
		err = json.Unmarshal(item.Body, &total)
	}
	fmt.Println(total.Orders, "orders", err)
	// Output: 3 orders <nil>
}
