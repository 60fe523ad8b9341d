package query

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// newContainer is a container with documents of these ids and the partition key p.
func newContainer(t *testing.T, ids ...string) *docstore.Container {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	cont, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "c", Paths: []string{"/pk"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := cont.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":"p"}`, id)); err != nil {
			t.Fatal(err)
		}
	}
	return cont
}

// A scan by keys does not look between them: that is left to a query that wants more.
func TestWhatLiesBetweenTheKeysOfAScanIsUnread(t *testing.T) {
	var k Continuation
	s := Scan{left: []span{
		{rng: feed.Range{Min: "10", Max: "20"}, key: "a", at: progress{After: 5}},
		{rng: feed.Range{Min: "40", Max: "50"}, key: "b", at: progress{After: 7}},
		{rng: feed.Range{Min: "60", Max: "70"}, key: "c"},
	}}
	s.saveProgress(&k)
	want := []span{
		{rng: feed.Range{Min: "10", Max: "20"}, at: progress{After: 5}},
		{rng: feed.Range{Min: "20", Max: "40"}},
		{rng: feed.Range{Min: "40", Max: "50"}, at: progress{After: 7}},
		{rng: feed.Range{Min: "50", Max: "FF"}},
	}
	if got := k.unreadSpans(feed.FullRange()); !slices.Equal(got, want) {
		t.Errorf("unread is %v, want %v", got, want)
	}
}

func TestPagesEndInTime(t *testing.T) {
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprintf("i%d", i)
	}
	cont := newContainer(t, ids...)
	m := meter.NewLoad().Request(t.Context())
	defer m.End()
	q, err := New(cont, Selection{Range: feed.FullRange()},
		Text{Query: "SELECT * FROM c WHERE c.id = 'i99' OR c.v = 1"}, &m, &Results{})
	if err != nil {
		t.Fatal(err)
	}
	q.begun = time.Now().Add(-maxPageTime)
	docs := wire.NewDocuments("")
	defer docs.Free()
	if more, err := q.Page(docs); !more || err != nil || docs.Count() != 0 {
		t.Fatalf("page has %d rows, and more %v, %v: want none, and more", docs.Count(), more, err)
	}
	q.begun, q.scan.left = time.Now(), nil
	if more, err := q.Page(docs); more || err != nil || docs.Count() != 1 || q.scan.docs != 100 {
		t.Errorf("next page has %d rows of %d documents, and more %v, %v: want 1 of 100, and none", docs.Count(),
			q.scan.docs, more, err)
	}
}
