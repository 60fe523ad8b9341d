package epk

import (
	"math"
	"unicode/utf8"
)

// The form in this file is that of the .NET and Java SDKs, whose tests (PartitionKeyInternalTest and its .NET
// counterpart) compare it with the service. In this form, the bytes sort as the values do.

const (
	// cutChars is the length at which V1 cuts a string. As in .NET and Java, it counts UTF-16 code units.
	cutChars = 100

	// sortedBytes is the number of bytes of a string that V1 sorts by. A longer string has an extra byte, and no end
	// mark.
	sortedBytes = 100
)

const signBit = 1 << 63

// cut returns c as V1 uses it: a string is cut to its first 100 characters. A wrong cut would affect only long keys,
// and would silently lose them.
func (c Component) cut() Component {
	if c.mark != markString || len(c.str) <= cutChars {
		return c
	}
	chars := 0
	for i, r := range c.str {
		if chars == cutChars {
			c.str = c.str[:i]
			break
		}
		chars++
		if r < 0x10000 {
			continue
		}
		if chars == cutChars {
			// The cut falls between two surrogates. .NET encodes the first surrogate alone as U+FFFD.
			c.str = c.str[:i] + string(utf8.RuneError)
			break
		}
		chars++
	}
	return c
}

// appendSorted appends c in V1's form for sorting.
func appendSorted(b []byte, c Component) []byte {
	b = append(b, c.mark)
	switch c.mark {
	case markNumber:
		return appendNumber(b, c.num)
	case markString:
		return appendString(b, c.str)
	}
	return b
}

// appendNumber appends 8 bits of f, then groups of 7 bits. The low bit of a group says whether another group follows,
// so short numbers stay short.
func appendNumber(b []byte, f float64) []byte {
	n := math.Float64bits(f)
	if n < signBit {
		n |= signBit // positive numbers sort above negative numbers
	} else {
		n = -n // and large negative numbers below small negative numbers
	}
	b = append(b, byte(n>>56))
	for n <<= 8; ; {
		group := byte(n>>56) &^ 1
		if n <<= 7; n == 0 {
			return append(b, group)
		}
		b = append(b, group|1)
	}
}

// number is the inverse of appendNumber. The bound of a range may be cut at any byte, so missing groups count as
// zero, and bytes after the last group are ignored.
func number(b []byte) float64 {
	if len(b) == 0 {
		return math.Inf(-1)
	}
	n, shift := uint64(b[0])<<56, 49
	for _, group := range b[1:] {
		n |= uint64(group>>1) << shift
		if shift -= 7; group&1 == 0 || shift < 0 {
			break
		}
	}
	if n < signBit {
		return math.Float64frombits(-n)
	}
	return math.Float64frombits(n &^ signBit)
}

// appendString appends every byte of s plus one, so 00 can be the end mark, and a string sorts above its own
// prefixes.
func appendString(b []byte, s string) []byte {
	long := len(s) > sortedBytes
	if long {
		s = s[:sortedBytes+1]
	}
	for i := range len(s) {
		c := s[i]
		if c < 0xFF { // FF is never in UTF-8, but the end mark must stay the lowest byte
			c++
		}
		b = append(b, c)
	}
	if !long {
		b = append(b, 0x00)
	}
	return b
}
