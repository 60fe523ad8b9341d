package docstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// readInOrder reads all documents in the order of their creation, and returns the error.
func readInOrder(t *testing.T, c *docstore.Container, after int64) error {
	t.Helper()
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, p := range s.Partitions() {
		for _, err := range s.Documents(t.Context(), p.Range, after) {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// If the index of moved documents is wrong, a reader of the order gets an error, whether the documents are looked up
// or loaded in passes, and the check reports it. Damaged files are the subject of TestNoDamageIsSilent.
func TestAWrongIndexOfMovedDocumentsIsReported(t *testing.T) {
	for _, docs := range []int{20, 2000} { // 2,000 are loaded in a pass
		for name, damage := range map[string]func(*docstore.DB, *docstore.Container) error{
			"all items are missing": func(db *docstore.DB, c *docstore.Container) error { return db.DropMoved(c) },
			"an item is missing": func(db *docstore.DB, c *docstore.Container) error {
				return db.DropMovedItem(c, fmt.Sprint("d", docs-4), 0)
			},
			"an item is in a later place": func(db *docstore.DB, c *docstore.Container) error {
				return db.DropMovedItem(c, "d2", int64(docs)<<8|1)
			},
			"an item is in an earlier place": func(db *docstore.DB, c *docstore.Container) error {
				return db.DropMovedItem(c, fmt.Sprint("d", docs-4), 2<<8|1)
			},
			"an item was never replaced": func(db *docstore.DB, c *docstore.Container) error {
				return db.AddMoved(c, feed.Key("p"), "d1", 2<<8)
			},
			"the last version of an item is missing": func(db *docstore.DB, c *docstore.Container) error {
				return db.DropVersion(c, int64(docs)+2)
			},
			"an item does not exist": func(db *docstore.DB, c *docstore.Container) error {
				return db.AddMoved(c, feed.Key("p"), "none", 2<<8)
			},
		} {
			t.Run(fmt.Sprint(docs, " documents, ", name), func(t *testing.T) {
				db, err := docstore.Open("", docstore.Options{InMemory: true}.Resting()) // open would check at the end
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				c := container(t, db, docstore.ContainerSpec{})
				for i := range docs {
					upsert(t, c, fmt.Sprint("d", i), "p", 1)
				}
				for i := 0; i < docs; i += 2 {
					upsert(t, c, fmt.Sprint("d", i), "p", 2)
				}
				if err := errors.Join(db.Check(), readInOrder(t, c, 0), readInOrder(t, c, 5<<8)); err != nil {
					t.Fatal(err)
				}
				if err := damage(db, c); err != nil {
					t.Fatal(err)
				}
				if err := readInOrder(t, c, 0); !errors.Is(err, docstore.ErrCorrupt) {
					t.Errorf("a reader gets %v, want %v", err, docstore.ErrCorrupt)
				}
				// A reader from the middle cannot count the items, but finds each that is in a wrong place.
				if name != "all items are missing" && name != "an item is missing" {
					if err := readInOrder(t, c, 1<<8); !errors.Is(err, docstore.ErrCorrupt) {
						t.Errorf("a reader from the middle gets %v, want %v", err, docstore.ErrCorrupt)
					}
				}
				if err := db.Check(); !errors.Is(err, docstore.ErrCorrupt) {
					t.Errorf("the check says %v, want %v", err, docstore.ErrCorrupt)
				}
			})
		}
	}
}

// If a store of an older version loses the mark that some numbers are hashes, readers and the check report it.
func TestALostMarkOfHashesIsReported(t *testing.T) {
	found := 0
	eachOlder(t, "close", func(t *testing.T, s olderStore) {
		db := openOlder(t, s.on(t, vfs.NewMem()))
		defer db.Close()
		if err := db.Check(); err != nil {
			t.Fatal(err)
		}
		if !db.Hashed() {
			return
		}
		found++
		if err := db.DropHashed(); err != nil {
			t.Fatal(err)
		}
		var read error
		for _, c := range db.Containers() {
			read = errors.Join(read, readInOrder(t, c, 0))
		}
		if !errors.Is(read, docstore.ErrCorrupt) {
			t.Errorf("readers get %v, want %v", read, docstore.ErrCorrupt)
		}
		if err := db.Check(); !errors.Is(err, docstore.ErrCorrupt) {
			t.Errorf("the check says %v, want %v", err, docstore.ErrCorrupt)
		}
	})
	if found == 0 {
		t.Error("no older store has hashes for numbers: the test is about nothing")
	}
}
