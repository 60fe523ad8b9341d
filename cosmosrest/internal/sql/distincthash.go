package sql

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The hash that sorts arrays and objects. The .NET SDK computes the same hash, in its class DistinctHash: the SDK
// merges the rows of several ranges by this hash, and to continue after a row whose sort value was an array, the SDK
// sends only the hash. So that SDK defines every bit of the hash, including the seeds.

// hash128 is such a hash. Hashes are ordered by their bytes: first the low half, then the high half, each
// little-endian.
type hash128 struct{ low, high uint64 }

// The seeds distinguish kinds of values: without them [] and {} would have the same hash.
var (
	seedRoot     = hash128{0xbfc2359eafc0e2b7, 0x8846e00284c4cf1f}
	seedNull     = hash128{0x1380f68bb3b0cfe4, 0x156c918bf564ee48}
	seedFalse    = hash128{0xc1be517fe893b40c, 0xe9fc8a4c531cd0dd}
	seedTrue     = hash128{0xf86d4abf9a412e74, 0x788488365c8a985d}
	seedNumber   = hash128{0x2400e8b894ce9c2a, 0x790be1eabd7b9481}
	seedString   = hash128{0x61f53f0a44204cfb, 0x09481be8ef4b56dd}
	seedArray    = hash128{0xfa573b014c4dc18e, 0xa014512c858eb115}
	seedObject   = hash128{0x77b285ac511aef30, 0x3dcf187245822449}
	seedIndex    = hash128{0xfe057204216db999, 0x5b1cc3178bd9c593}
	seedProperty = hash128{0xc915dde058492a8a, 0x7c8be2eba72e4634}
)

// distinctHash returns the hash of a value. Values deeper than the depth limit all count as equal.
func distinctHash(v value) hash128 { return v.hashInto(seedRoot, 0) }

// hashInto returns the hash of a value within another value, whose hash so far is the seed.
func (v value) hashInto(seed hash128, depth int) hash128 {
	if depth > maxCanonicalDepth {
		return seed
	}
	switch v.kind {
	case null:
		return seedNull.mixedWith(seed)
	case isFalse:
		return seedFalse.mixedWith(seed)
	case isTrue:
		return seedTrue.mixedWith(seed)
	case number:
		// a double, and two bytes that only integers above 2^53 would need, but these are doubles here
		var b [10]byte
		f := v.float() + 0 // converts -0 to 0
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(f))
		return murmur128(b[:], seedNumber.mixedWith(seed))
	case str:
		return murmur128(v.bytes(), seedString.mixedWith(seed))
	case array:
		return v.hashElements(seedArray.mixedWith(seed), depth)
	case object:
		return v.hashMembers(seedObject.mixedWith(seed), depth)
	}
	return seed
}

// hashElements chains the elements with their indexes, so their order matters.
func (v value) hashElements(hash hash128, depth int) hash128 {
	i := uint64(0)
	for raw := range rawjson.Elements(v.raw) {
		hash = rawValue(raw).hashInto(seedIndex.plus(i), depth+1).mixedWith(hash)
		i++
	}
	return hash
}

// hashMembers combines the members' hashes by XOR, so their order does not matter. As in the SDK, a result of zero is
// left out; an object without members also has this hash.
func (v value) hashMembers(hash hash128, depth int) hash128 {
	var all hash128
	for _, member := range rawjson.Distinct(v.raw) {
		name := murmur128(member.Key.Name(), seedString.mixedWith(seedProperty))
		one := rawValue(member.Value).hashInto(name, depth+1)
		all.low ^= one.low
		all.high ^= one.high
	}
	if all == (hash128{}) {
		return hash
	}
	return all.mixedWith(hash)
}

// mixedWith returns the hash of a hash's bytes.
func (h hash128) mixedWith(seed hash128) hash128 { return murmur128(h.bytes(), seed) }

// bytes returns the 16 bytes that order hashes.
func (h hash128) bytes() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 16), h.low)
	return binary.LittleEndian.AppendUint64(b, h.high)
}

// plus adds n to the hash as a number of 128 bits.
func (h hash128) plus(n uint64) hash128 {
	low, carry := bits.Add64(h.low, n, 0)
	return hash128{low, h.high + carry}
}

// murmur128 is the 128-bit MurmurHash3 for x64, with the SDK's change: each half has its own seed.
func murmur128(b []byte, seed hash128) hash128 {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	h1, h2 := seed.low, seed.high
	n := uint64(len(b))
	for ; len(b) >= 16; b = b[16:] {
		k1, k2 := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		h1 ^= bits.RotateLeft64(k1*c1, 31) * c2
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= bits.RotateLeft64(k2*c2, 33) * c1
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	var rest [16]byte
	copy(rest[:], b)
	h2 ^= bits.RotateLeft64(binary.LittleEndian.Uint64(rest[8:])*c2, 33) * c1
	h1 ^= bits.RotateLeft64(binary.LittleEndian.Uint64(rest[:])*c1, 31) * c2
	h1, h2 = h1^n, h2^n
	h1 += h2
	h2 += h1
	h1, h2 = murmurMix(h1), murmurMix(h2)
	h1 += h2
	h2 += h1
	return hash128{h1, h2}
}

// murmurMix is the last step of MurmurHash3. After this step, each bit depends on all other bits.
func murmurMix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
