package engine

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The files of a guarded store, by what an error of each would mean. Errors of vital
// files are hidden, because the library would panic or go on without the file; errors of
// tables are shown, because the library then writes the table again; errors of reads are
// shown too, and only paced. guard.go says when the guard breaks, after which
// writes do nothing.

// guardedVital is a log, a manifest, a marker or the directory. The library sees none of
// its errors, because it cannot bear them.
type guardedVital struct {
	vfs.File
	g    *guard
	name string
	log  bool

	at, room int64 // of a log: how far it is written, and how far it has room
}

// newVital guards a file without which the store is nothing. Only logs get room in advance.
func newVital(file vfs.File, g *guard, name string) *guardedVital {
	return &guardedVital{File: file, g: g, name: name, log: strings.HasSuffix(name, ".log")}
}

// Write writes, or pretends to. A write that fails half-way cannot be undone, so the
// guard breaks; lack of room was waited out before.
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

// Sync brings the file to the disk.
func (f *guardedVital) Sync() error { return f.sync(f.File.Sync) }

// SyncData brings the file's bytes to the disk.
func (f *guardedVital) SyncData() error { return f.sync(f.File.SyncData) }

// sync breaks the guard after a failure, because it is not known what reached the disk, and a
// second try could succeed without it.
func (f *guardedVital) sync(do func() error) error {
	if !f.g.isBroken() {
		f.g.breakOnError("sync", f.name, do())
	}
	return nil
}

// SyncTo brings a beginning of the file to the disk.
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

// Stat is asked of a log that was made out of an old one, for the figures of [Engine.Reclaim] alone.
// A log whose size cannot be read counts as empty there, so the store goes on.
func (f *guardedVital) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return f.g.pretendFile(f.name).Stat()
	}
	return info, nil
}

// Preallocate does nothing: the library would give each log room for a full write
// buffer, and a small store would take many times its size. See makeRoom.
func (f *guardedVital) Preallocate(int64, int64) error { return nil }

// leastRoom and mostRoom bound the room that a log gets in advance: as much again as is
// written.
const (
	leastRoom = 256 << 10
	mostRoom  = 4 << 20
)

// makeRoom reserves room in a log before bytes are written, because lack of room can be
// waited out then and a half-written record cannot. A file system that cannot reserve
// answers with another error; there a full disk shows at the write, and breaks the
// guard.
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

// guardedTable is a table that is being written.
type guardedTable struct {
	vfs.File
	g    *guard
	name string
	torn bool // lacks a write; the library closes it and begins another
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

// Sync brings the table to the disk.
func (f *guardedTable) Sync() error { return f.sync(f.File.Sync) }

// SyncData brings the table's bytes to the disk.
func (f *guardedTable) SyncData() error { return f.sync(f.File.SyncData) }

// sync brings the table to the disk. Only that ends a series of failures: a table that
// was created, or lacks one of its writes, proves nothing about the disk.
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

// SyncTo brings a beginning of the table to the disk.
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

// guardedReader is a file that is being read.
type guardedReader struct {
	vfs.File
	g    *guard
	name string
}

// Read reads on.
func (f *guardedReader) Read(b []byte) (int, error) {
	if err := f.g.openingError(); err != nil {
		return 0, err
	}
	return f.File.Read(b)
}

// ReadAt reads at a place.
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
