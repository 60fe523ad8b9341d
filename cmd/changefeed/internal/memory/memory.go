// Package memory divides a server's memory between the engine of its store and the rest, and keeps Go's heap near its
// part.
package memory

// The memory of a server is a target, not a hard limit. A page of 4 MB or a query that sorts takes the necessary
// memory, within the limits of package cosmosrest. The target decides how much memory the process uses without such
// requests: the sizes of caches and buffers follow from the target, and so does the time of garbage collections.

const (
	// Default is the default memory of a server, in bytes. Ten such servers fit in a laptop.
	Default = 120 << 20

	// Least is the smallest memory of a server, in bytes. With less, the engine would write a table every few
	// thousand writes, and the collector would run every few hundred requests.
	Least = 84 << 20

	// program is the number of bytes for the resident pages of the binary, which are 28 to 36 MB while serving, and
	// for the overhead of C's allocator.
	program = 48 << 20

	// engineShare is the engine's part, in percent, of the memory without program.
	engineShare = 45
)

// Shares are the parts of a server's memory, in bytes. Together with program they are the whole memory.
type Shares struct {
	Engine int64 // cached blocks of the store, and writes that are not in its tables yet
	Heap   int64 // the rest of the memory of Go's runtime
}

// Of divides a memory of total bytes, which must be at least [Least].
func Of(total int64) Shares {
	rest := total - program
	engine := rest * engineShare / 100
	return Shares{Engine: engine, Heap: rest - engine}
}
