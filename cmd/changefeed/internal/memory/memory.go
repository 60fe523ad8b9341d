// Package memory divides the memory that a server may take between the engine of its store and the rest, and keeps Go's
// heap near its part.
package memory

// The memory of a server is a wish, not a wall: a page of 4 MB or a query that sorts needs what it needs, and has limits of
// its own in package cosmosrest. The wish decides how much the process has when nothing of that kind runs: caches and
// buffers have their size from it, and garbage is collected before the heap is larger.

const (
	// Default is the memory of a server in bytes: ten of them have room in a laptop.
	Default = 120 << 20

	// Least is the smallest memory of a server in bytes. Below it the engine would write a table for every few
	// thousand writes, and the collector would run for every few hundred requests.
	Least = 84 << 20

	// program is how many bytes are for the resident pages of the binary, 28 to 36 MB while it serves, and for what
	// C's allocator takes beside what it is asked for.
	program = 48 << 20

	// engineShare is the engine's part of what the program leaves, in percent.
	engineShare = 45
)

// Shares are the parts of a server's memory in bytes. With the pages of the program they are the whole.
type Shares struct {
	Engine int64 // blocks of the store that were read, and writes that are not yet in its tables
	Heap   int64 // all else that Go's runtime has from the system
}

// Of divides a memory of total bytes, which is [Least] or more.
func Of(total int64) Shares {
	rest := total - program
	engine := rest * engineShare / 100
	return Shares{Engine: engine, Heap: rest - engine}
}
