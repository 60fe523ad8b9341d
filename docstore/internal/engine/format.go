package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The format of a store is known before the library opens it. The library writes as it opens: it
// begins a log and a manifest. A program that found out only afterwards that it does not know the
// format would have changed the files of a store that it then refuses.
//
// The inventory has the format. That of an older build has none; then the library is opened to be
// read only, once, and the next inventory has it.
//
// The store of an older build without an inventory is opened twice: first without making one, to
// raise its format, and then to be used. An older program that is tried on it meanwhile either
// finds the old format and can use the store, or refuses it; and whatever such a program does to
// the logs, there is no inventory that they would contradict.

// checkFormat returns the format of the store that has been verified, and refuses an unknown one.
// A store without a format is new, or empty, or another program's; see [Engine.Format].
func checkFormat(ctx context.Context, e *Engine, dir string, po *pebble.Options) (string, error) {
	facts := e.inventory.facts
	if facts.Making {
		return e.schema.presentFormat(), nil
	}
	format := facts.Format
	if format == "" {
		var err error
		if format, err = readFormat(ctx, e, dir, po); err != nil {
			return "", err
		}
	}
	return format, e.schema.checkFormat(format)
}

// Schema is what the engine has to know of its user's keys and values before they can be read.
type Schema struct {
	FormatKey []byte   // the key whose value names the format of all others
	Formats   []string // those that are read, the present one last
	Heads     []byte   // first bytes of the keys that are read while a store is opened

	// Age returns a number that is greater in the newer of two values of a key, or false for a
	// value without one. It decides in a damaged store, where the library's own numbers are lost.
	Age func(key, value []byte) (age int64, ok bool)
}

// presentFormat is the format in which stores are written.
func (s Schema) presentFormat() string { return s.Formats[len(s.Formats)-1] }

// checkFormat refuses a format that this version does not read.
func (s Schema) checkFormat(format string) error {
	if format == "" || slices.Contains(s.Formats, format) {
		return nil
	}
	var known []string
	for _, f := range s.Formats {
		known = append(known, strconv.Quote(f))
	}
	return fmt.Errorf("%w: the store has format %q, this version reads %s: nothing was changed; open it with the version that wrote it",
		ErrFormat, format, strings.Join(known, " and "))
}

// Format reads the format of a store that is being opened, and refuses an unknown one, or keys
// without a format: they are another program's, or what is left of a store. A new store has none.
func (e *Engine) Format() (format string, found bool, err error) {
	value, found, err := e.Find(e.schema.FormatKey)
	switch {
	case err != nil:
		return "", false, openError(err)
	case !found:
		return "", false, e.refuseOther()
	}
	return string(value), true, e.schema.checkFormat(string(value))
}

// SetFormat changes the format, in the store and in its inventory.
func (e *Engine) SetFormat(format string) error {
	w := e.NewBatch(0)
	w.Set(e.schema.FormatKey, []byte(format))
	if err := w.Commit(); err != nil {
		return err
	}
	return e.inventory.recordFormat(format)
}

// readFormat reads the format from the library's files, and writes nothing.
func readFormat(ctx context.Context, e *Engine, dir string, po *pebble.Options) (format string, err error) {
	o := *po
	o.ReadOnly, o.Lock = true, e.lock
	o.Experimental.CompactionScheduler = newScheduler(e.guard)
	settled := e.guard.breakWhenDone(ctx)
	db, err := pebble.Open(dir, &o)
	settled()
	if e.guard.isBroken() {
		err = openFailure(ctx, e.guard.err())
	}
	if err != nil {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		return "", err
	}
	e.db = pebbleDB{db}
	value, found, err := e.Find(e.schema.FormatKey)
	if err == nil && !found {
		err = e.refuseOther()
	}
	e.db = nil
	format = string(value) // the memory is the library's until it is closed
	return format, errors.Join(err, db.Close())
}

// refuseOther refuses an engine that holds keys and no format: they are another program's, or
// what is left of a store.
func (e *Engine) refuseOther() (err error) {
	c, err := e.Cursor(nil, nil)
	if err != nil {
		return err
	}
	defer c.CloseInto(&err, "close cursor")
	if c.First() {
		return fmt.Errorf("%w: directory holds other data", ErrFormat)
	}
	return c.Err()
}

// isOld reports whether a store was written by a build that knew no inventory.
func isOld(e *Engine, fs vfs.FS, dir string) (bool, error) {
	if e.inventory.facts.Making {
		return false, nil
	}
	_, err := fs.Stat(fs.PathJoin(dir, inventoryName))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return false, err
}
