package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The runtime has a limit for its memory, and a collector that works as hard as is needed to stay below it. Where the
// data alone exceeds the limit, that is half of all processor time, for nothing. So the limit is raised there: after
// each collection it is set anew, to what the collection has found to be live and room for garbage. It falls again
// with the data.

const (
	// garbageShare is how much garbage there may be at least, as a part of the live data. What is allocated while
	// a collection runs counts as live, so a larger part would add up from one collection to the next.
	garbageShare = 4

	// mostGarbage bounds that, in bytes: with it, all that queries, answers and connections hold together stays well
	// below a gigabyte.
	mostGarbage = 128 << 20

	// worthwhile is the part of the limit by which a new one must differ. To set a limit stops the world for some
	// microseconds.
	worthwhile = 16
)

// Keep holds what Go's runtime has from the system near limit bytes, until end is called, which restores the limit that there
// was before. Live data that leaves no room for garbage raises the limit.
func Keep(limit int64) (end func()) {
	k := &keeper{least: limit, now: limit, before: debug.SetMemoryLimit(limit)}
	k.awaitCollection()
	return k.end
}

// keeper sets the limit after each collection.
type keeper struct {
	least, before int64

	mu    sync.Mutex
	now   int64
	ended bool
}

// sentinel becomes garbage at once, so its cleanup runs after the next collection. The pointer keeps the runtime from
// placing it in a block with others, which could live on.
type sentinel struct{ _ *sentinel }

// awaitCollection has the limit set after the next collection.
func (k *keeper) awaitCollection() {
	runtime.AddCleanup(new(sentinel), (*keeper).collected, k)
}

// collected sets the limit by what a collection has found, and waits for the next.
func (k *keeper) collected() {
	live, other := found()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	if limit := limitFor(k.least, live, other); limit != k.now && (limit == k.least || abs(limit-k.now) > k.now/worthwhile) {
		debug.SetMemoryLimit(limit)
		k.now = limit
	}
	k.awaitCollection()
}

// end restores the limit.
func (k *keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.ended = true
		debug.SetMemoryLimit(k.before)
	}
}

// limitFor is the limit for so many bytes of live data, and of other memory of the runtime, such as stacks.
func limitFor(least, live, other int64) int64 {
	return max(least, live+min(live/garbageShare, mostGarbage)+other)
}

// found returns what the last collection has found to be live, and what the runtime has beside its heap, in bytes.
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

// value is the number of a sample; 0 where the runtime has none by that name.
func value(s metrics.Sample) int64 {
	if s.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(s.Value.Uint64())
}

func abs(n int64) int64 { return max(n, -n) }
