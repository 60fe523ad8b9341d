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

// The engine must know the format of a store before the library opens it, because opening writes a log and a
// manifest. Otherwise a program that does not know the format would change the files of a store and only then refuse
// it.
//
// The inventory contains the format. If an older build wrote the store, the inventory has no format. Then the library
// is opened once in read-only mode, and the next inventory contains the format.
//
// If an older build wrote the store without an inventory, the store is opened twice: first without an inventory, to
// raise its format, and then for use. If an older program tries to open the store meanwhile, that program either
// finds the old format and can use the store, or refuses the store. Whatever such a program does to the logs, no
// inventory contradicts them.

// checkFormat returns the format of a verified store, and refuses an unknown format. A store without a format is new,
// or empty, or written by another program; see [Engine.Format].
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

// Schema contains the facts about its user's keys and values that the engine needs before reading them.
type Schema struct {
	FormatKey []byte   // key of the format of all other values
	Formats   []string // formats that this version reads, the present format last
	Heads     []byte   // first bytes of the keys read while a store is opened

	// Age returns a number that is greater for the newer of two values of a key, or false if the value has no such
	// number. Age decides in a damaged store, in which the library's own numbers are lost.
	Age func(key, value []byte) (age int64, ok bool)
}

// presentFormat returns the format of new stores.
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
	return fmt.Errorf("%w: the store has format %q, this version reads %s: nothing was changed; open it with the "+
		"version that wrote it",
		ErrFormat, format, strings.Join(known, " and "))
}

// Format reads the format of a store being opened, and refuses an unknown format. Format also refuses a store that
// has keys but no format: another program wrote the keys, or they are the rest of a store. A new store has no keys
// and no format.
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
	format = string(value) // a copy, because the memory belongs to the library until its end
	return format, errors.Join(err, db.Close())
}

// refuseOther refuses an engine that has keys but no format: another program wrote the keys, or they are the rest of
// a store.
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

// isOld reports whether a store was written by a build older than the inventory.
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
