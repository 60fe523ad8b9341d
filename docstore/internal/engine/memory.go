package engine

// The memory of the engine is [Options.CacheBytes]. Buffers of writes are taken from the cache of blocks: mostly two, one
// that is written to, and one that becomes a table or is kept to be used again.
const (
	defaultCache = 96 << 20
	buffers      = 4  // at once, when tables are written slowly; then writes wait
	bufferPart   = 10 // of the cache, one buffer
	leastBuffer  = 4 << 20
	mostBuffer   = 32 << 20

	// A block that is not in the cache is read and decompressed whole for the one document that was asked for; a
	// scan of the feed is hardly slower than with blocks of twice the size.
	blockSize = 16 << 10

	// Buffers are small, so the tables of many are merged into the older ones at once: with fewer, the older ones would
	// be written anew for every few thousand writes.
	mergedTables = 10
)

// bufferOf is the size of a buffer of writes for a cache of so many bytes. A small one becomes a table often.
func bufferOf(cache int64) uint64 {
	return uint64(min(max(cache/bufferPart, leastBuffer), mostBuffer))
}
