package sql

import (
	"math"
	"math/big"
	"strconv"
)

// Functions of whole numbers of 64 bits. They overflow as in C++: the result is the sum, difference or product modulo
// 2⁶⁴. A number with a fraction, a larger number, or another type makes the result undefined.

// intFunctions are the functions by name. A shift uses the last six bits of the number of places, as the processor
// does. The quotient of a division is cut off towards zero, and the remainder has the sign of the dividend.
var intFunctions = map[string]*function{
	"INTADD":           ofInts(func(a, b int64) int64 { return a + b }),
	"INTSUB":           ofInts(func(a, b int64) int64 { return a - b }),
	"INTMUL":           ofInts(func(a, b int64) int64 { return a * b }),
	"INTDIV":           ofDivision(func(a, b int64) int64 { return a / b }),
	"INTMOD":           ofDivision(func(a, b int64) int64 { return a % b }),
	"INTBITAND":        ofInts(func(a, b int64) int64 { return a & b }),
	"INTBITOR":         ofInts(func(a, b int64) int64 { return a | b }),
	"INTBITXOR":        ofInts(func(a, b int64) int64 { return a ^ b }),
	"INTBITLEFTSHIFT":  ofInts(func(a, b int64) int64 { return a << (b & (intBits - 1)) }),
	"INTBITRIGHTSHIFT": ofInts(func(a, b int64) int64 { return a >> (b & (intBits - 1)) }),
	"INTBITNOT": {1, 1, false, func(_ *frame, args []value) value {
		a, ok := args[0].int64()
		if !ok {
			return value{}
		}
		return int64Value(^a)
	}},
}

const intBits = 64

// ofInts makes a function of two whole numbers.
func ofInts(compute func(a, b int64) int64) *function {
	return &function{2, 2, false, func(_ *frame, args []value) value {
		a, ok := args[0].int64()
		b, ok2 := args[1].int64()
		if !ok || !ok2 {
			return value{}
		}
		return int64Value(compute(a, b))
	}}
}

// ofDivision makes a function of two whole numbers that is undefined if the second is 0.
func ofDivision(compute func(a, b int64) int64) *function {
	divide := ofInts(compute)
	return &function{2, 2, false, func(f *frame, args []value) value {
		if args[1].kind == number && args[1].float() == 0 {
			return value{}
		}
		return divide.run(f, args)
	}}
}

// maxExact is the number up to which a double has room for every whole number.
const maxExact = 1 << 53

// exactly returns the sum, difference or product of two whole numbers of 64 bits, if a double has no room for all of
// their digits: 9007199254740993 + 1 is 9007199254740994, as in the service. If the result has more than 64 bits, the
// operator works on doubles. The operands are decoded.
func exactly(op string, left, right value) (value, bool) {
	x, y := left.num, right.num
	if math.Abs(x) < maxExact && math.Abs(y) < maxExact && math.Abs(x*y) < maxExact {
		return value{}, false // also of sums, whose doubles are exact
	}
	a, ok := left.int64()
	b, ok2 := right.int64()
	if !ok || !ok2 {
		return value{}, false
	}
	n, other := big.NewInt(a), big.NewInt(b)
	switch op {
	case "+":
		n.Add(n, other)
	case "-":
		n.Sub(n, other)
	case "*":
		n.Mul(n, other)
	default:
		return value{}, false
	}
	return int64Value(n.Int64()), n.IsInt64()
}

// int64 returns a whole number of 64 bits, with the digits for which a double has no room.
func (v value) int64() (int64, bool) {
	if v.kind != number {
		return 0, false
	}
	if v.raw != nil {
		if n, err := strconv.ParseInt(string(v.raw), 10, intBits); err == nil {
			return n, true
		}
	}
	f := v.float()
	return int64(f), f == math.Trunc(f) && -1<<63 <= f && f < 1<<63
}

// int64Value returns a number with all digits of a whole number of 64 bits.
func int64Value(n int64) value {
	return value{kind: number, decoded: true, num: float64(n), raw: strconv.AppendInt(nil, n, 10)}
}
