package docstore

import (
	"encoding/binary"
	"hash/fnv"
)

// itemRID returns the resource id of an item: the bytes of the container's resource id, and the number that the item
// got at its creation. Items of older versions have no such number; their resource id contains a hash of key and id
// instead. In the hash, four bits show that the id is an item's. SDKs check these bits when they resume sorted pages.
func itemRID(container []byte, born int64, pk, id string) string {
	var short [16]byte
	own := append(short[:0], container...)
	if born != 0 {
		return encodeRID(binary.LittleEndian.AppendUint64(own, uint64(born)))
	}
	return encodeRID(binary.LittleEndian.AppendUint64(own, uint64(hashedNumber(pk, id))))
}

// hashedNumber returns the number in the resource id of an item that an older version created.
func hashedNumber(pk, id string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(pk)) // never fails
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(id))
	var sum [8]byte
	h.Sum(sum[:0])
	sum[7] &= 0x0f
	return int64(binary.LittleEndian.Uint64(sum[:]))
}

// birth returns the number in the resource id of an item, from the address of the item's first version. These numbers
// grow, because rows of a query with equal sort keys come in the order of resource ids, and in the service this is
// the order of creation.
func birth(a addr) int64 { return a.lsn<<birthBits | int64(a.idx) }

// birthBits is how many bits of the number are the place in the batch, which has at most 100 writes.
const birthBits = 8

// birthLSN returns the LSN of a creation.
func birthLSN(number int64) int64 { return number >> birthBits }
