package docstore_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A reader of many moved documents walks through the log in several passes, and drops documents if they are larger than
// the first ones promised. A second reader meanwhile has no memory for passes, and reads the same.
func TestPassesLoadDocumentsOfAllSizes(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true, CacheBytes: 256 << 10}.Resting())
	c := container(t, db, docstore.ContainerSpec{Paths: []string{"/id"}})
	const docs = 1500
	id := func(i int) string { return fmt.Sprint("d", i) }
	write := func(i, size int) {
		pad := bytes.Repeat([]byte("x"), size)
		if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pad":%q}`, id(i), pad)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range docs {
		write(i, 1)
	}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(docs) {
		size := 10
		if i > docs/3 {
			size = i
		}
		write(i, size)
	}
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	passing, n := false, 0
	for item, err := range s.Documents(t.Context(), feed.FullRange(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.Item(t.Context(), feed.Key(id(n)), id(n))
		if err != nil || !reflect.DeepEqual(item, want) {
			t.Fatalf("document %d is\n%+v, want\n%+v, %v", n, item, want, err)
		}
		if n++; n == docs/2 {
			passing = db.Passing()
			if got := numberedItems(t, c, 0); len(got) != docs {
				t.Errorf("the second reader sees %d documents of %d", len(got), docs)
			}
		}
	}
	if n != docs || !passing || db.Passing() {
		t.Errorf("%d documents of %d; in passes %v, want true; at the end %v, want false", n, docs, passing, db.Passing())
	}
}

// A reader that stops leaves the memory for passes to the next one.
func TestAReaderThatStopsEndsItsPasses(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true}.Resting())
	c := container(t, db, docstore.ContainerSpec{})
	for v := range 2 {
		for i := range 500 {
			upsert(t, c, fmt.Sprint("d", i), "p", v)
		}
	}
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, err := range s.Documents(t.Context(), feed.FullRange(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if db.Passing() {
			break
		}
	}
	if db.Passing() {
		t.Error("the reader has stopped, and its memory for passes is still taken")
	}
}
