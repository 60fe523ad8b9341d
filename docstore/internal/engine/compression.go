package engine

import (
	"cmp"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// plainStore is the size on the disk, in bytes, up to which the tables of a store are not compressed. Most reads of
// such a store come from the system's file cache, and decompression took a third of the time of a feed. When a store
// grows beyond this size, its tables are compressed as they are merged.
const plainStore = 1 << 30

// plainOf returns that size for a store. A store in memory is always compressed.
func plainOf(o Options) int64 {
	if o.InMemory {
		return 0
	}
	return cmp.Or(o.Plain, plainStore)
}

// compressionOf returns how the library compresses new tables. The first level is never compressed, because its
// tables are soon merged into the next level; compressing and decompressing them took a tenth of a batch's processor
// time. With these settings for the other levels, feeds are read nearly twice as fast as with the library's default.
func compressionOf(large *atomic.Bool) pebble.DBCompressionSettings {
	if !large.Load() {
		return pebble.DBCompressionNone
	}
	s := pebble.DBCompressionFastest
	s.Levels[0] = pebble.DBCompressionNone.Levels[0]
	return s
}

// weighStore decides by the store's size whether new tables are compressed.
func (e *Engine) weighStore(w weights) { e.large.Store(w.disk > e.plain) }
