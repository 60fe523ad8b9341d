package memory

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestThePartsOfTheMemoryAreTheWhole(t *testing.T) {
	for _, total := range []int64{Least, Default, 1 << 30, 64 << 30} {
		s := Of(total)
		if sum := s.Engine + s.Heap + program; sum != total || s.Engine < 16<<20 || s.Heap < s.Engine {
			t.Errorf("%d MB are divided into %d MB for the engine, %d MB for the heap and %d MB for the program: "+
				"want the sum, and the larger part for the heap",
				total>>20, s.Engine>>20, s.Heap>>20, int64(program)>>20)
		}
	}
}

// With too little room for garbage, the collector would take half of all processor time.
func TestTheLimitLeavesRoomForGarbage(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct{ live, other, want int64 }{
		{0, 0, 80 * mb},
		{56 * mb, 8 * mb, 80 * mb},
		{80 * mb, 0, 100 * mb},
		{80 * mb, 8 * mb, 108 * mb},
		{256 * mb, 0, 320 * mb},
		{640 * mb, 20 * mb, (640 + 128 + 20) * mb},
		{4096 * mb, 0, (4096 + 128) * mb},
	} {
		if got := limitFor(80*mb, c.live, c.other); got != c.want {
			t.Errorf("the limit with %d MB live and %d MB of other memory is %d MB, want %d", c.live/mb, c.other/mb,
				got/mb, c.want/mb)
		}
	}
}

func TestLiveDataRaisesTheLimitForAsLongAsItLives(t *testing.T) {
	const least, large = 64 << 20, 128 << 20
	before := debug.SetMemoryLimit(-1)
	end := Keep(least)
	if got := debug.SetMemoryLimit(-1); got != least {
		t.Errorf("the limit is %d, want %d", got, least)
	}
	for range 50 { // of a server that is not used yet
		runtime.GC()
	}
	data := make([]byte, large)
	collect(t, "with live data", func(limit int64) bool { return limit >= large*5/4 && limit < large*2 })
	runtime.KeepAlive(data)
	collect(t, "without the data", func(limit int64) bool { return limit == least })
	data = make([]byte, large)
	collect(t, "with live data again", func(limit int64) bool { return limit > large })
	runtime.KeepAlive(data)
	end()
	end()
	for range 50 { // would lower the limit again
		runtime.GC()
	}
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("the limit is %d after the end, want %d as before", got, before)
	}
}

// collect collects garbage until the limit is as wanted. The runtime sets no time for what follows a collection.
func collect(t *testing.T, when string, ok func(limit int64) bool) {
	t.Helper()
	for range 1000 {
		if ok(debug.SetMemoryLimit(-1)) {
			return
		}
		runtime.GC()
	}
	t.Errorf("the limit is %d %s, after 1000 collections", debug.SetMemoryLimit(-1), when)
}

func TestTheRuntimeTellsWhatTheLimitNeeds(t *testing.T) {
	data := make([]byte, 32<<20)
	runtime.GC()
	live, other := found()
	runtime.KeepAlive(data)
	if live < 32<<20 || live > 64<<20 || other <= 0 || other > 32<<20 {
		t.Errorf("with %d MB of data %d MB are live, and %d MB are not of the heap", len(data)>>20, live>>20, other>>20)
	}
}
