package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// verifyHeads reads the blocks that opening the store will read, which verifies their checksums. The rest of a table
// is verified whenever it is read, because reading a large store completely at each start would take minutes.
func (s *survey) verifyHeads(o *pebble.Options) error {
	o = o.Clone()
	o.EnsureDefaults()
	byFile := map[uint64][]byte{}
	for _, t := range s.manifest.tables {
		for _, table := range s.schema.Heads {
			if bytes.Compare(t.min, []byte{table + 1}) < 0 && bytes.Compare(t.max, []byte{table}) >= 0 {
				byFile[t.file] = append(byFile[t.file], table)
			}
		}
	}
	for file, tables := range byFile {
		if err := s.readTable(file, tables, o.MakeReaderOptions()); err != nil {
			return err
		}
	}
	return nil
}

// readTable reads some tables of ours in a file of the library's.
func (s *survey) readTable(file uint64, tables []byte, o sstable.ReaderOptions) (err error) {
	f, err := s.fs.Open(s.fs.PathJoin(s.dir, tableName(file)))
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(s.ctx, readable, o)
	if err != nil {
		return cmp.Or(damagedTable(file, err), readable.Close())
	}
	defer func() { err = cmp.Or(err, r.Close()) }()
	del, err := r.NewRawRangeDelIter(s.ctx, sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil {
		return damagedTable(file, err)
	}
	if del != nil {
		del.Close()
	}
	for _, table := range slices.Compact(slices.Sorted(slices.Values(tables))) {
		if err := readKeys(s.ctx, r, []byte{table}, []byte{table + 1}); err != nil {
			return damagedTable(file, err)
		}
	}
	return nil
}

// readKeys reads the blocks that contain the keys in [from, to).
func readKeys(ctx context.Context, r *sstable.Reader, from, to []byte) (err error) {
	it, err := tableIterator(ctx, r, from, to)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	for kv := it.SeekGE(from, 0); kv != nil; kv = it.Next() {
	}
	return it.Error()
}

// damagedTable adds the name of the file to an error about damage. damagedTable does not change an error of the disk.
func damagedTable(file uint64, err error) error {
	if isCorrupt(err) {
		return damaged(tableName(file), "%w", err)
	}
	return err
}
