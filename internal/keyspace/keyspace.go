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

// Edges returns the inner edges that cut the range from least to most into n parts of about
// equally many hashes of version 2, in their order; fewer when the range is too narrow.
func Edges(least, most string, n int) (edges []string) {
	lo := number(least)
	width := new(big.Int).Sub(number(min(most, hashEnd)), lo)
	last := least
	for i := 1; i < n; i++ {
		at := new(big.Int).Mul(width, big.NewInt(int64(i)))
		at.Add(lo, at.Div(at, big.NewInt(int64(n))))
		// In a range that is narrower than n hashes, neighbours would be equal.
		if edge := fmt.Sprintf("%0*X", hashDigits, at); last < edge && edge < most {
			edges = append(edges, edge)
			last = edge
		}
	}
	return edges
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
