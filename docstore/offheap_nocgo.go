//go:build !cgo

package docstore

// OffHeap reports whether [Options.CacheBytes] are outside the Go heap, and so neither counted for the garbage
// collector nor by the runtime's memory limit. In this build, without cgo, they are in the heap.
const OffHeap = false
