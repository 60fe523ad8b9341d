package sql

import "math"

// exactSum adds numbers without an error and rounds once, at the end, as the service does: a
// naive sum of prices ends in digits that none of them has, and depends on their order.
//
// The parts are numbers that do not overlap, the smallest first; their exact sum is that of
// all numbers added (Shewchuk, 1997). There are a handful of them whatever is added.
type exactSum struct {
	parts []float64
	naive float64 // that of all, for sums beyond the largest number
}

// include adds a number.
func (s *exactSum) include(x float64) {
	s.naive += x
	kept := s.parts[:0]
	for _, part := range s.parts {
		high, low := addExactly(x, part)
		if low != 0 {
			kept = append(kept, low)
		}
		x = high
	}
	s.parts = append(kept, x)
}

// addExactly is the rounded sum of two numbers, and what the rounding took away.
func addExactly(a, b float64) (high, low float64) {
	if math.Abs(a) < math.Abs(b) {
		a, b = b, a
	}
	high = a + b
	return high, b - (high - a)
}

// value is the sum, rounded to the nearest number, half to even.
func (s *exactSum) value() float64 {
	if math.IsInf(s.naive, 0) || math.IsNaN(s.naive) {
		return s.naive
	}
	n := len(s.parts)
	if n == 0 {
		return 0
	}
	sum, low := s.parts[n-1], 0.0
	n--
	for n > 0 && low == 0 {
		n--
		sum, low = addExactly(sum, s.parts[n])
	}
	// Half way between two numbers the parts below decide.
	if n > 0 && (low < 0) == (s.parts[n-1] < 0) {
		if twice := low * 2; twice == sum+twice-sum {
			sum += twice
		}
	}
	return sum
}
