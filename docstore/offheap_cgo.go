//go:build cgo

package docstore

// OffHeap reports whether [Options.CacheBytes] are outside the Go heap, and so neither counted for the garbage
// collector nor by the runtime's memory limit. They are in a build with cgo: the engine then has its memory from C.
const OffHeap = true
