package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// Whether a file is the table that the manifest names. A file copied from another table
// has whole blocks, so its checksums say nothing.

// misfit is the error of a file that is whole and is not the table that the manifest names.
type misfit string

// Error says how the file differs.
func (m misfit) Error() string { return string(m) }

// compareTable compares a table with what the manifest says of it: its size, and its first and
// last key with their sequence numbers. A file copied from another one has whole blocks, so
// nothing else would tell that its keys are not those of the table.
func (w *Wreck) compareTable(t table, r *sstable.Reader) error {
	if w.guess { // the manifest may be of another time
		return nil
	}
	info, err := w.fs.Stat(w.fs.PathJoin(w.dir, tableName(t.file)))
	if err != nil {
		return err
	}
	if size := w.manifest.files[t.file]; uint64(info.Size()) != size {
		return misfit(fmt.Sprintf("it has %d bytes, and %d by %s: it is another table", info.Size(), size,
			w.manifestName))
	}
	ends, err := tableEnds(w.ctx, r)
	if err != nil && unreadable(err) {
		return nil // a damaged block costs its own keys alone; a copy has no damaged block
	}
	for i, end := range t.ends {
		if err == nil && end != nil && !bytes.Equal(end, ends[i]) {
			return misfit(fmt.Sprintf("its first or last key is not as %s says: it is another table", w.manifestName))
		}
	}
	return err
}

// tableEnds returns the first and the last key of a table as a manifest has them, where a removed
// range has the keys of its bounds.
func tableEnds(ctx context.Context, r *sstable.Reader) (ends [2][]byte, err error) {
	var keys []pebble.InternalKey
	it, err := tableIterator(ctx, r, nil, nil)
	if err != nil {
		return ends, err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	if kv := it.First(); kv != nil {
		keys = append(keys, kv.K.Clone())
	}
	if err := it.Error(); err != nil { // going to the last key forgets it
		return ends, err
	}
	if kv := it.Last(); kv != nil {
		keys = append(keys, kv.K.Clone())
	}
	if err := it.Error(); err != nil {
		return ends, err
	}
	removals, err := r.NewRawRangeDelIter(ctx, sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil {
		return ends, err
	}
	if removals != nil {
		defer removals.Close()
		span, err := removals.First()
		for ; span != nil && err == nil; span, err = removals.Next() {
			keys = append(keys, span.SmallestKey().Clone(), span.LargestKey().Clone())
		}
		if err != nil {
			return ends, err
		}
	}
	if len(keys) > 0 {
		ends = [2][]byte{encodeKey(slices.MinFunc(keys, compareKeys)), encodeKey(slices.MaxFunc(keys, compareKeys))}
	}
	return ends, nil
}

// compareKeys orders keys as the library does: of those of one key, the newest is the first.
func compareKeys(a, b pebble.InternalKey) int {
	return cmp.Or(bytes.Compare(a.UserKey, b.UserKey), cmp.Compare(b.Trailer, a.Trailer))
}

// encodeKey is a key with its sequence number and kind, as a manifest has it.
func encodeKey(k pebble.InternalKey) []byte {
	b := make([]byte, k.Size())
	k.Encode(b)
	return b
}
