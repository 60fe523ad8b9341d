package engine

import "testing"

// All buffers of writes together have room in the cache that they are taken from.
func TestBuffersOfWritesFitIntoTheCache(t *testing.T) {
	for _, cache := range []int64{16 << 20, 40 << 20, DefaultCache, 1 << 30} {
		if all := buffers * int64(bufferOf(cache)); all > cache {
			t.Errorf("a cache of %d MB has %d buffers of %d MB: want no more than the cache", cache>>20, buffers,
				bufferOf(cache)>>20)
		}
	}
	for cache, want := range map[int64]uint64{
		1: leastBuffer, 40 << 20: 4 << 20, 160 << 20: 16 << 20,
		1 << 30: mostBuffer,
	} {
		if got := bufferOf(cache); got != want {
			t.Errorf("a cache of %d bytes has buffers of %d, want %d", cache, got, want)
		}
	}
}
