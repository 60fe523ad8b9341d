package engine

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The guard is the file system that the library sees. Changes to the store's own directory succeed, wait or are
// pretended. Changes to a copy, in another directory, return their errors, because a caller waits for that copy and
// must learn of the failure. Reads return their errors, because the library can handle them.

// fileKind decides how the guard treats an error of a file.
type fileKind int

const (
	foreignFile fileKind = iota // file of a copy of the store: its error goes to the caller
	vitalFile
	tableFile
)

// kindOf returns the kind of a file, by its directory and suffix. An unknown file counts as vital: if an error is
// taken too seriously, the store stops; if an error is not taken seriously enough, data is lost.
func (g *guard) kindOf(name string) fileKind {
	switch {
	case g.PathDir(name) != g.dir:
		return foreignFile
	case strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".blob"):
		return tableFile
	}
	return vitalFile
}

// Unwrap returns the underlying file system.
func (g *guard) Unwrap() vfs.FS { return g.FS }

// Create creates a file, or pretends to.
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

// pretendFile returns a file that exists only in memory.
func (g *guard) pretendFile(name string) vfs.File {
	file, _ := vfs.NewMem().Create("nowhere", vfs.WriteCategoryUnspecified) // cannot fail: it has room
	return newVital(file, g, name)
}

// ReuseForWrite creates a log. ReuseForWrite reuses an old log's file, unless old logs must be removed (see reclaim).
func (g *guard) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if g.isBroken() {
		return g.pretendFile(name), nil
	}
	if !g.afresh.Load() {
		file, err := g.FS.ReuseForWrite(old, name, category)
		if err == nil {
			return newVital(file, g, name), nil
		}
		// A second try would succeed, but would hide the data that the failed sync has lost.
		if errors.Is(err, errUnrecorded) && !mayPass(err) {
			g.breakWith(named("reuse", name, err))
		}
	}
	file, err := g.Create(name, category)
	if err == nil && !g.isBroken() {
		_ = g.FS.Remove(old) // if this fails, the next opening removes the log
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

// openingError returns the error of all reads while the opening of a store is being given up.
func (g *guard) openingError() error {
	if g.opening.Load() {
		return g.err()
	}
	return nil
}

// afterRead waits after a failed read of a table, because the library repeats the read at once.
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

// changeUnlessBroken runs f unless the guard is broken. If the guard is broken, a change to the store is pretended,
// and a change to a copy fails, because an incomplete copy that looks complete would be worse than no copy.
func (g *guard) changeUnlessBroken(name string, f func() error) error {
	if !g.isBroken() {
		return f()
	}
	if g.kindOf(name) == foreignFile {
		return g.err()
	}
	return nil
}

// Remove removes a file. Remove returns errors, because a file that remains does no harm.
func (g *guard) Remove(name string) error {
	return g.changeUnlessBroken(name, func() error { return g.FS.Remove(name) })
}

// RemoveAll removes a copy.
func (g *guard) RemoveAll(name string) error {
	return g.changeUnlessBroken(name, func() error { return g.FS.RemoveAll(name) })
}

// Rename renames a file. The library writes its file of options under another name first.
func (g *guard) Rename(old, name string) error {
	return g.changeUnlessBroken(name, func() error {
		if g.kindOf(name) == foreignFile {
			return g.FS.Rename(old, name)
		}
		g.insist("rename", name, func() error { return g.FS.Rename(old, name) })
		return nil
	})
}

// Link is used only for copies.
func (g *guard) Link(old, name string) error {
	return g.changeUnlessBroken(name, func() error { return g.FS.Link(old, name) })
}

// MkdirAll creates the store's directory, or that of a copy.
func (g *guard) MkdirAll(name string, perm os.FileMode) error {
	return g.changeUnlessBroken(name, func() error { return g.FS.MkdirAll(name, perm) })
}

// OpenReadWrite is not used for files of a store.
func (g *guard) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (file vfs.File,
	err error,
) {
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

// List lists the directory. If a list fails late in the library's opening, the library leaks goroutines, so only the
// first list may fail.
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
