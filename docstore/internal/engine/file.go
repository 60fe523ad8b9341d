package engine

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The files of a guarded store, grouped by the consequences of an error. Errors of vital files are hidden from the
// library, because the library would panic or go on without the file. Errors of tables are shown, because the library
// then writes the table again. Errors of reads are shown too, but the guard slows down repeated reads. guard.go
// describes when the guard breaks; after that, writes do nothing.

// guardedVital is a log, a manifest, a marker or the directory. Errors are hidden from the library, because the
// library cannot handle them.
type guardedVital struct {
	vfs.File
	g    *guard
	name string
	log  bool

	at, room int64 // of a log: bytes written, and bytes reserved
}

// newVital guards a file that the store cannot do without. Only logs reserve space in advance.
func newVital(file vfs.File, g *guard, name string) *guardedVital {
	return &guardedVital{File: file, g: g, name: name, log: strings.HasSuffix(name, ".log")}
}

// Write writes, or pretends to. A half-done write cannot be undone, so the guard breaks. Lack of space was waited out
// before the write.
func (f *guardedVital) Write(b []byte) (int, error) {
	n := len(b)
	if f.log {
		f.makeRoom(int64(n))
	}
	if f.g.isBroken() {
		return n, nil
	}
	_, err := f.File.Write(b)
	f.g.breakOnError("write", f.name, err)
	f.at += int64(n)
	return n, nil
}

// Sync syncs the file to the disk.
func (f *guardedVital) Sync() error { return f.sync(f.File.Sync) }

// SyncData syncs the file's bytes to the disk.
func (f *guardedVital) SyncData() error { return f.sync(f.File.SyncData) }

// sync breaks the guard after a failure, because the bytes that reached the disk are unknown, and a second sync could
// succeed without them.
func (f *guardedVital) sync(do func() error) error {
	if f.g.isBroken() {
		return nil
	}
	if f.log {
		f.g.breakOnError("sync", f.name, f.g.syncs.timed(do))
	} else {
		f.g.breakOnError("sync", f.name, do())
	}
	return nil
}

// SyncTo syncs the first bytes of the file to the disk.
func (f *guardedVital) SyncTo(length int64) (full bool, err error) {
	err = f.sync(func() error {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Close closes the file.
func (f *guardedVital) Close() error {
	err := f.File.Close()
	if !f.g.isBroken() {
		f.g.breakOnError("close", f.name, err)
	}
	return nil
}

// Stat is called only for a log that reuses an old file, for the figures of [Engine.Reclaim]. If the size of the log
// cannot be read, the log counts as empty in these figures, so the store goes on.
func (f *guardedVital) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return f.g.pretendFile(f.name).Stat()
	}
	return info, nil
}

// Preallocate does nothing, because the library would reserve a full write buffer for each log, and a small store
// would take many times its size. See makeRoom.
func (f *guardedVital) Preallocate(int64, int64) error { return nil }

// leastRoom and mostRoom limit the space that a log reserves in advance: as much again as reserved so far.
const (
	leastRoom = 256 << 10
	mostRoom  = 4 << 20
)

// makeRoom reserves space in a log before bytes are written. The guard can wait if space is missing at this point,
// but not if a record is half written. A file system that cannot reserve space returns another error. There, a full
// disk is noticed only at the write, and breaks the guard.
func (f *guardedVital) makeRoom(n int64) {
	if f.at+n <= f.room {
		return
	}
	step := max(n, min(max(f.room, leastRoom), mostRoom))
	f.g.insist("write", f.name, func() error {
		if err := f.File.Preallocate(f.room, f.at+step-f.room); mayPass(err) {
			return err
		}
		return nil
	})
	f.room = f.at + step
}

// guardedTable is a table being written.
type guardedTable struct {
	vfs.File
	g    *guard
	name string
	torn bool // a write has failed; the library closes the table and begins another
}

// Write writes, or pretends to.
func (f *guardedTable) Write(b []byte) (int, error) {
	if f.g.isBroken() {
		return len(b), nil
	}
	n, err := f.File.Write(b)
	f.torn = f.torn || err != nil
	return n, f.g.tableError("write", f.name, err)
}

// Sync syncs the table to the disk.
func (f *guardedTable) Sync() error { return f.sync(f.File.Sync) }

// SyncData syncs the table's bytes to the disk.
func (f *guardedTable) SyncData() error { return f.sync(f.File.SyncData) }

// sync syncs the table to the disk. Only a successful sync of a complete table ends a series of failures. A table
// that was only created, or that lacks one of its writes, proves nothing about the disk.
func (f *guardedTable) sync(do func() error) error {
	if f.g.isBroken() {
		return nil
	}
	err := f.g.tableError("sync", f.name, do())
	if err == nil && !f.torn {
		f.g.tableDone()
	}
	return err
}

// SyncTo syncs the first bytes of the table to the disk.
func (f *guardedTable) SyncTo(length int64) (full bool, err error) {
	if f.g.isBroken() {
		return false, nil
	}
	full, err = f.File.SyncTo(length)
	return full, f.g.tableError("sync", f.name, err)
}

// Close closes the table.
func (f *guardedTable) Close() error {
	err := f.File.Close()
	if f.g.isBroken() {
		return nil
	}
	return f.g.tableError("close", f.name, err)
}

// guardedReader is a file being read.
type guardedReader struct {
	vfs.File
	g    *guard
	name string
}

// Read reads the next bytes.
func (f *guardedReader) Read(b []byte) (int, error) {
	if err := f.g.openingError(); err != nil {
		return 0, err
	}
	return f.File.Read(b)
}

// ReadAt reads at an offset.
func (f *guardedReader) ReadAt(b []byte, at int64) (int, error) {
	if err := f.g.openingError(); err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(b, at)
	if err != nil && n == 0 {
		f.g.afterRead(f.name)
	}
	return n, err
}
