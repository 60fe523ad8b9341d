package epk

import (
	"math"
	"math/big"
)

// Ranges are cut by the number that a place represents: for V1 the 32-bit hash, otherwise the remaining 126 bits of a
// hash, level by level for MultiHash. Keys spread evenly over these numbers, but not over the strings: three quarters
// of all V1 places begin with 05C1D or 05C1E.

const (
	v1Bits = 32
	v2Bits = 8*hashBytes - 2
)

// bits returns the number of bits in a level of a place, and the number of levels. For an unknown kind both are 0.
func (k Kind) bits() (bits uint, levels int) {
	switch k {
	case HashV1:
		return v1Bits, 1
	case HashV2:
		return v2Bits, 1
	case MultiHash:
		return v2Bits, MaxLevels
	}
	return 0, 0
}

// Even returns the n-1 inner bounds that cut the key space into n ranges with about the same number of keys. The
// service gives a new container with n physical partitions the same bounds. If n is below 2, Even returns nil.
func Even(kind Kind, n int) []string {
	bits, levels := kind.bits()
	if n < 2 || levels == 0 {
		return nil
	}
	last := new(big.Int).Lsh(big.NewInt(1), bits)
	last.Sub(last, big.NewInt(1))
	bounds := make([]string, n-1)
	for i := range bounds {
		v := big.NewInt(int64(i + 1))
		v.Mul(v, last).Quo(v, big.NewInt(int64(n)))
		bounds[i] = bound(kind, v, 1)
	}
	return bounds
}

// Mid returns a bound strictly between lo and hi, with about the same number of keys on both sides. Mid returns false
// if there is no such bound: the range contains a single hash, or is invalid. A MultiHash range is cut between two
// values of the first level if possible, and otherwise within a value, because a cut within a value sends queries by
// prefix to two partitions.
func Mid(kind Kind, lo, hi string) (string, bool) {
	_, levels := kind.bits()
	for level := 1; level <= levels; level++ {
		from, ok := value(kind, lo, level)
		if !ok {
			return "", false
		}
		to, ok := value(kind, hi, level)
		if !ok {
			return "", false
		}
		if mid, ok := between(from, to); ok {
			return bound(kind, mid, level), true
		}
	}
	return "", false
}

// between returns about the middle of from and to, rounded as the service does: the middle of the whole key space is
// 1FFF..., not 2000....
func between(from, to *big.Int) (*big.Int, bool) {
	one := big.NewInt(1)
	next := new(big.Int).Add(from, one)
	mid := new(big.Int).Add(from, to)
	mid.Sub(mid, one).Rsh(mid, 1)
	if mid.Cmp(next) < 0 {
		mid = next
	}
	return mid, mid.Cmp(to) < 0
}

// value returns the number that bound s represents, down to a level. The number is never greater than the bound, so a
// higher number makes a higher bound.
func value(kind Kind, s string, level int) (*big.Int, bool) {
	b, ok := fromHex(s)
	if !ok {
		return nil, false
	}
	if kind == HashV1 {
		return v1Value(b), true
	}
	v := new(big.Int)
	for rest := level - 1; rest >= 0; rest-- {
		var hash [hashBytes]byte
		b = b[copy(hash[:], b):]
		v.Lsh(v, v2Bits)
		if hash[0] > 0x3F { // Max, or the end of a prefix: above all hashes
			v.Add(v, new(big.Int).Lsh(big.NewInt(1), v2Bits))
			return v.Lsh(v, uint(rest)*v2Bits), true
		}
		v.Add(v, new(big.Int).SetBytes(hash[:]))
	}
	return v, true
}

// v1Value returns the hash at the beginning of a V1 bound, or the nearest hash.
func v1Value(b []byte) *big.Int {
	if len(b) == 0 || b[0] < markNumber {
		return new(big.Int)
	}
	const end = 1 << v1Bits
	f := number(b[1:])
	switch {
	case b[0] > markNumber, !(f < end) && !math.Signbit(f): // a NaN counts as greater than infinity
		return big.NewInt(end)
	case f > 0:
		return big.NewInt(int64(f))
	}
	return new(big.Int)
}

// bound is the inverse of value.
func bound(kind Kind, v *big.Int, levels int) string {
	if kind == HashV1 {
		return upperHex(appendSorted(nil, Number(float64(v.Uint64()))))
	}
	mask := new(big.Int).Lsh(big.NewInt(1), v2Bits)
	mask.Sub(mask, big.NewInt(1))
	b := make([]byte, levels*hashBytes)
	for i := range levels {
		hash := new(big.Int).Rsh(v, uint(levels-1-i)*v2Bits)
		hash.And(hash, mask).FillBytes(b[i*hashBytes : (i+1)*hashBytes])
	}
	return upperHex(b)
}
