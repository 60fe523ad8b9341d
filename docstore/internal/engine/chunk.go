package engine

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// The library's logs and manifests consist of blocks of 32 KB, and the blocks of chunks. A chunk has a checksum, a
// length, a type, the number of the log (only in logs), and a part of a record. The library treats the first invalid
// chunk as the end of the file. The code here reads the rest too, because a valid record after a broken record was
// written later. So the broken record was safe on the disk before, and has been damaged since.

const (
	chunkBlock   = 32 << 10
	chunkHeader  = 4 + 2 + 1        // checksum, length, type
	logHeader    = chunkHeader + 4  // and the number of the log
	syncHeader   = logHeader + 8    // and the offset up to which the log was safe
	batchHeader  = 8 + 4            // sequence number and count, at the beginning of a record of a log
	chunkKinds   = 4                // a whole record, its first part, a middle part, its last part
	chunkOfLogs  = chunkKinds + 1   // the first type with a log's number; manifests have lower types
	chunkSynced  = 2*chunkKinds + 1 // the first type that also has the safe offset
	chunkUnknown = 3*chunkKinds + 1 // types from here on are invalid
	chunkMask    = 0xa282ead8       // the library adds this to its checksums
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunk is a chunk whose checksum is right.
type chunk struct {
	payload     []byte
	first, last bool // the chunk is the first or last of its record
	size        int  // with the header, in bytes
}

// chunks reads the records of a log or a manifest, and continues after broken records.
type chunks struct {
	r   io.Reader
	log uint32 // number of the log; 0 for a manifest
	sum uint32 // checksum of the file, if the inventory has one to compare

	block  []byte
	base   int64  // offset of the block in the file
	at     int    // offset in the block
	record []byte // the present record so far
	open   bool   // the record is not complete yet

	end    int64 // end of the last whole record before the first broken chunk, or end of the trailer
	closed bool  // the trailer of a closed log was found
	broken int64 // offset of the first broken chunk, or -1
	later  int   // number of whole records after broken
	torn   int64 // end of the remains of a record after end; 0 if there are none
}

func newChunks(r io.Reader, log uint32) *chunks {
	return &chunks{r: r, log: log, block: make([]byte, 0, chunkBlock), broken: -1}
}

// eachRecord calls visit for all records; ok is false for records after a broken chunk. A record is valid until the
// next call.
func (c *chunks) eachRecord(visit func(record []byte, ok bool) error) error {
	for !c.closed {
		if err := c.readBlock(); err != nil {
			return err
		}
		if len(c.block) == 0 {
			break
		}
		for c.at < len(c.block) && !c.closed {
			if err := c.stepChunk(visit); err != nil {
				return err
			}
		}
	}
	if c.open {
		c.torn = c.base
		c.failAt(c.end)
	}
	return nil
}

// readBlock reads the next block; an empty block means the end of the file.
func (c *chunks) readBlock() error {
	c.base += int64(len(c.block))
	n, err := io.ReadFull(c.r, c.block[:chunkBlock])
	c.block, c.at = c.block[:n], 0
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// stepChunk reads the next chunk of the block. If there is no valid chunk, stepChunk moves on by one byte, because a
// length may be damaged, and only the checksum shows where the next valid chunk begins.
func (c *chunks) stepChunk(visit func([]byte, bool) error) error {
	rest := c.block[c.at:]
	here := c.base + int64(c.at)
	if c.isPadding(rest) {
		c.at = len(c.block)
		return nil
	}
	if c.isTrailer(rest) && !c.open && c.broken < 0 {
		c.closed, c.end = true, here+logHeader
		return nil
	}
	k, ok := parseChunk(rest, c.log)
	if !ok {
		if c.broken < 0 {
			c.torn = here + remains(rest, c.log)
		}
		c.failAt(here)
		c.at++
		return nil
	}
	if k.first == c.open && (k.first || c.broken < 0) { // a chunk in between is missing
		c.failAt(here)
	}
	c.at += k.size
	if c.broken >= 0 {
		c.torn = here + int64(k.size)
	}
	if k.first {
		c.record, c.open = c.record[:0], true
	}
	if !c.open {
		return nil // the rest of a record whose beginning is lost
	}
	c.record = append(c.record, k.payload...)
	if !k.last {
		return nil
	}
	c.open = false
	if c.broken < 0 {
		c.end = c.base + int64(c.at)
	} else {
		c.later++
	}
	if visit == nil {
		return nil
	}
	return visit(c.record, c.broken < 0)
}

// failAt records the offset of the first broken chunk. The record around the chunk is lost.
func (c *chunks) failAt(at int64) {
	c.open = false
	if c.broken < 0 {
		c.broken = at
	}
}

// isPadding reports whether rest is the end of a block that was too short for a chunk.
func (c *chunks) isPadding(rest []byte) bool {
	room := syncHeader
	if c.log == 0 {
		room = chunkHeader
	}
	if len(rest) >= room || c.at+len(rest) < chunkBlock {
		return false
	}
	for _, b := range rest {
		if b != 0 {
			return false
		}
	}
	return true
}

// isTrailer reports whether rest begins with the header that ends a closed log. This header contains the log's number
// plus 1.
func (c *chunks) isTrailer(rest []byte) bool {
	return c.log != 0 && len(rest) >= logHeader && binary.LittleEndian.Uint32(rest) == 0 &&
		binary.LittleEndian.Uint16(rest[4:]) == 0 && rest[6] == chunkOfLogs &&
		binary.LittleEndian.Uint32(rest[chunkHeader:]) == c.log+1
}

// remains returns the length of an incomplete chunk of this log. If the file was reused, chunks of the earlier log
// have another number and do not count.
func remains(rest []byte, log uint32) int64 {
	switch {
	case log == 0 || len(rest) < logHeader:
		return int64(len(rest))
	case rest[6] < chunkOfLogs || rest[6] >= chunkUnknown || binary.LittleEndian.Uint32(rest[chunkHeader:]) != log:
		return 0
	}
	return int64(min(len(rest), syncHeader+int(binary.LittleEndian.Uint16(rest[4:]))))
}

// parseChunk reads a chunk of a log, or of a manifest if log is 0. parseChunk refuses a broken chunk. If the file was
// reused, it also refuses chunks of the earlier log.
func parseChunk(rest []byte, log uint32) (k chunk, ok bool) {
	if len(rest) < chunkHeader || rest[6] == 0 || rest[6] >= chunkUnknown {
		return k, false
	}
	kind, header := rest[6], chunkHeader
	switch {
	case (kind >= chunkOfLogs) != (log != 0):
		return k, false
	case kind >= chunkSynced:
		header = syncHeader
	case kind >= chunkOfLogs:
		header = logHeader
	}
	k.size = header + int(binary.LittleEndian.Uint16(rest[4:]))
	if k.size > len(rest) || log != 0 && binary.LittleEndian.Uint32(rest[chunkHeader:]) != log {
		return k, false
	}
	sum := crc32.Checksum(rest[6:k.size], castagnoli)
	// The library rotates and shifts its checksums before it stores them, because a checksum is weak if the data
	// contains its own checksum.
	if (sum>>15|sum<<17)+chunkMask != binary.LittleEndian.Uint32(rest) {
		return k, false
	}
	part := (kind - 1) % chunkKinds
	k.payload = rest[header:k.size]
	k.first, k.last = part == 0 || part == 1, part == 0 || part == 3
	return k, true
}

// logOf returns the log number in the first chunk of a log; head must be long enough.
func logOf(head []byte) uint32 { return binary.LittleEndian.Uint32(head[chunkHeader:]) }
