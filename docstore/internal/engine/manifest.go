package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/millrace/changefeed/docstore/internal/fields"
)

// manifest is the part of the library's manifest that says which files must exist. The format is the library's own.
// The code here reads manifests too, because the library reads a manifest only while opening a store, and then
// deletes files.
type manifest struct {
	tables   map[tablePlace]table
	files    map[uint64]uint64 // sizes of the files of tables
	blobs    map[uint64]uint64 // sizes of files of values
	firstLog uint64            // logs from this one onward are not in tables yet
	firstSeq uint64            // the first write of that log has this sequence number at most; 0 is unknown
	lastSeq  uint64            // sequence number of the last write when the last record was written; 0 is unknown
	edits    int
}

// tablePlace is a table on a level. If a table moves to another level, a record drops the old place and adds the new
// place.
type tablePlace struct{ level, num uint64 }

// table describes the file that contains a table, and the table's first and last key.
type table struct {
	file     uint64
	min, max []byte
	// the first and the last key as the library has them, with sequence numbers; nil if they are not those of the file
	ends   [2][]byte
	newest uint64 // the greatest sequence number
}

// Tags of the records of a manifest, and of the optional members of a table. The pinned version of the library writes
// these. An unknown tag is an error, because its length is unknown.
const (
	tagComparer    = 1
	tagFirstLog    = 2
	tagNextFile    = 3
	tagLastSeq     = 4
	tagPointer     = 5
	tagDropTable   = 6
	tagTable       = 7
	tagPrevLog     = 9
	tagTable2      = 100
	tagTable3      = 102
	tagTable4      = 103
	tagTable5      = 104
	tagBacking     = 105
	tagDropBacking = 106
	tagBlob        = 107
	tagDropBlob    = 108

	memberEnd     = 1
	memberVirtual = 66
	memberBlobs   = 69
)

// maxSeq is the greatest sequence number: the library keeps 56 bits of it.
const maxSeq = 1<<56 - 1

var errManifest = errors.New("manifest has an unknown record")

func newManifest() *manifest {
	return &manifest{tables: map[tablePlace]table{}, files: map[uint64]uint64{}, blobs: map[uint64]uint64{}}
}

// applyEdit applies a record.
func (m *manifest) applyEdit(record []byte) error {
	r := &fields.Reader{Rest: record}
	before := m.firstLog
	m.lastSeq = 0
	for len(r.Rest) > 0 && !r.Short {
		if err := m.applyField(r, r.Uvarint()); err != nil {
			return err
		}
	}
	if r.Short {
		return fields.ErrShort
	}
	// The log was begun before the record was written. The first record of a manifest may lack the number.
	if m.edits++; m.firstLog != before {
		m.firstSeq = 0
	}
	if m.firstSeq == 0 && m.lastSeq != 0 {
		m.firstSeq = m.lastSeq + 1
	}
	return nil
}

// applyField applies a field of a record. Fields that do not concern files are read only to skip them. An unknown tag
// is an error, because its length is unknown.
func (m *manifest) applyField(r *fields.Reader, tag uint64) error {
	switch tag {
	case tagComparer:
		r.Text()
	case tagFirstLog:
		m.firstLog = r.Uvarint()
	case tagLastSeq:
		m.lastSeq = r.Uvarint()
	case tagNextFile, tagPrevLog:
		r.Uvarint()
	case tagPointer:
		r.Uvarint()
		r.Text()
	case tagDropTable:
		delete(m.tables, tablePlace{r.Uvarint(), r.Uvarint()})
	case tagTable, tagTable2, tagTable3, tagTable4, tagTable5:
		return m.addTable(r, tag)
	case tagBacking:
		file := r.Uvarint()
		m.files[file] = r.Uvarint()
	case tagDropBacking:
		delete(m.files, r.Uvarint())
	case tagBlob:
		r.Uvarint()
		file := r.Uvarint()
		m.blobs[file] = r.Uvarint()
		r.Uvarint()
		r.Uvarint()
	case tagDropBlob:
		r.Uvarint()
		delete(m.blobs, r.Uvarint())
	default:
		return fmt.Errorf("%w: tag %d", errManifest, tag)
	}
	return nil
}

// addTable applies the record of a new table. A virtual table is part of another table's file, so its size is not the
// size of a file.
//
// level, number, path (table 3), size, a byte of flags and the bounds of points if the first flag says so (table 5),
// bounds, least and greatest sequence number (not table), members up to an end (tables 4 and 5)
func (m *manifest) addTable(r *fields.Reader, tag uint64) error {
	place := tablePlace{r.Uvarint(), r.Uvarint()}
	if tag == tagTable3 {
		r.Uvarint()
	}
	size := r.Uvarint()
	t := table{file: place.num}
	if tag == tagTable5 { // the table has range keys, and possibly points
		if len(r.Rest) > 0 && r.Byte()&1 != 0 {
			t.readBound(r)
		}
	}
	ends := t.readBound(r)
	t.newest = math.MaxUint64
	if tag != tagTable {
		r.Uvarint()
		t.newest = r.Uvarint()
	}
	if tag == tagTable4 || tag == tagTable5 {
		backing, err := tableMembers(r)
		if err != nil {
			return err
		}
		if backing != 0 {
			t.file = backing
		}
	}
	if t.file == place.num && tag != tagTable5 {
		t.ends = ends
	}
	m.tables[place] = t
	if t.file == place.num {
		m.files[t.file] = size
	}
	return nil
}

// readBound reads the least and the greatest key of a table, returns them and keeps the extremes.
func (t *table) readBound(r *fields.Reader) [2][]byte {
	ends := [2][]byte{bytes.Clone(r.Text()), bytes.Clone(r.Text())}
	lo, hi := userKey(ends[0]), userKey(ends[1])
	if t.min == nil || bytes.Compare(lo, t.min) < 0 {
		t.min = bytes.Clone(lo)
	}
	if bytes.Compare(hi, t.max) > 0 {
		t.max = bytes.Clone(hi)
	}
	return ends
}

// userKey returns a key of the library without the sequence number and kind at its end.
func userKey(key []byte) []byte { return key[:max(0, len(key)-8)] }

// tableMembers reads to the end of a table's record and returns the backing file of a virtual table.
func tableMembers(r *fields.Reader) (backing uint64, err error) {
	for !r.Short {
		switch member := r.Uvarint(); {
		case member == memberEnd:
			return backing, nil
		case member == memberVirtual:
			backing = r.Uvarint()
		case member == memberBlobs:
			r.Uvarint()
			for n := r.Uvarint(); n > 0 && !r.Short; n-- {
				r.Uvarint()
				r.Uvarint()
			}
		default:
			r.Text()
		}
	}
	return 0, fields.ErrShort
}

// liveFiles returns the files that the store needs, with their sizes.
func (m *manifest) liveFiles() map[string]uint64 {
	files := map[string]uint64{}
	for _, t := range m.tables {
		files[tableName(t.file)] = m.files[t.file]
	}
	for file, size := range m.blobs {
		files[fmt.Sprintf("%06d%s", file, blobSuffix)] = size
	}
	return files
}

func tableName(file uint64) string { return fmt.Sprintf("%06d%s", file, tableSuffix) }
func logName(num uint64) string    { return fmt.Sprintf("%06d%s", num, logSuffix) }

// batchHead returns the sequence number of a record of a log, and how many sequence numbers the record takes.
func batchHead(record []byte) (seq, count uint64, ok bool) {
	if len(record) < batchHeader {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint64(record), uint64(binary.LittleEndian.Uint32(record[8:])), true
}
