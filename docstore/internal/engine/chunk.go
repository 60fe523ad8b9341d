package engine

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// The library's logs and manifests are blocks of 32 KB, which hold chunks: a checksum, a
// length, a type, in logs the number of the log, and a part of a record. The library takes
// the first chunk that is not whole for the end of the file. Here the rest is read too,
// because a whole record after a broken one was written later: so the broken record had
// been safe before, and is damaged.

const (
	chunkBlock   = 32 << 10
	chunkHeader  = 4 + 2 + 1        // checksum, length, type
	logHeader    = chunkHeader + 4  // and the number of the log
	syncHeader   = logHeader + 8    // and up to where the log was safe
	batchHeader  = 8 + 4            // sequence number and count, at the head of a record of a log
	chunkKinds   = 4                // the whole of a record, its first part, one between, its last
	chunkOfLogs  = chunkKinds + 1   // the first type with a log's number; manifests have those below
	chunkSynced  = 2*chunkKinds + 1 // the first with the safe offset too
	chunkUnknown = 3*chunkKinds + 1 // none from here on
	chunkMask    = 0xa282ead8       // what the library adds to its checksums
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunk is a chunk whose checksum is right.
type chunk struct {
	payload     []byte
	first, last bool // of its record
	size        int  // with the header
}

// chunks reads the records of a log or a manifest, and goes on after broken ones.
type chunks struct {
	r   io.Reader
	log uint32 // number of the log; 0 for a manifest

	block  []byte
	base   int64  // where the block begins in the file
	at     int    // in the block
	record []byte // so far
	open   bool   // in the middle of a record

	end    int64 // of the last whole record before anything broken, or of the trailer
	closed bool  // the trailer that ends a log was found
	broken int64 // where the first chunk that is not whole begins, or -1
	later  int   // whole records after that
	torn   int64 // where the remains of a record after end stop, 0 for none
}

func newChunks(r io.Reader, log uint32) *chunks {
	return &chunks{r: r, log: log, block: make([]byte, 0, chunkBlock), broken: -1}
}

// eachRecord calls visit for all records, with ok false for those after a broken chunk. A
// record is valid until the next call.
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

// readBlock reads the next block; an empty block is the end of the file.
func (c *chunks) readBlock() error {
	c.base += int64(len(c.block))
	n, err := io.ReadFull(c.r, c.block[:chunkBlock])
	c.block, c.at = c.block[:n], 0
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// stepChunk takes the next chunk of the block, or moves on by a byte where there is none:
// damage may have hit a length, and the next whole chunk is found by its checksum
// alone.
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
	if k.first == c.open && (k.first || c.broken < 0) { // the chunk between is missing
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

// failAt records the first chunk that is not whole; the record around it is lost.
func (c *chunks) failAt(at int64) {
	c.open = false
	if c.broken < 0 {
		c.broken = at
	}
}

// isPadding reports whether rest is the end of a block in which no chunk found room.
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

// isTrailer reports whether rest begins with the header that ends a closed log: with
// the number after the log's.
func (c *chunks) isTrailer(rest []byte) bool {
	return c.log != 0 && len(rest) >= logHeader && binary.LittleEndian.Uint32(rest) == 0 &&
		binary.LittleEndian.Uint16(rest[4:]) == 0 && rest[6] == chunkOfLogs &&
		binary.LittleEndian.Uint32(rest[chunkHeader:]) == c.log+1
}

// remains returns the length of a chunk of this log that was not written to its end.
// The chunks of the log that the file was before have another number and do not count.
func remains(rest []byte, log uint32) int64 {
	switch {
	case log == 0 || len(rest) < logHeader:
		return int64(len(rest))
	case rest[6] < chunkOfLogs || rest[6] >= chunkUnknown || binary.LittleEndian.Uint32(rest[chunkHeader:]) != log:
		return 0
	}
	return int64(min(len(rest), syncHeader+int(binary.LittleEndian.Uint16(rest[4:]))))
}

// parseChunk reads a chunk of a log, or of a manifest if log is 0. It refuses a chunk
// that is not whole, or that belongs to the log that the file was before.
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
	// The library turns and shifts its checksums before it stores them, because a
	// checksum of data that has its own checksum in it says little.
	if (sum>>15|sum<<17)+chunkMask != binary.LittleEndian.Uint32(rest) {
		return k, false
	}
	part := (kind - 1) % chunkKinds
	k.payload = rest[header:k.size]
	k.first, k.last = part == 0 || part == 1, part == 0 || part == 3
	return k, true
}

// logOf returns the number in the first chunk of a log, which must have room for it.
func logOf(head []byte) uint32 { return binary.LittleEndian.Uint32(head[chunkHeader:]) }
