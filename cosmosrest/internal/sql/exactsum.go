package sql

import "math"

// exactSum adds numbers without error and rounds once, at the end, as the service does. A simple sum of prices would
// end in digits that no price has, and would depend on their order.
//
// The parts are numbers that do not overlap, the smallest first. Their exact sum is the sum of all added numbers
// (Shewchuk, 1997). There are never more than a few parts.
type exactSum struct {
	parts []float64
	naive float64 // simple sum of all numbers, for results beyond the largest number
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

// addExactly returns the rounded sum of two numbers, and the error of the rounding.
func addExactly(a, b float64) (high, low float64) {
	if math.Abs(a) < math.Abs(b) {
		a, b = b, a
	}
	high = a + b
	return high, b - (high - a)
}

// value returns the sum, rounded to the nearest number; halves are rounded to even.
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
	// If the sum is exactly between two numbers, the smaller parts decide.
	if n > 0 && (low < 0) == (s.parts[n-1] < 0) {
		if twice := low * 2; twice == sum+twice-sum {
			sum += twice
		}
	}
	return sum
}
