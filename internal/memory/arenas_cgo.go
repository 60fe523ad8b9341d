//go:build cgo && linux

package memory

// C's allocator serves all threads from one heap. The engine's blocks come and go on all threads, and with a heap for each
// thread, which is the default of glibc, those heaps held twice what the engine has. It has to be said before there are
// threads, so it is the constructor of a program that imports this package. Without cgo nothing is allocated by C.

// #include <malloc.h>
//
// #ifdef M_ARENA_MAX
// __attribute__((constructor)) static void one_arena(void) { mallopt(M_ARENA_MAX, 1); }
// #endif
import "C"
