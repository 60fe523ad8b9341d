package bench

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/millrace/changefeed/feed"
)

// bareEngine contains the changes of a feed under ascending numbers, in the engine below the store, without the
// store: the upper limit for reading the feed. Therefore this file names the engine's library, which otherwise only a
// single package of docstore does.
type bareEngine struct {
	db   *pebble.DB
	next uint64
	page []byte
}

// The settings are those of docstore.
const (
	bareCache    = 96 << 20
	bareMemTable = 32 << 20
	bareBlock    = 32 << 10
	bareBase     = 64 << 20
	barePage     = 1000 // changes
)

// openBareEngine opens the engine with the settings of the store.
func openBareEngine(dir string) (*bareEngine, error) {
	o := &pebble.Options{
		FormatMajorVersion: pebble.FormatNewest, CacheSize: bareCache,
		MemTableSize: bareMemTable, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 4, LBaseMaxBytes: bareBase,
		Logger: silentLog{},
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = bareBlock
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest })
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open bare engine: %w", err)
	}
	return &bareEngine{db: db}, nil
}

// silentLog drops the engine's messages.
type silentLog struct{}

func (silentLog) Infof(string, ...any)  {}
func (silentLog) Errorf(string, ...any) {}
func (silentLog) Fatalf(string, ...any) {}

// storeChanges stores the parts of changes.
func (e *bareEngine) storeChanges(changes []feed.Change) error {
	b := e.db.NewBatch()
	for _, c := range changes {
		e.next++
		// The value contains everything that a reader of the feed gets, without the store's own marks and lengths.
		value := slices.Concat([]byte(c.ID), []byte(c.PartitionKey), []byte(c.ETag), c.Body)
		if err := b.Set(binary.BigEndian.AppendUint64(nil, e.next), value, nil); err != nil {
			return fmt.Errorf("fill bare engine: %w", err)
		}
	}
	// These bytes are not needed after a crash, so writes do not wait for the disk.
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("fill bare engine: %w", err)
	}
	return nil
}

// scanAll walks over all entries and counts them. scan copies each page into one buffer, because the engine reuses its
// bytes at the next step.
func (e *bareEngine) scanAll() (n int, err error) {
	it, err := e.db.NewIter(nil)
	if err != nil {
		return 0, fmt.Errorf("scan bare engine: %w", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return 0, fmt.Errorf("scan bare engine: %w", err)
		}
		if n%barePage == 0 {
			e.page = e.page[:0]
		}
		e.page = append(e.page, v...)
		n++
	}
	return n, it.Error()
}

// close closes the engine.
func (e *bareEngine) close() error { return e.db.Close() }
