package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The Go runtime has a limit for its memory, and its collector works as hard as needed to stay below the limit. If
// the live data alone exceeds the limit, the collector takes half of all processor time in vain. So the limit is
// raised then: after each collection the limit is set again, to the size of the live data plus room for garbage. When
// the live data shrinks, the limit falls again.

const (
	// garbageShare is the smallest allowed amount of garbage, as a part of the live data: 1 divided by garbageShare.
	// Memory that is allocated while a collection runs counts as live, so a larger part would grow from one
	// collection to the next.
	garbageShare = 4

	// mostGarbage limits this amount, in bytes, so queries, answers and connections together stay well below a
	// gigabyte.
	mostGarbage = 128 << 20

	// worthwhile is the part of the limit by which a new limit must differ, because setting a limit stops the world
	// for some microseconds.
	worthwhile = 16
)

// Keep holds the memory of Go's runtime near limit bytes until end is called, which restores the previous limit. If
// the live data leaves no room for garbage, Keep raises the limit.
func Keep(limit int64) (end func()) {
	k := &keeper{least: limit, now: limit, before: debug.SetMemoryLimit(limit)}
	k.awaitCollection()
	return k.restoreLimit
}

// keeper sets the limit after each collection.
type keeper struct {
	least, before int64

	mu    sync.Mutex
	now   int64
	ended bool
}

// sentinel becomes garbage at once, so its cleanup runs after the next collection. The pointer prevents the runtime
// from placing the sentinel in a block with other objects, which could stay alive.
type sentinel struct{ _ *sentinel }

// awaitCollection arranges that the limit is set after the next collection.
func (k *keeper) awaitCollection() {
	runtime.AddCleanup(new(sentinel), (*keeper).adjustLimit, k)
}

// adjustLimit sets the limit according to the last collection, and waits for the next collection.
func (k *keeper) adjustLimit() {
	live, other := found()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	if limit := limitFor(k.least, live, other); limit != k.now && (limit == k.least ||
		abs(limit-k.now) > k.now/worthwhile) {
		debug.SetMemoryLimit(limit)
		k.now = limit
	}
	k.awaitCollection()
}

// restoreLimit restores the limit.
func (k *keeper) restoreLimit() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.ended = true
		debug.SetMemoryLimit(k.before)
	}
}

// limitFor returns the limit for so many bytes of live data, and of other memory of the runtime, such as stacks.
func limitFor(least, live, other int64) int64 {
	return max(least, live+min(live/garbageShare, mostGarbage)+other)
}

// found returns the live bytes after the last collection, and the runtime's memory outside its heap, in bytes.
func found() (live, other int64) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
	}
	metrics.Read(samples)
	other = value(samples[1])
	for _, s := range samples[2:] {
		other -= value(s)
	}
	return value(samples[0]), max(0, other)
}

// value returns the number of a sample, or 0 if the runtime has no such metric.
func value(s metrics.Sample) int64 {
	if s.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(s.Value.Uint64())
}

func abs(n int64) int64 { return max(n, -n) }
