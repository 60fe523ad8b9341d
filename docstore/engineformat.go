package docstore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The format of a store is known before the engine opens it. The engine writes as it opens: it
// begins a log and a manifest. A program that found out only afterwards that it does not know the
// format would have changed the files of a store that it then refuses.
//
// The inventory has the format. That of an older build has none; then the engine is opened to be
// read only, once, and the next inventory has it.
//
// The store of an older build without an inventory is opened twice: first without making one, to
// raise its format, and then to be used. An older program that is tried on it meanwhile either
// finds the old format and can use the store, or refuses it; and whatever such a program does to
// the logs, there is no inventory that they would contradict.

// checkFormat returns the format of the store that has been verified, and refuses an unknown one.
// A store without a format is new, or empty, or another program's; see [loader.format].
func checkFormat(ctx context.Context, e *engine, dir string, po *pebble.Options) (string, error) {
	facts := e.inventory.facts
	if facts.Making {
		return formatVersion, nil
	}
	format := facts.Format
	if format == "" {
		var err error
		if format, err = readFormat(ctx, e, dir, po); err != nil {
			return "", err
		}
	}
	return format, knownFormat(format)
}

// knownFormat refuses a format that this version does not read.
func knownFormat(format string) error {
	switch format {
	case formatVersion, formatNoTally, "":
		return nil
	}
	return fmt.Errorf("%w: the store has format %q, this version reads %q and %q: nothing was changed; open it with the version that wrote it",
		ErrFormat, format, formatNoTally, formatVersion)
}

// readFormat reads the format from the engine's files, and writes nothing.
func readFormat(ctx context.Context, e *engine, dir string, po *pebble.Options) (format string, err error) {
	o := *po
	o.ReadOnly, o.Lock = true, e.lock
	o.Experimental.CompactionScheduler = newScheduler(e.guard)
	settled := e.guard.until(ctx)
	db, err := pebble.Open(dir, &o)
	settled()
	if e.guard.frozen() {
		err = openFailure(ctx, e.guard.err())
	}
	if err != nil {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		return "", err
	}
	e.db = db
	value, found, err := e.find(metaKey("format"))
	if err == nil && !found {
		err = e.refuseOther()
	}
	e.db = nil
	format = string(value) // the memory is the engine's until it is closed
	return format, errors.Join(err, db.Close())
}

// refuseOther refuses an engine that holds keys and no format: they are another program's, or
// what is left of a store.
func (e *engine) refuseOther() (err error) {
	c, err := e.cursor(nil, nil)
	if err != nil {
		return err
	}
	defer c.closeInto(&err, "close cursor")
	if c.first() {
		return fmt.Errorf("%w: directory holds other data", ErrFormat)
	}
	return c.err()
}

// isOld reports whether a store was written by a build that knew no inventory.
func isOld(e *engine, fs vfs.FS, dir string) (bool, error) {
	if e.inventory.facts.Making {
		return false, nil
	}
	_, err := fs.Stat(fs.PathJoin(dir, inventoryName))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return false, err
}
