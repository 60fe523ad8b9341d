package engine

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The guard as the file system that the library sees. Changes to the store's own
// directory succeed, wait or are pretended. Changes to a copy, in another directory,
// fail as they are, because somebody waits for that copy and must not believe in it.
// Reads pass their errors on, which the library bears.

// fileKind decides how the guard treats an error of a file.
type fileKind int

const (
	foreignFile fileKind = iota // of a copy of the store: its error is the caller's
	vitalFile
	tableFile
)

// kindOf tells files apart by directory and suffix. Whatever is not known is vital: an
// error too many stops the store, an error too few loses data.
func (g *guard) kindOf(name string) fileKind {
	switch {
	case g.PathDir(name) != g.dir:
		return foreignFile
	case strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".blob"):
		return tableFile
	}
	return vitalFile
}

// Unwrap returns the file system below.
func (g *guard) Unwrap() vfs.FS { return g.FS }

// Create makes a file, or pretends to.
func (g *guard) Create(name string, category vfs.DiskWriteCategory) (file vfs.File, err error) {
	create := func() error {
		file, err = g.FS.Create(name, category)
		return err
	}
	switch kind := g.kindOf(name); {
	case kind == foreignFile:
		if g.isBroken() {
			return nil, g.err()
		}
		return file, create()
	case kind == tableFile && !g.isBroken():
		g.beforeTable()
		if g.isBroken() {
			break
		}
		if err := g.tableError("create", name, create()); err != nil {
			return nil, err
		}
		return &guardedTable{File: file, g: g, name: name}, nil
	case g.insist("create", name, create):
		return newVital(file, g, name), nil
	}
	return g.pretendFile(name), nil
}

// pretendFile returns a file that exists in memory only.
func (g *guard) pretendFile(name string) vfs.File {
	file, _ := vfs.NewMem().Create("nowhere", vfs.WriteCategoryUnspecified) // has room for it
	return newVital(file, g, name)
}

// ReuseForWrite makes a log, out of an old one unless old logs are to go (see reclaim).
func (g *guard) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if g.isBroken() {
		return g.pretendFile(name), nil
	}
	if !g.afresh.Load() {
		file, err := g.FS.ReuseForWrite(old, name, category)
		if err == nil {
			return newVital(file, g, name), nil
		}
		// Another try would succeed, and would not show what the sync that failed has lost.
		if errors.Is(err, errUnrecorded) && !mayPass(err) {
			g.breakWith(named("reuse", name, err))
		}
	}
	file, err := g.Create(name, category)
	if err == nil && !g.isBroken() {
		_ = g.FS.Remove(old) // a log too many is removed at the next opening
	}
	return file, err
}

// Open opens a file for reading.
func (g *guard) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := g.openingError(); err != nil {
		return nil, err
	}
	file, err := g.FS.Open(name, opts...)
	if err != nil {
		g.afterRead(name)
		return nil, err
	}
	return &guardedReader{file, g, name}, nil
}

// openingError is the error of all reads while the opening of a store is given up.
func (g *guard) openingError() error {
	if g.opening.Load() {
		return g.err()
	}
	return nil
}

// afterRead waits after a failed read of a table, which the library repeats at once.
func (g *guard) afterRead(name string) {
	if g.kindOf(name) == tableFile {
		g.pauseReads()
	}
}

// OpenDir opens a directory to sync its names.
func (g *guard) OpenDir(name string) (file vfs.File, err error) {
	open := func() error {
		file, err = g.FS.OpenDir(name)
		return err
	}
	if g.PathJoin(name) != g.PathJoin(g.dir) {
		return file, open()
	}
	if g.insist("open", name, open) {
		return newVital(file, g, name), nil
	}
	return g.pretendFile(name), nil
}

// changeUnlessBroken runs f unless the guard is broken. Then a change to the store is pretended,
// and one to a copy fails: a copy that looks whole and is not would be worse than none.
func (g *guard) changeUnlessBroken(name string, f func() error) error {
	if !g.isBroken() {
		return f()
	}
	if g.kindOf(name) == foreignFile {
		return g.err()
	}
	return nil
}

// Remove removes a file. An error is passed on: a file too many does no harm.
func (g *guard) Remove(name string) error {
	return g.changeUnlessBroken(name, func() error { return g.FS.Remove(name) })
}

// RemoveAll removes a copy.
func (g *guard) RemoveAll(name string) error {
	return g.changeUnlessBroken(name, func() error { return g.FS.RemoveAll(name) })
}

// Rename renames a file. The library writes its options under another name first.
func (g *guard) Rename(old, name string) error {
	return g.changeUnlessBroken(name, func() error {
		if g.kindOf(name) == foreignFile {
			return g.FS.Rename(old, name)
		}
		g.insist("rename", name, func() error { return g.FS.Rename(old, name) })
		return nil
	})
}

// Link is used for copies alone.
func (g *guard) Link(old, name string) error {
	return g.changeUnlessBroken(name, func() error { return g.FS.Link(old, name) })
}

// MkdirAll makes the directory, or that of a copy.
func (g *guard) MkdirAll(name string, perm os.FileMode) error {
	return g.changeUnlessBroken(name, func() error { return g.FS.MkdirAll(name, perm) })
}

// OpenReadWrite is used for no file of a store.
func (g *guard) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (file vfs.File, err error) {
	err = g.changeUnlessBroken(name, func() error {
		file, err = g.FS.OpenReadWrite(name, category, opts...)
		return err
	})
	return file, err
}

// Lock locks the directory.
func (g *guard) Lock(name string) (io.Closer, error) {
	if err := g.openingError(); err != nil {
		return nil, err
	}
	return g.FS.Lock(name)
}

// List lists the directory. The library leaves goroutines behind when that fails late in
// its opening, so only the first list may fail.
func (g *guard) List(dir string) (names []string, err error) {
	if g.PathJoin(dir) != g.PathJoin(g.dir) {
		return g.FS.List(dir)
	}
	if !g.insist("list", dir, func() error { names, err = g.FS.List(dir); return err }) && !g.listed.Load() {
		return nil, g.err()
	}
	g.listed.Store(true)
	return names, nil
}
