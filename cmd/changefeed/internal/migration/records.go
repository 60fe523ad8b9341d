package migration

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"

	"github.com/millrace/changefeed/feed"
)

// A record is what a comparison remembers of a document.
type record struct {
	Key      feed.PartitionKey // of the target
	ID       string
	Print    print
	Expires  int64 // in seconds; 0 if the ttl is not compared, or if there is none
	IsSource bool
	ItemKey  feed.PartitionKey // of the item of the source
	Item     string
	LSN      int64
}

// bucketCount is the number of files: with 10,000,000 documents a file has the records of some 20,000 places.
const bucketCount = 512

// records are the files of a comparison, in a directory of their own.
type records struct {
	dir     string
	buckets [bucketCount]*bucket
}

// bucket is a file of records.
type bucket struct {
	file *os.File
	w    *bufio.Writer
}

// newRecords makes the directory.
func newRecords() (*records, error) {
	dir, err := os.MkdirTemp("", "changefeed-compare-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for records: %w", err)
	}
	return &records{dir: dir}, nil
}

// remove removes the files.
func (r *records) remove() {
	for _, b := range r.buckets {
		if b != nil {
			_ = b.file.Close()
		}
	}
	_ = os.RemoveAll(r.dir) // of temporary files; the system removes what is left
}

// placeNumber returns a number of a place in the target.
func placeNumber(at spot) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, string(at.key))
	_, _ = h.Write([]byte{0})
	_, _ = io.WriteString(h, at.id)
	return h.Sum64()
}

const bucketBuffer = 8 << 10

// add writes a record into the file of its place.
func (r *records) add(one record) error {
	i := placeNumber(spot{one.Key, one.ID}) % bucketCount
	b := r.buckets[i]
	if b == nil {
		file, err := os.Create(filepath.Join(r.dir, fmt.Sprint(i)))
		if err != nil {
			return fmt.Errorf("write records: %w", err)
		}
		b = &bucket{file, bufio.NewWriterSize(file, bucketBuffer)}
		r.buckets[i] = b
	}
	var fixed [33]byte
	copy(fixed[:16], one.Print[:])
	binary.LittleEndian.PutUint64(fixed[16:], uint64(one.Expires))
	binary.LittleEndian.PutUint64(fixed[24:], uint64(one.LSN))
	if one.IsSource {
		fixed[32] = 1
	}
	_, err := b.w.Write(fixed[:])
	for _, text := range []string{string(one.Key), one.ID, string(one.ItemKey), one.Item} {
		var size [4]byte
		binary.LittleEndian.PutUint32(size[:], uint32(len(text)))
		_, _ = b.w.Write(size[:]) // the writer keeps its first error
		_, err = b.w.WriteString(text)
	}
	if err != nil {
		return fmt.Errorf("write records: %w", err)
	}
	return nil
}

// each reads the records of a file in their order.
func (r *records) each(i int, f func(record)) error {
	b := r.buckets[i]
	if b == nil {
		return nil
	}
	if err := b.w.Flush(); err != nil {
		return fmt.Errorf("write records: %w", err)
	}
	if _, err := b.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	in := bufio.NewReader(b.file)
	for {
		one, err := readRecord(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read records: %w", err)
		}
		f(one)
	}
}

// readRecord reads a record.
func readRecord(in *bufio.Reader) (one record, err error) {
	var fixed [33]byte
	if _, err := io.ReadFull(in, fixed[:]); err != nil {
		return one, err
	}
	copy(one.Print[:], fixed[:16])
	one.Expires = int64(binary.LittleEndian.Uint64(fixed[16:]))
	one.LSN = int64(binary.LittleEndian.Uint64(fixed[24:]))
	one.IsSource = fixed[32] == 1
	var texts [4]string
	for i := range texts {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return one, errors.Join(io.ErrUnexpectedEOF, err)
		}
		text := make([]byte, binary.LittleEndian.Uint32(size[:]))
		if _, err := io.ReadFull(in, text); err != nil {
			return one, fmt.Errorf("a record is cut off: %v", err)
		}
		texts[i] = string(text)
	}
	one.Key, one.ID = feed.PartitionKey(texts[0]), texts[1]
	one.ItemKey, one.Item = feed.PartitionKey(texts[2]), texts[3]
	return one, nil
}
