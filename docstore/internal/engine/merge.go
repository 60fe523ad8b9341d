package engine

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// A damaged store is read without the library, because opening it there would delete the files that the manifest does
// not name. The contents of the logs and of each table are sorted by key. So a single pass that always takes the
// smallest key sees all versions of a key together, and holds only a single version of each source in memory.

// Each calls visit for the keys in [from, to) with their newest values and the origins of these, in order. Each merges
// the sorted contents of all logs and tables, as the library would.
func (w *Wreck) Each(from, to []byte, visit func(key, value []byte, of Origin) error) error {
	sources, err := w.openSources(from, to)
	defer func() {
		for _, s := range sources {
			s.stop()
		}
	}()
	for err == nil {
		key := leastKey(sources)
		if key == nil {
			return nil
		}
		var newest version
		newest, err = w.takeNewest(sources, key)
		if err == nil && !newest.end && !w.isRemoved(newest) {
			err = visit(newest.key, newest.value, Origin{newest.seq, w.misfits[newest.file]})
		}
	}
	return err
}

// openSources opens all logs, which form a single source, and each table, at their first keys in [from, to). The
// caller must stop the sources, even after an error.
func (w *Wreck) openSources(from, to []byte) (sources []*source, err error) {
	add := func(versions iter.Seq2[version, error]) error {
		s := &source{}
		s.pull, s.stop = iter.Pull2(versions)
		sources = append(sources, s)
		return s.next()
	}
	first, _ := slices.BinarySearchFunc(w.writes, from, func(v version, key []byte) int {
		return bytes.Compare(v.key, key)
	})
	err = add(logVersions(w.writes[first:], to))
	for _, t := range w.files {
		err = cmp.Or(err, add(w.tableVersions(t, from, to)))
	}
	return sources, err
}

// leastKey returns the smallest present key of all sources, or nil if all sources are at their ends.
func leastKey(sources []*source) (key []byte) {
	for _, s := range sources {
		if s.ok && (key == nil || bytes.Compare(s.head.key, key) < 0) {
			key = s.head.key
		}
	}
	return key
}

// takeNewest moves all sources past a key and returns the key's newest version. A table may contain several versions
// of a key, newest first, because the library keeps old versions for views.
func (w *Wreck) takeNewest(sources []*source, key []byte) (newest version, err error) {
	for _, s := range sources {
		for s.ok && err == nil && bytes.Equal(s.head.key, key) {
			if newest.key == nil || w.isNewer(s.head, newest) {
				newest = s.head
			}
			err = s.next()
		}
	}
	return newest, err
}

// isNewer reports whether a is the newer of two values of a key. The library sets the sequence numbers of its last
// level to 0, so without a manifest they are not enough to decide. Then the ages in the values decide, if they have
// ages.
func (w *Wreck) isNewer(a, b version) bool {
	if w.guess && !a.end && !b.end {
		s, ok := w.schema.Age(a.key, a.value)
		t, ok2 := w.schema.Age(b.key, b.value)
		if ok && ok2 && s != t {
			return s > t
		}
	}
	return w.isAfter(a.seq, a.file, b.seq, b.file)
}

// isAfter orders two writes by their sequence numbers. If the manifest is damaged and a sequence number is 0, as in
// the last level, the newer file decides, which is a guess.
func (w *Wreck) isAfter(seq, file, seq2, file2 uint64) bool {
	if w.guess && (seq == 0 || seq2 == 0) {
		return file > file2
	}
	return cmp.Or(cmp.Compare(seq, seq2), cmp.Compare(file, file2)) > 0
}

// isRemoved reports whether a removed range of keys contains the value's key.
func (w *Wreck) isRemoved(v version) bool {
	return slices.ContainsFunc(w.ranges, func(r keyRemoval) bool {
		return bytes.Compare(r.from, v.key) <= 0 && bytes.Compare(v.key, r.to) < 0 &&
			w.isAfter(r.seq, r.file, v.seq, v.file)
	})
}

// source is a log or table, with its next version.
type source struct {
	head version
	ok   bool
	pull func() (version, error, bool)
	stop func()
}

func (s *source) next() (err error) {
	s.head, err, s.ok = s.pull()
	return err
}

// logVersions yields the writes of all logs, which are sorted, up to the key to.
func logVersions(writes []version, to []byte) iter.Seq2[version, error] {
	return func(yield func(version, error) bool) {
		for _, v := range writes {
			if bytes.Compare(v.key, to) >= 0 || !yield(v, nil) {
				return
			}
		}
	}
}

// tableVersions yields the readable versions of a table. Blocks can be walked from both
// ends, so a damaged block costs its own keys and not the rest of the table.
func (w *Wreck) tableVersions(t table, from, to []byte) iter.Seq2[version, error] {
	return func(yield func(version, error) bool) {
		err := w.openTable(t.file, func(r *sstable.Reader) error {
			last, more, err := walkTable(w.ctx, r, from, to, t.file, yield)
			if err == nil || !more || !unreadable(err) {
				return err
			}
			resume, why := resumeTable(w.ctx, r, last, to), firstLine(err)
			w.recordLost(LostSpan{File: tableName(t.file), Why: why, From: last, To: resume, newest: t.newest})
			if bytes.Equal(resume, to) {
				return nil
			}
			if _, more, err = walkTable(w.ctx, r, resume, to, t.file, yield); err != nil && more && unreadable(err) {
				w.recordLost(LostSpan{
					File: tableName(t.file), Why: firstLine(err), From: resume, To: to,
					newest: t.newest,
				})
				return nil
			}
			return err
		})
		if err != nil {
			yield(version{}, err)
		}
	}
}

// recordLost records a span only once, although tables are read several times.
func (w *Wreck) recordLost(s LostSpan) {
	if !slices.ContainsFunc(w.Lost, func(o LostSpan) bool {
		return o.File == s.File && bytes.Equal(o.From, s.From) && bytes.Equal(o.To, s.To)
	}) {
		w.Lost = append(w.Lost, s)
	}
}

// tableIterator walks the keys [from, to) of a table. The store need not be open.
func tableIterator(ctx context.Context, r *sstable.Reader, from, to []byte) (sstable.Iterator, error) {
	return r.NewPointIter(ctx, sstable.IterOptions{
		Lower: from, Upper: to, FilterBlockSizeLimit: sstable.NeverUseFilterBlock,
		Env: sstable.NoReadEnv, ReaderProvider: sstable.MakeTrivialReaderProvider(r),
		BlobContext: sstable.AssertNoBlobHandles,
	})
}

// walkTable yields the readable keys of a table in [from, to). walkTable returns the last key, and whether the caller
// wants more.
func walkTable(ctx context.Context, r *sstable.Reader, from, to []byte, file uint64,
	yield func(version, error) bool,
) (last []byte, more bool, err error) {
	last = from
	it, err := tableIterator(ctx, r, from, to)
	if err != nil {
		return last, true, err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	for kv := it.SeekGE(from, 0); kv != nil; kv = it.Next() {
		v := version{key: bytes.Clone(kv.K.UserKey), seq: uint64(kv.SeqNum()), file: file}
		switch kv.Kind() {
		case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete:
			value, _, err := kv.Value(nil)
			if err != nil {
				return last, true, err
			}
			v.value = bytes.Clone(value)
		default:
			v.end = true
		}
		if !yield(v, nil) {
			return last, false, nil
		}
		last = v.key
	}
	return last, true, it.Error()
}

// resumeTable returns the smallest key that can be reached backwards from to.
func resumeTable(ctx context.Context, r *sstable.Reader, after, to []byte) []byte {
	least := to
	it, err := tableIterator(ctx, r, after, to)
	if err != nil {
		return least
	}
	for kv := it.SeekLT(to, 0); kv != nil && bytes.Compare(kv.K.UserKey, after) > 0; kv = it.Prev() {
		least = bytes.Clone(kv.K.UserKey)
	}
	_ = it.Close() // the damage is known already
	return least
}
