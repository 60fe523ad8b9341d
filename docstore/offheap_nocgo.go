//go:build !cgo

package docstore

// OffHeap reports whether [Options.CacheBytes] are outside the Go heap. If they are, neither the garbage collector
// nor the runtime's memory limit counts them. In this build, without cgo, they are in the heap.
const OffHeap = false
