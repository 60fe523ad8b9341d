package beat

import (
	"testing"
	"time"
)

// A lease is written on the beat of its instance, at its place in the burst; later after a
// checkpoint if that is safe, and at the latest a Renew after the last write if not.
func TestWhenALeaseIsRenewed(t *testing.T) {
	phase := time.Unix(0, 0)
	second := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for _, c := range []struct {
		name         string
		renew, trust float64
		written      float64
		place        float64
		held         int
		want         float64
	}{
		{"on the beat", 17, 54, 0, 0, 1, 17},
		{"at its place in the burst", 17, 54, 0.125, 0.5, 1, 17.125},
		{"at its place in a long burst", 17, 54, 1, 0.5, 80, 18},
		{"at its place in the longest of the quick bursts", 17, 54, 0.125, 0.5, smallBurst, 17.125},
		{"a burst of half a Renew at most", 10, 54, 2.5, 0.5, 1200, 12.5},
		{"the next beat after a checkpoint that was long before", 17, 54, 5, 0, 1, 17},
		{"the beat after it, after one just before", 17, 54, 12, 0, 1, 34},
		{"no later than safe", 17, 32.4, 12, 0, 1, 29},
	} {
		b := Beat{Phase: phase, Every: second(c.renew), Trust: second(c.trust)}
		got := b.Next(phase.Add(second(c.written)), c.place, c.held).Sub(phase)
		if got != second(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, second(c.want))
		}
	}
}
