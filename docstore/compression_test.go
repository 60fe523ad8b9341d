package docstore_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// The tables of a small store are not compressed, because that would slow its readers down for room that nobody needs.
// Those of a store that has grown are, while it is open and after it was opened again.
func TestAStoreIsCompressedWhenItHasGrown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		documents, size := detector.Rounds(800, 300), 10_000
		mem := vfs.NewMem()
		open := func() (*docstore.DB, *docstore.Container) {
			db,
				err := docstore.Open("db",
				docstore.Options{}.WithFS(mem).WithBuffer(256<<10).WithPlain(int64(documents*size/8)))
			if err != nil {
				t.Fatal(err)
			}
			if len(db.Containers()) == 0 {
				return db, container(t, db, docstore.ContainerSpec{})
			}
			return db, db.Containers()[0]
		}
		full := func(db *docstore.DB, c *docstore.Container) int64 {
			text := noise(size/5) + strings.Repeat("y", size*4/5)
			for i := range documents {
				if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"%d","text":%q}`, i, i%8,
					text)); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // until the tables that were merged are deleted
			return bytesOf(t, mem)
		}
		db, c := open()
		if n := full(db, c); n < int64(documents*size) {
			t.Errorf("a small store has %d bytes for %d bytes of documents: it is compressed", n, documents*size)
		}
		time.Sleep(time.Minute)
		if n := full(db, c); n > int64(documents*size/2) {
			t.Errorf("a store that has grown has %d bytes for %d bytes of documents: it is not compressed", n,
				documents*size)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db, c = open()
		if n := full(db, c); n > int64(documents*size/2) {
			t.Errorf("a large store that was opened again has %d bytes for %d bytes of documents: it is not compressed",
				n, documents*size)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
