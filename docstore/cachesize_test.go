package docstore_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Writers who are faster than the disk, and readers of more than the cache has room for, do not
// make the engine larger than its share: a buffer of writes is never larger than the cache that
// it is taken from.
func TestTheEngineStaysWithinItsMemory(t *testing.T) {
	const memory, documents, size = 16 << 20, 48, 1 << 20
	db := open(t, docstore.Options{CacheBytes: memory, NoSync: true})
	c := container(t, db, docstore.ContainerSpec{})
	text := bytes.Repeat([]byte("x"), size)
	var most docstore.Stats
	look := func() {
		if s := db.Stats(); s.BufferSize+s.CacheBytes > most.BufferSize+most.CacheBytes {
			most = s
		}
	}
	for i := range documents {
		if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"%d","text":%q}`, i, i%8,
			text)); err != nil {
			t.Fatal(err)
		}
		look()
	}
	for i := range documents {
		if _, err := c.Item(t.Context(), feed.Key(fmt.Sprint(i%8)), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		look()
	}
	// A block that somebody reads while it is evicted counts until the end of the read.
	if most.BufferSize+most.CacheBytes > memory+memory/64 {
		t.Errorf("the engine had %d KB of writes and %d KB of blocks, want %d KB together at most", most.BufferSize>>10,
			most.CacheBytes>>10, memory>>10)
	}
	if most.BufferSize+most.CacheBytes < memory/2 {
		t.Errorf("the engine had %d KB of writes and %d KB of blocks: want it to use its %d KB", most.BufferSize>>10,
			most.CacheBytes>>10, memory>>10)
	}
}
