package engine

import (
	"errors"
	"hash/crc32"
	"io"
	"os"
	"slices"
)

// The logs contain the writes that are not in tables yet. The library treats the first unreadable record as the end
// of a log, and drops the rest. This is right for the newest log after a kill. In any other place, acknowledged
// writes would be lost. So the code here reads every log to its end, and compares the log with its entry in the
// inventory.

// LogEnd reports how far the newest log reaches, if the store had not been closed.
type LogEnd struct {
	Log     string // name of the newest log; empty if the store had been closed, or is new
	Reached int64  // bytes up to the end of the last complete write
	Dropped int64  // bytes of an incomplete write after them
	Lost    int    // complete writes after the dropped bytes; only in a store that did not wait for the disk
}

// verifyLogs reads the logs that are not yet in tables to their ends. Sequence numbers are continuous from record to
// record and from log to log, so a lost record shows as a gap.
func (s *survey) verifyLogs() error {
	present, err := s.presentLogs()
	if err != nil {
		return err
	}
	next := uint64(0) // sequence number expected in the next record; 0 before the first
	for i, num := range present {
		c, err := s.readLog(num, &next)
		if err != nil {
			return err
		}
		if err := s.judgeLog(num, c, i == len(present)-1); err != nil {
			return err
		}
	}
	s.facts.First = max(s.facts.First, s.manifest.firstLog)
	s.facts.Logs = present
	return nil
}

// presentLogs returns the numbers of the logs that the library will read. If a log is missing, presentLogs refuses
// the store, because the library would go on without that log.
func (s *survey) presentLogs() ([]uint64, error) {
	var nums []uint64
	for _, name := range s.names {
		if num, ok := logNumber(name); ok && num >= s.manifest.firstLog {
			nums = append(nums, num)
		}
	}
	slices.Sort(nums)
	for _, num := range s.facts.Logs {
		if num >= s.manifest.firstLog && !slices.Contains(nums, num) {
			return nil, damaged(logName(num), "it is missing, though %s needs it, or that ends too early",
				s.manifestName)
		}
	}
	return nums, nil
}

// readLog reads a log and refuses a log with missing records.
func (s *survey) readLog(num uint64, next *uint64) (*chunks, error) {
	name := logName(num)
	file, err := s.fs.Open(s.fs.PathJoin(s.dir, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	c := s.newLogChunks(file, num)
	err = c.eachRecord(func(record []byte, ok bool) error {
		if !ok {
			return nil
		}
		seq, count, whole := batchHead(record)
		switch {
		case !whole:
			return damaged(name, "a record before offset %d is too short", c.end)
		case *next != 0 && seq != *next:
			return damaged(name, "writes %d to %d before offset %d are missing", *next, seq-1, c.end)
		}
		*next = seq + count
		return nil
	})
	return c, err
}

// newLogChunks returns the chunks of a log. Of the newest log of a closed store, the chunks compute the checksum that
// the inventory has.
func (s *survey) newLogChunks(r io.Reader, num uint64) *chunks {
	c := newChunks(r, uint32(num))
	if end := s.facts.Closed; end != nil && end.Log == num {
		c.r = &summedReader{Reader: r, left: end.LogEnd, sum: &c.sum}
	}
	return c
}

// summedReader computes the checksum of the first bytes of a file.
type summedReader struct {
	io.Reader
	left int64
	sum  *uint32
}

// Read adds the bytes read to the checksum.
func (r *summedReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	counted := min(int64(n), r.left)
	*r.sum, r.left = crc32.Update(*r.sum, castagnoli, b[:counted]), r.left-counted
	return n, err
}

// isOther reports whether a log that ends where the newest log ended has other bytes.
func (e *ending) isOther(c *chunks) bool {
	return e.Sum != 0 && c.closed && c.end == e.LogEnd && c.sum != e.Sum
}

// judgeLog decides whether a log without a proper end is damaged, or was only cut off by a kill or a power loss. Only
// the newest log may be cut off, and only at its end. Any other gap is damage, unless the store did not wait for the
// disk (NoSync): then pages of the log may reach the disk in any order.
func (s *survey) judgeLog(num uint64, c *chunks, newest bool) error {
	name := logName(num)
	listed := !s.known || slices.Contains(s.facts.Logs, num)
	switch end := s.facts.Closed; {
	// If the inventory does not list a log, either a kill came while the log was being created, or the file was put
	// there from outside.
	case !listed && !s.justMade(num, c, newest):
		return damaged(name,
			"it is not one of the store's logs (if an older version of this program was tried on the store, all "+
				"is there: "+
				"remove the file %s and open the store again)", inventoryName)
	case end != nil && end.Log == num && (!c.closed || c.end != end.LogEnd):
		return damaged(name, "it is whole up to offset %d only, and had %d bytes when the store was closed", c.end,
			end.LogEnd)
	case end != nil && end.Log == num && end.isOther(c):
		return damaged(name, "its bytes are not those of when the store was closed: it is another log")
	case listed:
		return s.judgeEnd(name, c, newest)
	case newest:
		s.newest = LogEnd{Log: name}
	}
	return nil
}

// judgeEnd decides about the end of a log in the inventory.
func (s *survey) judgeEnd(name string, c *chunks, newest bool) error {
	switch {
	case c.later > 0 && (!newest || !s.facts.NoSync):
		return damaged(name, "a write at offset %d is damaged, and %d after it are not", c.broken, c.later)
	case !newest && !c.closed:
		return s.notClosed(name, c)
	case newest && !c.closed:
		s.newest = LogEnd{Log: name, Reached: c.end, Lost: c.later, Dropped: max(0, c.torn-c.end)}
	}
	return nil
}

// notClosed refuses a log that has no end and is followed by a newer log, because the library ends a log before
// beginning the next.
func (s *survey) notClosed(name string, c *chunks) error {
	return damaged(name, "it is whole up to offset %d only, and does not end there", c.end)
}

// justMade reports whether a log was created just before a kill, before the inventory could list the log. Such a log
// is empty or contains the rest of the old log whose file was reused.
func (s *survey) justMade(num uint64, c *chunks, newest bool) bool {
	if c.end > 0 || c.later > 0 || c.closed {
		return false
	}
	file, err := s.fs.Open(s.fs.PathJoin(s.dir, logName(num)))
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, chunkBlock)
	n, err := file.ReadAt(head, 0)
	if err != nil && n == 0 {
		return !errors.Is(err, os.ErrNotExist)
	}
	return newest && leftover(head[:n], uint32(num))
}

// leftover reports whether head is the beginning of a log with a lower number.
func leftover(head []byte, num uint32) bool {
	if len(head) < logHeader {
		return false
	}
	old := logOf(head)
	_, ok := parseChunk(head, old)
	return ok && old < num
}
