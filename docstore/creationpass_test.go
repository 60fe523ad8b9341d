package docstore_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A reader of many moved documents walks through the log in several passes, and drops documents if they are larger than
// the first ones promised. A second reader meanwhile has no memory for passes, and reads the same.
func TestPassesLoadDocumentsOfAllSizes(t *testing.T) {
	const docs, cache = 1500, 256 << 10
	db := open(t, docstore.Options{InMemory: true, CacheBytes: cache}.Resting())
	c := container(t, db, docstore.ContainerSpec{Paths: []string{"/id"}})
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
	// The engine frees the memory of tables that it has read, so a body that shares this memory changes.
	if err := db.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	read := func(halfway func()) {
		t.Helper()
		n := 0
		for item, err := range s.Documents(t.Context(), feed.FullRange(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			want, err := s.Item(t.Context(), feed.Key(id(n)), id(n))
			if err != nil || !reflect.DeepEqual(item, want) {
				t.Fatalf("document %d is\n%+v, want\n%+v, %v", n, item, want, err)
			}
			if n++; n == docs/2 {
				halfway()
			}
		}
		if n != docs {
			t.Errorf("%d documents of %d", n, docs)
		}
	}
	read(func() {
		if !db.Passing() {
			t.Error("the first reader makes no passes")
		}
		read(func() {})
		if !db.Passing() {
			t.Error("the second reader has ended the passes of the first")
		}
	})
	if db.Passing() {
		t.Error("the readers have ended, and the memory for passes is still taken")
	}
	if held, err := s.MostPassed(t.Context()); err != nil || held > cache || held < cache/2 {
		t.Errorf("passes hold %d bytes at most, %v: want at most %d, and at least half of them", held, err, cache)
	}
}

// A reader that stops leaves the memory for passes to the next one. The memory is too small for all documents, so the
// reader stops before it has read the whole index.
func TestAReaderThatStopsEndsItsPasses(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true, CacheBytes: 64 << 10}.Resting())
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
	passing := false
	for _, err := range s.Documents(t.Context(), feed.FullRange(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if passing = db.Passing(); passing {
			break
		}
	}
	if !passing {
		t.Error("the reader has made no passes")
	}
	if db.Passing() {
		t.Error("the reader has stopped, and its memory for passes is still taken")
	}
}

// A reader shows the documents that had not expired when its snapshot was taken, whether they are looked up or loaded
// in a pass.
func TestAReaderShowsWhatLivedInItsSnapshot(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true}.Resting())
	c := container(t, db, docstore.ContainerSpec{DefaultTTL: new(docstore.NoDefaultTTL)})
	var all, living []string
	for v := range 2 {
		for i := range 500 {
			id, ttl := fmt.Sprint("d", i), -1
			if i%2 == 0 {
				ttl = 30
			}
			body := fmt.Appendf(nil, `{"id":%q,"pk":"p","v":%d,"ttl":%d}`, id, v, ttl)
			if _, err := c.Upsert(t.Context(), body); err != nil {
				t.Fatal(err)
			}
			if v > 0 {
				continue
			}
			if all = append(all, id); ttl < 0 {
				living = append(living, id)
			}
		}
	}
	before, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	c.StepClock(time.Minute)
	after, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	for _, test := range []struct {
		when string
		s    *docstore.Snapshot
		want []string
	}{{"before", before, all}, {"after", after, living}} {
		var got []string
		passing := false
		for item, err := range test.s.Documents(t.Context(), feed.FullRange(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			got, passing = append(got, item.ID), passing || db.Passing()
		}
		if !slices.Equal(got, test.want) || !passing {
			t.Errorf("the snapshot %s the time shows %d documents, want %d; in passes %v, want true", test.when, len(got),
				len(test.want), passing)
		}
	}
}
