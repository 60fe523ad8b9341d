package servermetrics

import (
	"math"
	"sync"
	"time"
)

// skew keeps the clock that is furthest off, of this minute and of the minute before. So a skew is seen by all readers
// that collect once a minute or more often, and is gone two minutes after the clock was set right.
type skew struct {
	mu      sync.Mutex
	minute  int64      // since 1970, of the present value
	seconds [2]float64 // of this minute and of the minute before; NaN if nothing is known
}

// note records a request that came at a time and was signed at another, by the clock of the client.
func (s *skew) note(now, came, signed time.Time) {
	ahead := signed.Sub(came.Truncate(time.Second)).Seconds() // a client signs whole seconds
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	s.seconds[0] = further(s.seconds[0], ahead)
}

// most returns the skew of the clock that is furthest off, or NaN.
func (s *skew) most(now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	return further(s.seconds[0], s.seconds[1])
}

// turn begins a new minute, if there is one.
func (s *skew) turn(now time.Time) {
	switch minute := now.Unix() / 60; minute - s.minute {
	case 0, -1: // who called us was overtaken at the end of a minute
	case 1:
		s.minute, s.seconds = minute, [2]float64{math.NaN(), s.seconds[0]}
	default: // a long time has passed, or our clock was set back
		s.minute, s.seconds = minute, [2]float64{math.NaN(), math.NaN()}
	}
}

// further returns the value that is further from 0. Unknown values do not count.
func further(a, b float64) float64 {
	if math.IsNaN(a) || math.Abs(b) > math.Abs(a) {
		return b
	}
	return a
}
