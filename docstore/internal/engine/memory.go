package engine

// The memory of the engine is [Options.CacheBytes]. Buffers of writes are taken from the block cache. Usually there
// are two buffers: the first receives writes, and the second becomes a table or is kept for reuse.
const (
	DefaultCache = 96 << 20
	buffers      = 4  // at a time, if tables are written slowly; then writes wait
	bufferPart   = 10 // a buffer is this part of the cache
	leastBuffer  = 4 << 20
	mostBuffer   = 32 << 20

	// If a block is not in the cache, the whole block is read and decompressed for a single document. A scan of the
	// feed is hardly slower than with blocks of twice the size.
	blockSize = 16 << 10

	// Buffers are small, so the tables of many buffers are merged into the older tables at once. With fewer, the
	// older tables would be rewritten every few thousand writes.
	mergedTables = 10
)

// bufferOf returns the size of a write buffer for a cache of so many bytes. A small buffer becomes a table often.
func bufferOf(cache int64) uint64 {
	return uint64(min(max(cache/bufferPart, leastBuffer), mostBuffer))
}
