package docstore

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
)

// itemRID is the resource id of an item until its turn comes: the container's, and a
// hash of key and id, which items of older versions keep. Four bits of the last byte
// say that the id is an item's: SDKs check them when they resume sorted pages.
func (c *Container) itemRID(pk, id string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(pk)) // never fails
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(id))
	own, _ := decodeRID(c.rid) // was made by encodeRID
	rid := h.Sum(own)
	rid[len(rid)-1] &= 0x0f
	return encodeRID(rid)
}

// birth is the number in the resource id of an item created at a place. Such numbers
// grow, because rows of a query with equal sort keys come in the order of resource ids,
// and in the service that is the order of creation.
func birth(a addr) int64 { return a.lsn<<8 | int64(a.idx) }

// setBirth writes the resource id into the body, over the one of the same length that
// was rendered before the item's place was known.
func (o *op) setBirth(c *Container, number int64) {
	own, _ := decodeRID(c.rid) // was made by encodeRID
	rid := encodeRID(binary.LittleEndian.AppendUint64(own, uint64(number)))
	end := o.stamp
	for range 2 { // in _self, and as _rid
		end = bytes.LastIndex(o.body[:end], []byte(o.rid))
		copy(o.body[end:], rid)
	}
	o.rid = rid // a request may begin again
}
