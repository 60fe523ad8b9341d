package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A damaged store is read without the library, which would refuse the whole store. Each table and each log is read
// separately, and the newest value of a key counts. Without a manifest the tables in use are unknown. Then all tables
// are read, and a deleted document may come back. This is better than losing a document that was not deleted.

// Wreck is a damaged store.
type Wreck struct {
	survey
	unlock  func() error
	options sstable.ReaderOptions
	guess   bool              // the manifest is damaged, so all files are read
	files   []table           // those that can be read
	writes  []version         // those of the logs, by key, the newest first
	ranges  []keyRemoval      // ranges of keys that were removed
	misfits map[uint64]string // names of the logs that do not fit the store
	Lost    []LostSpan
}

// version is a value of a key, or its removal.
type version struct {
	key, value []byte
	seq, file  uint64
	end        bool
}

// keyRemoval is the removal of all keys in [from, to).
type keyRemoval struct {
	from, to  []byte
	seq, file uint64
}

// Logged yields the keys that the store's own logs set. Logged does not yield the keys that they remove.
func (w *Wreck) Logged() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, v := range w.writes {
			if !v.end && w.misfits[v.file] == "" && !yield(v.key) {
				return
			}
		}
	}
}

// LostSpan is a span of keys, [from, to), that a file may have contained and that cannot be read. If To is nil, any
// key may be lost.
type LostSpan struct {
	File, Why string
	From, To  []byte
	tail      bool   // of the newest log: what came before is all there
	misfit    bool   // the file does not fit the store
	newest    uint64 // the greatest sequence number that a lost table has by the manifest; 0 for other files
}

// Holds reports whether a key may be in the span.
func (s LostSpan) Holds(key []byte) bool {
	return !s.tail && bytes.Compare(s.From, key) <= 0 && (s.To == nil || bytes.Compare(key, s.To) < 0)
}

// IsEnd reports whether the span is only the end of the newest log, as after a kill, so nothing is lost before it.
func (s LostSpan) IsEnd() bool { return s.tail && !s.misfit }

// HoldsNewer reports whether a lost table may have had a newer write of a key than the write of this origin. Of lost
// logs, and of tables that no manifest knows, HoldsNewer says no: they may have had any write.
func (s LostSpan) HoldsNewer(key []byte, from Origin) bool {
	return s.Holds(key) && s.newest > from.seq
}

// OpenWreck locks the directory of a store, and finds the files that are in use and can be read.
// No file is changed or made. Without a file system it is the machine's.
func OpenWreck(ctx context.Context, fs FS, dir string, keys Schema) (*Wreck, error) {
	if fs == nil {
		fs = realDisk
	}
	unlock, err := lockIfThere(fs, dir)
	if err != nil {
		return nil, openError(err)
	}
	w := &Wreck{
		survey:  survey{ctx: ctx, fs: fs, dir: dir, schema: keys, manifest: newManifest()},
		unlock:  unlock,
		misfits: map[uint64]string{},
	}
	if err := w.findFiles(); err != nil {
		return nil, cmp.Or(err, unlock())
	}
	return w, nil
}

// Close unlocks the directory.
func (w *Wreck) Close() error { return w.unlock() }

// findFiles finds the readable files in use.
func (w *Wreck) findFiles() (err error) {
	if w.names, err = w.fs.List(w.dir); err != nil {
		return err
	}
	slices.Sort(w.names)
	if store, _ := look(w.names); !store {
		return ErrNotStore
	}
	o := &pebble.Options{}
	o.EnsureDefaults()
	w.options = o.MakeReaderOptions()
	if w.facts, w.known, err = readInventory(w.fs, w.dir); err != nil {
		w.facts, w.known = facts{}, false
	}
	if err := w.recordDamage(err); err != nil {
		return err
	}
	if err := w.recordDamage(w.findManifest()); err != nil {
		return err
	}
	if w.manifestName == "" { // the newest was in use, unless a kill came while the library was writing the manifest
		for _, name := range w.names {
			if strings.HasPrefix(name, manifestPrefix) {
				w.manifestName = name
			}
		}
	}
	before := len(w.Lost)
	if err := w.recordDamage(w.readManifest()); err != nil {
		return err
	}
	w.guess = len(w.Lost) > before
	return errors.Join(w.findTables(), w.readLogs())
}

// recordDamage records damage as a loss. recordDamage returns any other error.
func (w *Wreck) recordDamage(err error) error {
	d, ok := errors.AsType[damage](err)
	switch {
	case ok:
		w.Lost = append(w.Lost, LostSpan{File: d.file, Why: firstLine(d.err)})
	case err != nil && unreadable(err):
		w.Lost = append(w.Lost, LostSpan{Why: firstLine(err)})
	default:
		return err
	}
	return nil
}

// unreadable reports whether an error means a damaged or missing file, or a bad sector.
func unreadable(err error) bool {
	return isCorrupt(err) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.EIO) ||
		errors.As(err, new(misfit))
}

// findTables opens each table once, and records the unreadable tables.
func (w *Wreck) findTables() error {
	tables := map[uint64]table{}
	for _, t := range w.manifest.tables {
		if other, several := tables[t.file]; several { // parts of one file
			t.min, t.max = slices.MinFunc([][]byte{t.min, other.min}, bytes.Compare),
				slices.MaxFunc([][]byte{t.max, other.max}, bytes.Compare)
			t.newest = max(t.newest, other.newest)
		}
		tables[t.file] = t
	}
	for _, name := range w.names {
		file, ok := fileNumber(name, tableSuffix)
		// Without a complete manifest the tables in use are unknown, so all existing tables are read.
		if _, known := tables[file]; ok && w.guess && !known {
			tables[file] = table{file: file}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(tables)) {
		t := tables[file]
		err := w.openTable(file, func(r *sstable.Reader) error {
			return cmp.Or(w.compareTable(t, r), w.readRemovals(file, r))
		})
		switch {
		case err == nil:
			w.files = append(w.files, t)
		case unreadable(err):
			w.Lost = append(w.Lost, LostSpan{
				File: tableName(file), Why: firstLine(err), From: t.min, To: After(t.max),
				newest: t.newest,
			})
		default:
			return err
		}
	}
	return nil
}

// openTable opens a table, calls f with its reader, and closes the table.
func (w *Wreck) openTable(file uint64, f func(r *sstable.Reader) error) (err error) {
	handle, err := w.fs.Open(w.fs.PathJoin(w.dir, tableName(file)))
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(handle)
	if err != nil {
		return errors.Join(err, handle.Close())
	}
	r, err := sstable.NewReader(w.ctx, readable, w.options)
	if err != nil {
		return cmp.Or(err, readable.Close())
	}
	defer func() { err = cmp.Or(err, r.Close()) }()
	return f(r)
}

// readRemovals reads the ranges of keys that a table removes: the ranges of deleted containers.
func (w *Wreck) readRemovals(file uint64, r *sstable.Reader) error {
	it, err := r.NewRawRangeDelIter(w.ctx, sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if it == nil || err != nil {
		return err
	}
	defer it.Close()
	span, err := it.First()
	for ; span != nil && err == nil; span, err = it.Next() {
		for _, k := range span.Keys {
			w.ranges = append(w.ranges, keyRemoval{
				bytes.Clone(span.Start), bytes.Clone(span.End), uint64(k.SeqNum()),
				file,
			})
		}
	}
	return err
}

// readLogs reads the readable records of the logs.
func (w *Wreck) readLogs() error {
	nums := slices.Clone(w.facts.Logs)
	for _, name := range w.names {
		if num, ok := logNumber(name); ok {
			nums = append(nums, num)
		}
	}
	slices.Sort(nums)
	nums = slices.DeleteFunc(slices.Compact(nums), func(n uint64) bool { return n < w.manifest.firstLog && !w.guess })
	next := uint64(0)
	var before *logRead
	for i, num := range nums {
		l, expected := &logRead{num: num, newest: i == len(nums)-1}, next
		if err := w.readLogTo(l, &next); err != nil {
			return err
		}
		w.fitLog(l, before, expected)
		before = l
	}
	slices.SortFunc(w.writes, func(a, b version) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(b.seq, a.seq))
	})
	return nil
}

// readLogTo reads the complete records of a log, and records the places where records are missing.
func (w *Wreck) readLogTo(l *logRead, next *uint64) error {
	name := logName(l.num)
	file, err := w.fs.Open(w.fs.PathJoin(w.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		w.Lost = append(w.Lost, LostSpan{File: name, Why: "it is missing"})
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	c, records := w.newLogChunks(file, l.num), 0
	err = c.eachRecord(func(record []byte, whole bool) error {
		seq, count, ok := batchHead(record)
		if records++; records == 1 && whole && ok {
			l.first = seq
		}
		// Every change of a key has a sequence number, without gaps. So a gap shows how many changes are missing, but
		// not which.
		if ok && *next != 0 && seq > *next {
			w.Lost = append(w.Lost, LostSpan{
				File: name,
				Why:  fmt.Sprintf("%d changes of keys before offset %d are missing", seq-*next, c.base+int64(c.at)),
			})
		}
		*next = seq + count
		return w.addChanges(record, l.num)
	})
	if err != nil && unreadable(err) {
		w.Lost = append(w.Lost, LostSpan{File: name, Why: firstLine(err)})
		return nil
	}
	if err != nil {
		return err
	}
	l.c = c
	w.recordEnd(l)
	return nil
}

// recordEnd records a loss if a log does not end as a log that was closed.
func (w *Wreck) recordEnd(l *logRead) {
	c := l.c
	lost := LostSpan{File: logName(l.num), tail: l.newest}
	listed := !w.known || slices.Contains(w.facts.Logs, l.num)
	switch {
	case c.closed && l.newest && w.known && listed && w.facts.Closed == nil:
		lost.Why = fmt.Sprintf("it ends as in a store that was closed, and %s does not say so: the store was killed "+
			"meanwhile, or it is another log", inventoryName)
	case c.closed || !listed && w.justMade(l.num, c, l.newest):
		return
	case c.later > 0:
		lost.Why, lost.tail = fmt.Sprintf("what is at offset %d is damaged, with %d whole records after it", c.broken,
			c.later), false
	default:
		lost.Why = fmt.Sprintf("what followed offset %d, if anything did, is not there", c.end)
	}
	w.Lost = append(w.Lost, lost)
}

// addChanges adds the changes of a record.
func (w *Wreck) addChanges(record []byte, file uint64) error {
	if len(record) < batchHeader {
		return nil
	}
	seq, _, _ := batchHead(record)
	r := batchrepr.Read(bytes.Clone(record))
	for ; ; seq++ {
		kind, key, value, ok, err := r.Next()
		if !ok || err != nil {
			return nil // the checksum proves that the record is complete
		}
		v := version{key: key, value: value, seq: seq, file: file}
		switch kind {
		case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete:
		case pebble.InternalKeyKindRangeDelete:
			w.ranges = append(w.ranges, keyRemoval{key, value, seq, file})
			continue
		case pebble.InternalKeyKindLogData:
			seq--
			continue
		default:
			v.end = true
		}
		w.writes = append(w.writes, v)
	}
}

// firstLine returns an error of the library without its stack and prefixes, for a list of losses.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	for _, prefix := range []string{"pebble: ", "pebble/table: ", "file 000000: "} { // the number is unknown here
		line = strings.TrimPrefix(line, prefix)
	}
	return line
}

// realDisk is the file system of the machine, without the permissions of ownerFS, because a salvage writes nothing.
var realDisk = vfs.Default

// lockIfThere locks a directory with a lock file. lockIfThere never creates a lock file, because the directory must
// not change, and may be on a read-only medium.
func lockIfThere(fs vfs.FS, dir string) (unlock func() error, err error) {
	unlock = func() error { return nil }
	if _, err := fs.Stat(fs.PathJoin(dir, "LOCK")); err != nil {
		return unlock, nil
	}
	lock, err := pebble.LockDirectory(dir, fs)
	switch {
	case err == nil:
		return lock.Close, nil
	case errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS):
		return unlock, nil // no process can write there
	}
	return nil, err
}
