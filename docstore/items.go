package docstore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// maxScan is the number of documents in a step of a scan.
const maxScan = 256

// Items returns the documents of a range in the order of their place in the key space, then by key and id. If key is
// not empty, you get only the documents of this logical partition. Documents written during the iteration may appear
// or not. An error comes as the last pair.
func (c *Container) Items(ctx context.Context, rng feed.Range, key feed.PartitionKey) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		err := index{c}.each(ctx, rng, key, func(item Item) bool { return yield(item, nil) })
		if err != nil {
			yield(Item{}, fmt.Errorf("list items of %q: %w", c.ID(), err))
		}
	}
}

// each calls yield for the documents of a range until yield returns false.
func (x index) each(ctx context.Context, rng feed.Range, key feed.PartitionKey, yield func(Item) bool) error {
	sel, err := x.c.layout.Load().selection(rng, feed.ReadOptions{Key: key})
	if err != nil {
		return err
	}
	if sel.rng.Empty() {
		return refuse("range %q holds no keys: want min below max, within -FF", rng)
	}
	from := append(tableKey(tableDoc, x.c.num, len(sel.rng.Min)), sel.rng.Min...)
	to := append(tableKey(tableDoc, x.c.num, len(sel.rng.Max)), sel.rng.Max...)
	// The keys are read in steps, and the bodies individually. No cursor is open while the caller works on a
	// document, because an open cursor keeps the disk space of all data deleted meanwhile.
	for {
		if err := x.c.checkUsable(ctx); err != nil {
			return err
		}
		keys, err := x.keys(from, to)
		if err != nil {
			return err
		}
		for _, k := range keys {
			item, found, err := x.item(ctx, k)
			if err != nil {
				return err
			}
			if found && (sel.pk == "" || string(item.Key) == sel.pk) && !yield(item) {
				return nil
			}
		}
		if len(keys) < maxScan {
			return nil
		}
		from = append(keys[len(keys)-1], 0)
	}
}

// keys returns the first keys in [from, to), at most maxScan.
func (x index) keys(from, to []byte) (keys [][]byte, err error) {
	it, err := x.c.db.eng.Cursor(from, to)
	if err != nil {
		return nil, err
	}
	defer it.CloseInto(&err, "close cursor")
	for ok := it.First(); ok && len(keys) < maxScan; ok = it.Next() {
		keys = append(keys, slices.Clone(it.Key()))
	}
	return keys, it.Err()
}

// Stats contains figures of a store.
type Stats struct {
	DiskBytes  int64 // size of the files
	BufferSize int64 // bytes of writes that are not yet in sorted files
	CacheBytes int64 // bytes of the block cache that are in use
	Containers []ContainerStats
}

// ContainerStats contains figures of a container.
type ContainerStats struct {
	ID         string
	Head       int64     // newest LSN
	Time       time.Time // of the newest commit
	Documents  int64
	Partitions []PartitionStats
}

// PartitionStats contains figures of a physical partition.
type PartitionStats struct {
	ID        string
	Range     feed.Range
	Documents int64
	Newest    int64 // LSN of its newest change
	Logs      int   // number of logs that a reader walks; several for a while after a split or merge
}

// Stats returns the store's present figures.
func (db *DB) Stats() Stats {
	var s Stats
	if db.closed() == nil {
		s.DiskBytes, s.BufferSize, s.CacheBytes = db.eng.Usage()
	}
	for _, c := range db.Containers() {
		cs := ContainerStats{ID: c.ID(), Head: c.Head(), Documents: c.Count()}
		if cs.Head > 0 {
			cs.Time = time.UnixMilli(c.newestTime.Load()).UTC()
		}
		l := c.layout.Load()
		for _, part := range l.parts {
			cs.Partitions = append(cs.Partitions, PartitionStats{
				ID: part.id(), Range: part.rng, Documents: part.docs.Load(), Newest: part.newest.Load(),
				Logs: len(l.logsOf(part)),
			})
		}
		s.Containers = append(s.Containers, cs)
	}
	return s
}

// CheckRoom returns [ErrDiskFull], as a write would, if the disk has less free space than the store wants for writes.
func (db *DB) CheckRoom() error { return db.eng.LacksRoom(1) }
