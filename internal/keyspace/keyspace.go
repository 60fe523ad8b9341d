// Package keyspace cuts ranges of effective partition keys, and says what of them others cover.
package keyspace

import (
	"fmt"
	"math/big"
	"strings"
)

const (
	hashDigits = 32   // hex digits of one version 2 hash
	hashEnd    = "40" // above all version 2 hashes: their top two bits are clear
)

// Cut divides a range into n parts of about equally many hashes of version 2, fewer when it is
// too narrow.
func Cut[R ~struct{ Min, Max string }](r R, n int) (parts []R) {
	least, most := span(r).Min, span(r).Max
	lo := number(least)
	width := new(big.Int).Sub(number(min(most, hashEnd)), lo)
	for i := 1; i < n; i++ {
		at := new(big.Int).Mul(width, big.NewInt(int64(i)))
		at.Add(lo, at.Div(at, big.NewInt(int64(n))))
		// In a range that is narrower than n hashes, neighbours would be equal.
		if edge := fmt.Sprintf("%0*X", hashDigits, at); least < edge && edge < most {
			parts = append(parts, R{least, edge})
			least = edge
		}
	}
	return append(parts, R{least, most})
}

// Width is the part of all hashes of version 2 that a range has, from 0 to 1.
func Width[R ~struct{ Min, Max string }](r R) float64 {
	width := new(big.Int).Sub(number(min(span(r).Max, hashEnd)), number(span(r).Min))
	part, _ := new(big.Rat).SetFrac(width, number(hashEnd)).Float64()
	return max(0, part)
}

// number reads an edge as a number of hashDigits hex digits; text that is none is 0.
func number(edge string) *big.Int {
	if len(edge) > hashDigits {
		edge = edge[:hashDigits]
	}
	n, _ := new(big.Int).SetString(edge+strings.Repeat("0", hashDigits-len(edge)), 16)
	if n == nil {
		n = new(big.Int)
	}
	return n
}
