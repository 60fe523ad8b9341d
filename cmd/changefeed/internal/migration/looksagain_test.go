package migration

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestADeleteBetweenReadAndCreate: a delete that is handled after the target was read, and before the document is
// created there, finds nothing to delete. The document must not stay.
func TestADeleteBetweenReadAndCreate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWorld(t, docstore.ContainerSpec{Retention: time.Hour})
	w.put("orders", order("1", "Oslo", "ada", 1), order("2", "Oslo", "ada", 1))
	opened, err := w.pair.open(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.pair.mapper(opened)
	if err != nil {
		t.Fatal(err)
	}
	c := newCopier(opened, m, 4)
	names := []*subject{{key: feed.Key("Oslo"), id: "1"}, {key: feed.Key("Oslo"), id: "2"}}
	looks, err := c.look(ctx, names, make([][]spot, 2))
	if err != nil {
		t.Fatal(err)
	}
	source := opened.source.Local
	if err := source.Delete(ctx, feed.Key("Oslo"), "1", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Upsert(ctx, []byte(order("2", "Oslo", "bob", 2))); err != nil {
		t.Fatal(err)
	}
	old := []document{{body: []byte(order("1", "Oslo", "ada", 1))}, {body: []byte(order("2", "Oslo", "ada", 1))}}
	followed := []*subject{
		{key: feed.Key("Oslo"), id: "1", seen: old[0]}, {key: feed.Key("Oslo"), id: "2", seen: old[1]},
	}
	if err := c.reconcile(ctx, followed); err != nil {
		t.Fatal(err)
	}
	again, err := c.writeLooks(ctx, looks)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.reconcile(ctx, again); err != nil {
		t.Fatal(err)
	}
	if err := opened.close(); err != nil {
		t.Fatal(err)
	}
	w.expect(order("2", "Oslo", "bob", 2))
}
