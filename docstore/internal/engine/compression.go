package engine

import (
	"cmp"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// plainStore is how many bytes a store may have on the disk before its tables are compressed. Most of what is read of a
// smaller store is in the system's cache of files, and to decompress it took a third of the time of a feed. The tables of a
// store that has grown past this size are compressed as they are merged.
const plainStore = 1 << 30

// plainOf is that size for a store. One in memory is always compressed.
func plainOf(o Options) int64 {
	if o.InMemory {
		return 0
	}
	return cmp.Or(o.Plain, plainStore)
}

// compressionOf is how the library writes the tables that it makes from now on. The first level is never compressed, because
// its tables are soon merged into the next: to compress and decompress them was a tenth of a batch's processor time. For the
// others, feeds are read nearly twice as fast as with the library's default.
func compressionOf(large *atomic.Bool) pebble.DBCompressionSettings {
	if !large.Load() {
		return pebble.DBCompressionNone
	}
	s := pebble.DBCompressionFastest
	s.Levels[0] = pebble.DBCompressionNone.Levels[0]
	return s
}

// weighStore finds out if the store has grown so large that its tables are to be compressed, or is so no longer.
func (e *Engine) weighStore(w weights) { e.large.Store(w.disk > e.plain) }
