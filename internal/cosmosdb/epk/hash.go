package epk

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/murmur3"
)

// The place of a key must be the service's, to the bit. Leases, ranges and positions of other processors use these
// places, and a wrong place would send a key's changes to an owner who does not look for them.

// Min and Max are the bounds of the key space: every place is in [Min, Max).
const (
	Min = ""
	Max = "FF"
)

// MaxLevels is the largest number of paths in a hierarchical partition key.
const MaxLevels = 3

// Kind is how a container hashes its partition keys: the kind and the version of its partition key definition
// together. The zero Kind is invalid, so a forgotten Kind causes an error, not a wrong place.
type Kind uint8

const (
	HashV1    Kind = iota + 1 // kind Hash, version 1, or a definition without version
	HashV2                    // kind Hash, version 2
	MultiHash                 // kind MultiHash, always version 2, for hierarchical keys
)

// hashBytes is the size of a 128-bit hash. A MultiHash place has a hash for each level.
const hashBytes = 16

// stackBytes is the longest key, in bytes, that is hashed without heap memory. Most keys are shorter; the service's
// longest key has 2048 bytes.
const stackBytes = 256

var errKind = errors.New("unknown kind; want HashV1, HashV2 or MultiHash")

// Hash returns the place of key c in upper-case hex, or "" for the empty key. For MultiHash, a key with fewer
// components than the container has paths is a prefix, and its place is the beginning of the keys with this prefix;
// see [Prefix].
func Hash(kind Kind, c Components) (string, error) {
	if len(c) == 0 {
		return Min, nil
	}
	var buf [stackBytes]byte
	place := buf[:0]
	switch kind {
	case HashV1:
		place = appendV1(place, c)
	case HashV2:
		place = appendV2(place, c)
	case MultiHash:
		if len(c) > MaxLevels {
			return "", fmt.Errorf("hash partition key: it has %d components; want at most %d", len(c), MaxLevels)
		}
		for i := range c {
			place = appendV2(place, c[i:i+1])
		}
	default:
		return "", fmt.Errorf("hash partition key: %w", errKind)
	}
	return upperHex(place), nil
}

// Prefix returns the range [min, max) of all keys of a MultiHash container that begin with c. For the empty prefix,
// this is the whole key space.
func Prefix(c Components) (minEPK, maxEPK string, err error) {
	minEPK, err = Hash(MultiHash, c)
	if err != nil {
		return "", "", err
	}
	// The next level begins with 3F at most, so FF is above all such places.
	return minEPK, minEPK + Max, nil
}

// appendV1 appends the V1 place of c. The sorted components follow the hash, because with only 32 bits many keys
// would have the same place.
func appendV1(place []byte, c Components) []byte {
	var buf [stackBytes]byte
	b := buf[:0]
	for _, k := range c {
		b = appendHashed(b, k.cut(), 0x00)
	}
	place = appendSorted(place, Number(float64(murmur3.Sum32(b))))
	for _, k := range c {
		place = appendSorted(place, k.cut())
	}
	return place
}

// appendV2 appends the hash of all components together.
func appendV2(place []byte, c Components) []byte {
	var buf [stackBytes]byte
	b := buf[:0]
	for _, k := range c {
		b = appendHashed(b, k, 0xFF)
	}
	low, high := murmur3.Sum128(b)
	// The service reserves the two top bits of the key space.
	place = binary.BigEndian.AppendUint64(place, high&(1<<62-1))
	return binary.BigEndian.AppendUint64(place, low)
}

// appendHashed appends c in the form for hashing; end closes a string.
func appendHashed(b []byte, c Component, end byte) []byte {
	b = append(b, c.mark)
	switch c.mark {
	case markNumber:
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(c.num))
	case markString:
		b = append(b, c.str...)
		b = append(b, end)
	}
	return b
}

const hexDigits = "0123456789ABCDEF"

// upperHex is hex.EncodeToString in upper case, as the service writes places. Places are compared as strings, so the
// case matters.
func upperHex(b []byte) string {
	var buf [2 * stackBytes]byte
	dst := buf[:0]
	for _, c := range b {
		dst = append(dst, hexDigits[c>>4], hexDigits[c&0xF])
	}
	return string(dst)
}

// fromHex parses a bound of a range, in upper or lower case.
func fromHex(bound string) ([]byte, bool) {
	b, err := hex.DecodeString(bound)
	return b, err == nil
}
