//go:build cgo

package docstore

// OffHeap reports whether [Options.CacheBytes] are outside the Go heap. If they are, neither the garbage collector
// nor the runtime's memory limit counts them. In this build, with cgo, they are outside: the engine allocates its
// memory in C.
const OffHeap = true
