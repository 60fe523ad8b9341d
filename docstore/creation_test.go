package docstore_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// numberedItems are the documents of all partitions of a snapshot, each partition in the order of creation.
func numberedItems(t *testing.T, c *docstore.Container, after int64) (ids []string) {
	t.Helper()
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, p := range s.Partitions() {
		last := after
		for item, err := range s.Documents(t.Context(), p.Range, after) {
			if err != nil {
				t.Fatal(err)
			}
			if item.Number <= last {
				t.Fatalf("item %s has number %d behind %d", item.ID, item.Number, last)
			}
			last = item.Number
			ids = append(ids, item.ID)
		}
	}
	return ids
}

// Documents keep the order of their creation, however many of them are replaced, deleted and created again, and also
// while versions are being moved after splits and merges.
func TestDocumentsComeInTheOrderOfCreation(t *testing.T) {
	const docs = 2000
	for _, replaced := range []int{0, 10, 6000} {
		rng := rand.New(rand.NewPCG(uint64(replaced), 1))
		db := open(t, docstore.Options{InMemory: true}.Resting())
		c := container(t, db, docstore.ContainerSpec{Paths: []string{"/id"}})
		born := map[string]int64{}
		write := func(id string) {
			item, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"v":%d}`, id, rng.Int()))
			if err != nil {
				t.Fatal(err)
			}
			born[id] = cmp.Or(born[id], item.LSN)
		}
		for i := range docs {
			write(fmt.Sprint("i", i))
		}
		check := func(when string) {
			t.Helper()
			parts, err := c.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, after := range []int64{0, docs / 2, docs - 1} {
				var want []string
				for _, p := range parts {
					from := len(want)
					for id, lsn := range born {
						place, err := c.Locate(t.Context(), feed.Key(id))
						if err != nil {
							t.Fatal(err)
						}
						if lsn > after && p.Range.Holds(place) {
							want = append(want, id)
						}
					}
					slices.SortFunc(want[from:], func(a, b string) int { return cmp.Compare(born[a], born[b]) })
				}
				if got := numberedItems(t, c, after<<8|255); !slices.Equal(got, want) {
					t.Fatalf("%d replaced, %s, after LSN %d: the documents are not in the order of creation", replaced,
						when, after)
				}
			}
			if err := db.Check(); err != nil {
				t.Fatal(err)
			}
		}
		for range replaced {
			write(fmt.Sprint("i", rng.IntN(docs)))
		}
		check("whole")
		if _, err := c.Split(t.Context(), "0"); err != nil {
			t.Fatal(err)
		}
		for range replaced / 10 {
			id := fmt.Sprint("i", rng.IntN(docs))
			if err := c.Delete(t.Context(), feed.Key(id), id, ""); err != nil && !errors.Is(err, feed.ErrNotFound) {
				t.Fatal(err)
			}
			delete(born, id)
			write(fmt.Sprint("i", rng.IntN(docs)))
		}
		check("split")
		if _, err := db.MoveSome(c); err != nil {
			t.Fatal(err)
		}
		check("while versions are moved")
		db.Sweep(c)
		check("moved")
		if _, err := c.Merge(t.Context(), "1", "2"); err != nil {
			t.Fatal(err)
		}
		check("merged")
	}
}

// A reader that stopped within a transaction gets the rest of the transaction.
func TestARestOfATransactionFollowsItsBeginning(t *testing.T) {
	c := container(t, open(t, docstore.Options{InMemory: true}), docstore.ContainerSpec{})
	var writes []feed.Write
	for _, id := range []string{"a", "b", "c"} {
		body := fmt.Appendf(nil, `{"id":%q,"pk":"p"}`, id)
		writes = append(writes, feed.Write{Op: feed.WriteCreate, ID: id, Body: body})
	}
	if _, err := c.Commit(t.Context(), feed.Key("p"), writes); err != nil {
		t.Fatal(err)
	}
	first, err := c.Item(t.Context(), feed.Key("p"), "a")
	if err != nil {
		t.Fatal(err)
	}
	if got := numberedItems(t, c, first.Number); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("behind the first of three items are %q, want the other two", got)
	}
}

// A store of an older version gets its order when it is opened, also if documents have hashes for numbers.
func TestOlderStoresComeInTheOrderOfNumbers(t *testing.T) {
	eachOlder(t, "close", func(t *testing.T, s olderStore) {
		db := openOlder(t, s.on(t, vfs.NewMem()))
		for _, c := range db.Containers() {
			numberedItems(t, c, 0)
			if got := len(numberedItems(t, c, 0)); int64(got) != c.Count() {
				t.Errorf("container %s shows %d of %d documents", c.ID(), got, c.Count())
			}
		}
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestCheckMissesADocumentInTheOrder(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true}) // open would check again at the end
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{})
	for _, id := range []string{"a", "b", "a"} {
		upsert(t, c, id, "p", 1)
	}
	if err := errors.Join(db.Check(), db.DropMoved(c)); err != nil {
		t.Fatal(err)
	}
	if err := db.Check(); !errors.Is(err, docstore.ErrCorrupt) {
		t.Errorf("a moved document is not in the index, and the check says %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
